from __future__ import annotations

import pytest

from tidegate.spanner_simulator import Simulator
from tidegate.spanner_simulator.errors import SpannerError


def test_a_clock_that_begins_frozen_moves_on_command() -> None:
    with Simulator(frozen_at="2026-01-01T00:00:00Z") as simulator:
        assert simulator.clock() == {
            "now": "2026-01-01T00:00:00Z",
            "now_timestamp_us": 1_767_225_600_000_000,
            "is_frozen": True,
        }
        assert simulator.advance(90_000)["now"] == "2026-01-01T00:01:30Z"
        assert not simulator.thaw()["is_frozen"]
        assert simulator.freeze()["now"] > "2026-01-01T00:01:30"


@pytest.mark.parametrize("by_ms", [-1, 10**15])
def test_a_jump_that_is_none(simulator: Simulator, by_ms: int) -> None:
    with pytest.raises(SpannerError, match="by_ms must lie in"):
        simulator.advance(by_ms)

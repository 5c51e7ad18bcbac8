from __future__ import annotations

import pytest

from spanner_simulator import Simulator


def test_the_simulators_own_loop_is_told_that_it_would_wait_for_itself(
    simulator: Simulator,
) -> None:
    with pytest.raises(RuntimeError, match="its own event loop cannot call it"):
        simulator._run(lambda _host: simulator.health())


def test_verbs_need_a_running_simulator() -> None:
    simulator = Simulator()

    assert not simulator.is_running
    with pytest.raises(RuntimeError, match="with statement"):
        simulator.health()

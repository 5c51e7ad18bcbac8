from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import types as spanner

from spanner_simulator.server.messages import (
    parameters,
    timestamp_message,
    timestamp_us_of,
)


def test_parameters_are_found_in_any_case() -> None:
    request = spanner.ExecuteSqlRequest.pb()()
    request.params.update({"Start": "x", "Names": ["a", None], "O": {"b": 1.0}})

    assert parameters(request) == {"start": "x", "names": ["a", None], "o": {"b": 1.0}}


@pytest.mark.parametrize("timestamp_us", [0, 1_234_567, -1])
def test_timestamps_round_trip(timestamp_us: int) -> None:
    assert timestamp_us_of(timestamp_message(timestamp_us)) == timestamp_us

"""A stream's state is named as Datastream names it; what somebody has to act on comes first."""

from __future__ import annotations

import pytest

from tidegate.lineage.fleet_status import FleetStatus, PartitionCondition, PartitionStatus
from tidegate.producer.commands.stream_state import StreamState, stream_state

EXPIRED = "too old (lost_from='x', lost_until='y')"


def fleet(*reasons, watermark_us=5, has_ended=False):
    partitions = tuple(
        PartitionStatus(f"t{n}", 0, "w", PartitionCondition.OPEN, 5, reason)
        for n, reason in enumerate(reasons)
    )
    return FleetStatus("s", "e", watermark_us, has_ended, (), partitions)


@pytest.mark.parametrize(
    ("found", "members", "state"),
    [
        (fleet(None), ["w"], StreamState.RUNNING),
        (fleet(None, watermark_us=None), ["w"], StreamState.STARTING),
        (fleet(None), [], StreamState.PAUSED),
        (fleet(None, "damaged"), ["w"], StreamState.FAILED),
        (fleet(None, "damaged"), [], StreamState.FAILED),
        (fleet("damaged", EXPIRED), ["w"], StreamState.FAILED_PERMANENTLY),
        (fleet(has_ended=True), [], StreamState.ENDED),
    ],
)
def test_it_is_the_first_that_holds(found, members, state):
    assert stream_state(found, members) is state


def test_names_are_those_of_datastream():
    """Of its others, Not started is an error of `status`, and Draining takes seconds."""
    assert {state.value for state in StreamState} - {"Ended"} == {
        "Starting", "Running", "Paused", "Failed", "Failed permanently",
    }  # fmt: skip

"""Since when a stream is in its state: as long as the records prove it, and no longer."""

from __future__ import annotations

import pytest

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.commands.state_since import state_since
from tidegate.producer.commands.stream_state import StreamState
from tidegate.schemas.progress import ControlState, StreamControl

EXPIRED = "too old (lost_from='x', lost_until='y')"
PAUSED, RUNNING = ControlState.PAUSED, ControlState.RUNNING


def stream(*slots, partitions=(), control=None):
    """A stream whose slots have these times: heard, steady since, empty since."""
    return FleetStatus(
        "s", "e", 5, False,
        tuple(
            SlotStatus(number, "w", 4, 1, 5, False, *times) for number, times in enumerate(slots)
        ),
        tuple(
            PartitionStatus("t", 0, "w", PartitionCondition.STOPPED, 5, reason, since_us)
            for reason, since_us in partitions
        ),
        control=None if control is None else StreamControl(1, control[0], "me", control[1]),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "found", "since_us"),
    [
        (StreamState.RUNNING, stream((90, 30, None), (90, 40, None)), 40),
        (StreamState.RUNNING, stream((90, 30, None), control=(RUNNING, 70)), 70),
        (StreamState.RUNNING, stream((90, 80, None), control=(RUNNING, 70)), 80),
        (StreamState.RUNNING, stream((90, 30, None), (90, None, None)), None),
        (StreamState.STARTING, stream((90, 30, None), (90, 20, None), (None, None, None)), 20),
        (StreamState.STARTING, stream((90, 30, None), control=(RUNNING, 70)), 70),
        (StreamState.STARTING, stream((None, None, None)), None),
        (StreamState.DRAINING, stream((90, 30, None), control=(PAUSED, 70)), 70),
        (StreamState.PAUSED, stream((90, 30, None), control=(PAUSED, 70)), 70),
        (StreamState.PAUSED, stream((60, 30, None), (90, 30, None)), 90),
        (StreamState.PAUSED, stream((60, 30, None), control=(RUNNING, 10)), 60),
        (StreamState.PAUSED, stream((None, None, None)), None),
        (StreamState.ENDED, stream((90, 30, 50), (90, 30, 60)), 60),
        (StreamState.NOT_STARTED, stream(), None),
    ],
)
def test_it_is_the_latest_of_what_has_to_hold(state, found, since_us):
    assert state_since(found, state) == since_us


def test_a_failure_counts_from_the_first_error_of_its_kind():
    partitions = (("damaged", 20), (EXPIRED, 50), (EXPIRED, 40), (EXPIRED, None), (None, None))
    found = stream((90, None, None), partitions=partitions)
    assert state_since(found, StreamState.FAILED) == 20
    assert state_since(found, StreamState.FAILED_PERMANENTLY) == 40
    unknown = stream((90, None, None), partitions=(("damaged", None),))
    assert state_since(unknown, StreamState.FAILED) is None

"""A stream's state is named as Datastream names it; what somebody has to act on comes first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.commands.stream_state import StreamState, stream_state
from tidegate.schemas.progress import ControlState, StreamControl

EXPIRED = "too old (lost_from='x', lost_until='y')"


def fleet(*reasons, watermark_us=5, has_ended=False):
    partitions = tuple(
        PartitionStatus(f"t{n}", 0, "w", PartitionCondition.OPEN, 5, reason)
        for n, reason in enumerate(reasons)
    )
    return FleetStatus("s", "e", watermark_us, has_ended, (), partitions)


def paused(*slots, state=ControlState.PAUSED):
    """A fleet whose slots have said that they are paused, or not."""
    said = tuple(
        SlotStatus(number, "w", 4, 1, 5, is_paused=one) for number, one in enumerate(slots)
    )
    return replace(fleet(None), slots=said, control=StreamControl(1, state, "me", 0))


@pytest.mark.rule("datastream-states")
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
        (None, [], StreamState.NOT_STARTED),
        (paused(True, False), ["w"], StreamState.DRAINING),
        (paused(True, True), ["w"], StreamState.PAUSED),
        (paused(True, False), [], StreamState.PAUSED),
        (paused(False, state=ControlState.RUNNING), ["w"], StreamState.RUNNING),
        (replace(paused(True), watermark_us=None), ["w"], StreamState.PAUSED),
    ],
)
def test_it_is_the_first_that_holds(found, members, state):
    assert stream_state(found, members) is state


@pytest.mark.rule("datastream-states")
def test_names_are_those_of_datastream():
    assert {state.value for state in StreamState} - {"Ended"} == {
        "Not started", "Starting", "Running", "Draining", "Paused", "Failed", "Failed permanently",
    }  # fmt: skip

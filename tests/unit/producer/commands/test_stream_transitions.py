"""The table of a stream's states is what can be derived, over all that can be said of it."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

import pytest

from tidegate.lineage.fleet_status import (
    FleetStatus,
    PartitionCondition,
    PartitionStatus,
    SlotStatus,
)
from tidegate.producer.commands.stream_state import StreamState, stream_state
from tidegate.producer.commands.stream_transitions import (
    STREAM_TRANSITIONS,
    StreamChange,
    drawing,
)
from tidegate.schemas.progress import ControlState, StreamControl

EXPIRED = "too old (lost_from='x', lost_until='y')"


@dataclass(frozen=True)
class Facts:
    """What is true of a stream."""

    is_opened: bool = False
    is_heard: bool = False
    stop: str = ""
    """The worst error that stops a stream partition."""
    is_to_pause: bool = False
    is_obeyed: bool = False
    has_workers: bool = False
    has_ended: bool = False

    @property
    def is_possible(self) -> bool:
        if not self.is_opened:
            return self == Facts()
        if self.is_obeyed and not (self.is_to_pause and self.is_heard):
            return False
        return not self.has_ended or (self.is_heard and not self.stop)

    @property
    def is_read(self) -> bool:
        return self.has_workers and not self.is_obeyed

    @property
    def state(self):
        if not self.is_opened:
            return stream_state(None, [])
        reason = {"": None, "error": "damaged", "expired": EXPIRED}[self.stop]
        partition = PartitionStatus("t", 0, "w", PartitionCondition.OPEN, 5, reason)
        wanted = ControlState.PAUSED if self.is_to_pause else ControlState.RUNNING
        return stream_state(
            FleetStatus(
                "s", "e", 5 if self.is_heard else None, self.has_ended,
                (SlotStatus(0, "w", 4, 1, 5, is_paused=self.is_obeyed),), (partition,),
                control=StreamControl(1, wanted, "me", 0),
            ),
            ["w"] if self.has_workers else [],
        )  # fmt: skip

    def after(self, change):
        """Return the facts after a change; None where it cannot happen."""
        found = self._changed(change)
        return found if found is not None and found != self and found.is_possible else None

    def _changed(self, change):
        if self.has_ended or self.is_opened is (change is StreamChange.OPENED):
            return None  # workers may come and go, but nothing follows from it
        match change:
            case StreamChange.OPENED:
                return replace(self, is_opened=True, has_workers=True)
            case StreamChange.HEARD if self.has_workers:
                return replace(self, is_heard=True)
            case StreamChange.STOPPED if self.is_read and not self.stop:
                return replace(self, stop="error")
            case StreamChange.EXPIRED if self.is_read:
                return replace(self, stop="expired")
            case StreamChange.CLEARED:
                return replace(self, stop="")
            case StreamChange.PAUSE:
                return replace(self, is_to_pause=True, is_obeyed=False)
            case StreamChange.OBEYED if self.has_workers:
                return replace(self, is_obeyed=True)
            case StreamChange.RESUME:
                return replace(self, is_to_pause=False, is_obeyed=False)
            case StreamChange.LEFT:
                return replace(self, has_workers=False)
            case StreamChange.JOINED:
                return replace(self, has_workers=True)
            case StreamChange.ENDED if self.is_read and not self.stop:
                return replace(self, has_ended=True)
        return None


FLAGS = (False, True)
ALL = [
    facts
    for opened, heard, stop, to_pause, obeyed, workers, ended in itertools.product(
        FLAGS, FLAGS, ("", "error", "expired"), FLAGS, FLAGS, FLAGS, FLAGS
    )
    if (facts := Facts(opened, heard, stop, to_pause, obeyed, workers, ended)).is_possible
]


def derived():
    found = {}
    for facts, change in itertools.product(ALL, StreamChange):
        after = facts.after(change)
        if after is not None and after.state is not facts.state:
            found.setdefault((facts.state, change), set()).add(after.state)
    return found


@pytest.mark.parametrize("change", StreamChange, ids=lambda one: one.name)
@pytest.mark.parametrize("state", StreamState, ids=lambda one: one.name)
def test_each_change_in_each_state_leads_where_the_table_says(state, change):
    expected = derived().get((state, change), set())
    assert set(STREAM_TRANSITIONS.get((state, change), ())) == expected


def test_each_state_is_met_and_the_end_is_final():
    reached = {StreamState.NOT_STARTED}
    for _ in StreamState:
        for (state, _), following in STREAM_TRANSITIONS.items():
            if state in reached:
                reached |= following
    assert reached == set(StreamState)
    assert {facts.state for facts in ALL} == set(StreamState)
    assert not any(state is StreamState.ENDED for state, _ in STREAM_TRANSITIONS)


def test_the_drawing_has_an_arrow_for_each_pair_of_states():
    pairs = {
        (state.name.lower(), one.name.lower())
        for (state, _), following in STREAM_TRANSITIONS.items()
        for one in following
    }
    arrows = [line.strip().split(":")[0] for line in drawing().splitlines() if "-->" in line]
    assert {tuple(arrow.split(" --> ")) for arrow in arrows if "[*]" not in arrow} == pairs
    assert len(arrows) == len(pairs) + 2

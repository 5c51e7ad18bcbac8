"""The status of a stream: the slowest first, and what is stopped still holds the watermark."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.lineage.fleet_status import PartitionCondition, fleet_status
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.progress import (
    ChildPartition,
    ControlState,
    PartitionAnnounced,
    PartitionGap,
    ProgressRecord,
    SlotChanges,
    SlotPaused,
    SlotProgress,
    SlowestToken,
    StreamControl,
    StreamStarted,
    TokenSnapshot,
)


def started(end_ns=None):
    return StreamStarted("s", "GOOGLE_STANDARD_SQL", 1, end_ns, "g", 2, "id", (), ())


def row(slot, offset, body, *, worker="w"):
    return ProgressRow(slot, offset, ProgressRecord("e", worker, body))


def token(name, watermark_us, **fields):
    return TokenSnapshot(name, 0, fields.pop("parents", ()), ("",), watermark_us, **fields)


@pytest.fixture
def view():
    return FleetView(epoch="e", progress_topic="p", slots=2)


def test_every_open_stream_partition_is_named_with_what_holds_it(view):
    stopped = token("stopped", 20, number=1, stopped="QueryError: refused")
    waiting = token("waiting", 40, number=2, parents=("", "q"))
    body = SlotProgress(0, 1, 0, -1, (), (token("open", 30, number=0), stopped, waiting))
    other = SlotProgress(1, 1, 0, -1, (), (token("other", 25, number=0),))
    view.fold([row(0, 0, body), row(1, 0, other, worker="v")], reached={0: 1, 1: 1})

    found = fleet_status(view, started(), epoch="e")
    assert [(one.token, one.slot, one.worker, one.condition) for one in found.partitions] == [
        ("stopped", 0, "w", PartitionCondition.STOPPED),
        ("other", 1, "v", PartitionCondition.OPEN),
        ("open", 0, "w", PartitionCondition.OPEN),
        ("waiting", 0, "w", PartitionCondition.WAITING),
    ]
    assert [one.reason for one in found.partitions[:2]] == ["refused", None]
    assert [one.error for one in found.partitions[:2]] == ["QueryError", None]
    assert [(one.open, one.watermark_us) for one in found.slots] == [(3, 20), (1, 25)]
    assert (found.watermark_us, found.has_ended) == (20, False)


def test_accepted_gaps_are_listed_and_a_stop_has_the_minute_in_which_it_was_first_said(view):
    """One that is read again has none."""
    first = SlotProgress(0, 1, 7, -1, (), (token("a", 20, number=0, stopped="why"),))
    other = SlotProgress(1, 1, 7, -1, (), ())
    added = token("b", 20, number=1, stopped="why not")
    changes = SlotChanges(0, 2, 1, 9, -1, (), SlowestToken("a", 20), 2, (added,))
    gap = PartitionGap("a", 21, 40, "ops", 8)
    rows = [row(0, 0, first), row(1, 0, other), row(0, 1, changes)]
    view.fold(rows, reached={0: 2, 1: 1})

    def since():
        return {
            one.token: one.stopped_since_us
            for one in fleet_status(view, started(), epoch="e").partitions
        }

    assert since() == {"a": 7 * 60_000_000, "b": 9 * 60_000_000}
    tokens = (token("a", 39, number=0), token("b", 20, number=1, stopped="why not"))
    whole = SlotProgress(0, 3, 11, -1, (), tokens)
    view.fold([row(0, 2, gap), row(0, 3, whole)], reached={0: 4, 1: 1})
    assert since() == {"a": None, "b": 9 * 60_000_000}
    assert fleet_status(view, started(), epoch="e").gaps == (gap,)


def test_a_slot_is_paused_once_an_owner_has_said_so_of_the_last_control(view):
    first = [row(slot, 0, SlotProgress(slot, 1, 0, -1, (), ())) for slot in range(2)]
    pause = StreamControl(1, ControlState.PAUSED, "me", 7)
    view.fold([*first, row(0, 1, pause), row(1, 1, SlotPaused(1, 1))], reached={0: 2, 1: 2})

    def said():
        found = fleet_status(view, started(), epoch="e")
        return [slot.is_paused for slot in found.slots], found.is_to_pause, found.is_paused

    assert said() == ([False, True], True, False)
    view.fold([row(0, 2, SlotPaused(0, 1))], reached={0: 3, 1: 2})
    assert said() == ([True, True], True, True)
    view.fold([row(0, 3, replace(pause, number=2, state=ControlState.RUNNING))],
              reached={0: 4, 1: 2})  # fmt: skip
    assert said() == ([False, False], False, False)
    # Another pause is not the one that was obeyed.
    view.fold([row(0, 4, replace(pause, number=3))], reached={0: 5, 1: 2})
    assert said() == ([False, False], True, False)


def test_what_was_announced_since_the_heartbeat_counts(view):
    empty = [row(slot, 0, SlotProgress(slot, 1, 0, -1, (), ())) for slot in range(2)]
    child = PartitionAnnounced(ChildPartition("c", ("a",), 50_000), "a")
    view.fold([*empty, row(1, 1, child)], reached={0: 1, 1: 2})

    assert fleet_status(view, started(), epoch="e").watermark_us == 49


def test_the_watermark_is_unknown_before_each_slot_has_a_heartbeat(view):
    view.fold([row(0, 0, SlotProgress(0, 1, 0, -1, (), (token("a", 9),)))], reached={0: 1, 1: 0})

    found = fleet_status(view, started(), epoch="e")
    assert (found.watermark_us, found.slots[1].version) == (None, 0)


@pytest.mark.parametrize(("end_ns", "expected"), [(70_000, (70, True)), (None, (None, False))])
def test_without_a_stream_partition_a_bounded_stream_has_ended(view, end_ns, expected):
    empty = [row(slot, 0, SlotProgress(slot, 1, 0, -1, (), ())) for slot in range(2)]
    view.fold(empty, reached={0: 1, 1: 1})

    found = fleet_status(view, started(end_ns), epoch="e")
    assert (found.watermark_us, found.has_ended) == expected

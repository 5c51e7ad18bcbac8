"""All slots of an epoch: the lowest watermark of what can move, slot by slot."""

from __future__ import annotations

import pytest

from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlowestToken,
    TokenSnapshot,
    TopicOffset,
)

PROGRESS = "p-progress"


def token(name, watermark_us, *, number=0, stopped=None):
    return TokenSnapshot(name, 0, (), ("",), watermark_us, number=number, stopped=stopped)


def row(slot, offset, body, *, epoch="e", version=2):
    return ProgressRow(slot, offset, ProgressRecord(epoch, "w", body, version))


def beat(slot, revision, *tokens, includes=-1, vector=()):
    entries = tuple(TopicOffset(*entry) for entry in vector)
    return SlotProgress(slot, revision, 0, includes, entries, tokens)


@pytest.fixture
def view():
    return FleetView(epoch="e", progress_topic=PROGRESS, slots=2)


def test_each_slot_has_its_lowest(view):
    view.fold([row(0, 0, beat(0, 1, token("a", 30), token("b", 20)))], reached={0: 1, 1: 0})
    assert (view.lowest_us(0), view.lowest_us(1), view.is_complete) == (20, None, False)

    view.fold([row(1, 0, beat(1, 1))], reached={0: 1, 1: 1})
    assert (view.lowest_us(1), view.is_complete) == (None, True)


def test_what_is_stopped_holds_nothing(view):
    stopped = token("b", 20, stopped="refused")
    view.fold([row(0, 0, beat(0, 1, token("a", 30), stopped))], reached={0: 1, 1: 0})

    assert view.lowest_us(0) == 30
    assert view.has_stopped

    view.fold([row(0, 1, beat(0, 2, token("a", 30), token("b", 20)))], reached={0: 2, 1: 0})

    assert not view.has_stopped


def test_data_need_not_be_read(view):
    body = beat(0, 1, token("a", 30), vector=[("p.items", 0, 10**6)])
    view.fold([row(0, 0, body)], reached={0: 1, 1: 0})

    assert view.lowest_us(0) == 30


def test_a_parent_leaves_only_after_its_child_has_entered(view):
    view.fold([row(0, 0, beat(0, 1, token("a", 30)))], reached={0: 1, 1: 0})
    gone = SlotChanges(0, 2, 1, 0, -1, (TopicOffset(PROGRESS, 1, 0),), None, 0, removed=(0,))
    view.fold([row(0, 1, gone)], reached={0: 2, 1: 0})
    assert view.lowest_us(0) == 30

    child = PartitionAnnounced(ChildPartition("c", ("a",), 50_000), "a")
    view.fold([row(1, 0, child)], reached={0: 2, 1: 1})
    assert (view.lowest_us(0), view.lowest_us(1)) == (None, 49)


def test_records_of_another_epoch_are_passed_over(view):
    rows = [
        row(0, 0, beat(0, 5, token("old", 1)), epoch="former"),
        row(0, 1, beat(0, 1, token("a", 30))),
    ]
    view.fold(rows, reached={0: 2, 1: 0})

    assert view.lowest_us(0) == 30


def test_what_was_taken_before_changes_nothing(view):
    first = row(0, 0, beat(0, 1, token("a", 30)))
    moved = SlotChanges(0, 2, 1, 0, -1, (), SlowestToken("b", 40), 1, removed=(0,),
                        added=(token("b", 40, number=1),))  # fmt: skip
    view.fold([first, row(0, 1, moved)], reached={0: 2, 1: 0})
    view.fold([first, row(0, 1, moved)], reached={0: 2, 1: 0})

    assert view.lowest_us(0) == 40


def test_a_slot_of_version_1_holds_nothing_since_it_does_not_say_what_is_stopped(view):
    view.fold([row(0, 0, beat(0, 1, token("a", 30)), version=1)], reached={0: 1, 1: 0})
    assert view.lowest_us(0) is None

    view.fold([row(0, 1, beat(0, 2, token("a", 40)))], reached={0: 2, 1: 0})
    assert view.lowest_us(0) == 40


def test_two_writers_of_one_slot_are_refused(view):
    view.fold([row(0, 0, beat(0, 2, token("a", 30)))], reached={0: 1, 1: 0})

    with pytest.raises(ProtocolError, match="two workers"):
        view.fold([row(0, 1, beat(0, 2, token("a", 40)))], reached={0: 2, 1: 0})

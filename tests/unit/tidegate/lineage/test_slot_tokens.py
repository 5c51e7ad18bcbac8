"""One slot in full: its open stream partitions, and the slowest of those that can move."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.lineage.slot_tokens import SlotTokens, can_move
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    SlotWatermark,
    SlowestToken,
    TokenMove,
    TokenSnapshot,
)
from tidegate.schemas.progress_chunks import split

A = TokenSnapshot("a", 0, ("p",), ("p",), 10, number=0)
B = TokenSnapshot("b", 0, ("p",), ("p",), 20, number=1)
START = SlotProgress(3, 7, 0, 4, (), (A, B))
NEXT = SlotChanges(3, 8, 1, 0, 4, (), SlowestToken("a", 10), 2)


def record(body, *, worker="w", version=2):
    return ProgressRecord("e", worker, body, version)


@pytest.fixture
def slot():
    slot = SlotTokens()
    slot.fold(record(START), offset=5)
    return slot


@pytest.mark.parametrize(
    ("token", "is_movable"),
    [
        (A, True),
        (replace(A, parents=(), parents_heard=("",)), True),
        (replace(A, stopped="refused"), False),
        (replace(A, parents=("p", "q")), False),
        (replace(A, parents=("p", "q"), parents_heard=("p", "q")), True),
    ],
)
def test_what_is_stopped_or_waits_for_a_parent_cannot_move(token, is_movable):
    assert can_move(token) is is_movable


def test_a_snapshot_is_passed_on_without_what_cannot_move():
    slot = SlotTokens()
    stopped = replace(A, stopped="refused")
    found = slot.fold(record(replace(START, tokens=(stopped, B))), offset=5)

    assert found == replace(START, tokens=(B,))
    assert slot.tokens == {"a": stopped, "b": B}


def test_changes_name_the_slowest_of_what_can_move(slot):
    stopped = replace(A, stopped="refused")
    found = slot.fold(record(replace(NEXT, added=(stopped,))), offset=6)
    assert found == replace(NEXT, slowest=SlowestToken("b", 20))

    again = replace(NEXT, revision=9, position=2, added=(A,), moved=(TokenMove(1, 30),))
    found = slot.fold(record(again), offset=7)
    assert found.slowest == SlowestToken("a", 10)

    last = replace(NEXT, revision=10, position=3, removed=(0,), open=1)
    assert slot.fold(record(last), offset=8).slowest == SlowestToken("b", 30)
    assert slot.tokens == {"b": replace(B, watermark_us=30)}


def test_without_anything_that_can_move_there_is_no_slowest(slot):
    found = slot.fold(record(replace(NEXT, removed=(0, 1), open=0)), offset=6)

    assert found.slowest is None
    assert slot.tokens == {}


def test_what_compaction_has_left_is_passed_on_as_it_is(slot):
    old = replace(NEXT, revision=12, position=6)
    assert slot.fold(record(old), offset=6) == old
    assert SlotTokens().fold(record(old), offset=6) == old


def test_a_chain_that_contradicts_itself_counts_again_with_its_next_snapshot(slot):
    broken = replace(NEXT, position=2)
    assert slot.fold(record(broken), offset=6) == broken
    assert slot.tokens is None

    slot.fold(record(replace(START, revision=9)), offset=7)
    assert set(slot.tokens) == {"a", "b"}


def announced(parent, *, parents=("p", "q")):
    return PartitionAnnounced(ChildPartition("c", parents, 1), parent)


def test_a_child_that_waits_for_another_parent_is_not_passed_on(slot):
    assert slot.fold(record(announced("p")), offset=6) is None
    assert slot.fold(record(announced("p")), offset=7) is None
    assert slot.fold(record(announced("q")), offset=8) == announced("q")
    alone = announced("p", parents=("p",))
    assert slot.fold(record(alone), offset=9) == alone


def test_parents_that_a_heartbeat_contains_are_heard(slot):
    assert slot.fold(record(announced("p")), offset=6) is None
    waiting = TokenSnapshot("c", 0, ("p", "q"), ("p",), 0, number=2)
    slot.fold(record(replace(NEXT, includes=6, added=(waiting,), open=3)), offset=7)

    assert not slot._announced
    assert slot.fold(record(announced("q")), offset=8) == announced("q")


def test_chunks_are_one_record():
    slot = SlotTokens()
    first, second = split(START, items_max=1)

    assert slot.fold(record(first), offset=5) is None
    assert slot.fold(record(second), offset=6) == START


def test_the_writer_of_the_newest_heartbeat_is_known(slot):
    announced = PartitionAnnounced(ChildPartition("c", ("a",), 1), "a")
    assert slot.fold(record(announced, worker="other"), offset=6) == announced
    assert (slot.worker, slot.version) == ("w", 2)

    watermark = SlotWatermark(3, 7, 1, 4, (), SlowestToken("a", 10), 2)
    assert slot.fold(record(watermark, worker="next", version=1), offset=7) == watermark
    assert (slot.worker, slot.version) == ("next", 1)


class TestTimes:
    """Heartbeats of each minute; times are microseconds."""

    def beat(self, slot, minute, *tokens):
        self.revision += 1
        body = SlotProgress(3, self.revision, minute, 4, (), tokens)
        slot.fold(record(body), offset=self.revision)
        minutes = (slot.heard_us, slot.steady_since_us, slot.empty_since_us)
        return tuple(None if us is None else us // 60_000_000 for us in minutes)

    def setup_method(self):
        self.revision = 0

    def test_without_a_heartbeat_there_is_none(self):
        slot = SlotTokens()
        assert (slot.heard_us, slot.steady_since_us, slot.empty_since_us) == (None, None, None)

    def test_a_minute_without_a_heartbeat_begins_it_again(self):
        slot = SlotTokens()
        assert self.beat(slot, 7, A) == (7, 7, None)
        assert self.beat(slot, 8, A) == (8, 7, None)
        assert self.beat(slot, 8, A) == (8, 7, None)
        assert self.beat(slot, 10, A) == (10, 10, None)

    def test_what_is_stopped_ends_it_until_nothing_is(self):
        slot = SlotTokens()
        self.beat(slot, 7, A, B)
        assert self.beat(slot, 8, replace(A, stopped="refused"), B) == (8, None, None)
        assert self.beat(slot, 9, replace(A, stopped="refused"), B) == (9, None, None)
        assert self.beat(slot, 10, A, B) == (10, 10, None)
        assert self.beat(slot, 11, A, B) == (11, 10, None)

    def test_it_is_empty_since_the_last_one_finished(self):
        slot = SlotTokens()
        self.beat(slot, 7, A)
        assert self.beat(slot, 8) == (8, 7, 8)
        assert self.beat(slot, 9) == (9, 7, 8)
        assert self.beat(slot, 10, A) == (10, 7, None)

    def test_changes_count_like_whole_heartbeats(self, slot):
        slot.fold(record(replace(NEXT, minute=1, removed=(0, 1), open=0)), offset=6)
        assert (slot.heard_us, slot.steady_since_us, slot.empty_since_us) == (
            60_000_000, 0, 60_000_000,
        )  # fmt: skip

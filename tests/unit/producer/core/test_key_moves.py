"""Who waits for whom where keys move between stream partitions."""

from __future__ import annotations

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core.key_moves import MoveIns, SourceWaits
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.position import Position
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.progress import MOVE_OUTS, STARTS, ChildPartition

START_US = 1_000_000
MOVED_US = START_US + 10


def record(at_us, transaction="t"):
    return PublishableRecord(at_us, transaction, "00000000", ())


def beat(at_us):
    return HeartbeatRecord(at_us * 1000)


def moved_in(*sources, at_us=MOVED_US):
    return PartitionEventRecord(at_us * 1000, "1-0", sources)


def moved_out(*destinations, at_us=MOVED_US):
    return PartitionEventRecord(at_us * 1000, "1-1", (), destinations)


@pytest.fixture
def running():
    made = StreamPartition(ChildPartition("token", (), START_US * 1000))
    made.start_query(1)
    return made


def times(partition):
    return [one.commit_timestamp_us for one in partition.pending]


class TestWaiting:
    """What follows a move-in is not read before its sources are published."""

    @pytest.mark.rule("spanner-key-moves")
    @pytest.mark.parametrize(
        "item",
        [
            record(MOVED_US),
            record(MOVED_US + 1),
            beat(MOVED_US + 1),
            PartitionStartRecord(MOVED_US * 1000, "1-2", ("new",)),
            PartitionEndRecord(MOVED_US * 1000, "1-3"),
            moved_in("other", at_us=MOVED_US + 1),
        ],
    )
    def test_what_follows_is_held_and_the_query_given_back(self, running, item):
        assert not running.add_items([record(MOVED_US - 1), moved_in("source")], 1)
        assert running.take_waits() == [("source", MOVED_US)]
        assert running.add_items([item, record(MOVED_US + 5)], 1)

        assert running.state is PartitionState.HELD
        assert times(running) == [MOVED_US - 1]
        assert running.read.watermark_us == MOVED_US - 1
        assert running.publication().finish is None
        assert running.stop_query() == 1
        assert running.state is PartitionState.HELD

    def test_moves_and_heartbeats_of_the_instant_are_not(self, running):
        items = [moved_in("a"), moved_in("b", "a"), moved_out("c"), beat(MOVED_US)]
        assert not running.add_items(items, 1)

        assert running.take_waits() == [("a", MOVED_US), ("b", MOVED_US)]
        assert running.read == Position(MOVED_US - 1, {MOVE_OUTS: "1-1"})

    @pytest.mark.rule("spanner-key-moves")
    def test_it_is_queued_once_the_last_source_is_published(self, running):
        running.add_items([moved_in("a", "b"), record(MOVED_US)], 1)
        assert len(running.take_waits()) == 2
        running.stop_query()
        for source in ("a", "c", "a"):
            running.source_published(source, MOVED_US)
        running.source_published("b", MOVED_US - 1)
        assert running.state is PartitionState.HELD
        running.source_published("b", MOVED_US)
        assert running.state is PartitionState.QUEUED

        # The next query meets the move-in again, and asks nobody.
        assert running.start_query(2) == (MOVED_US - 1) * 1000
        running.add_items([moved_in("a", "b"), record(MOVED_US)], 1)
        assert running.take_waits() == []
        assert times(running) == [MOVED_US]

    def test_sources_that_are_published_in_time_hold_up_nothing(self, running):
        running.add_items([moved_in("a")], 1)
        running.source_published("a", MOVED_US)
        assert not running.add_items([record(MOVED_US)], 1)

        assert running.state is PartitionState.RUNNING

    def test_what_it_has_passed_is_not_waited_for_again(self, running):
        running.add_items([record(MOVED_US + 2)], 1)
        running.add_items([moved_in("a"), moved_in("token", at_us=MOVED_US + 3)], 1)

        assert running.take_waits() == []

    def test_a_later_move_in_is_waited_for_alone(self):
        moves = MoveIns()
        assert moves.add(1, ["a", "b"]) == [("a", 1), ("b", 1)]
        assert not moves.publish("a", 1)
        assert moves.publish("b", 1)
        assert moves.add(2, ["a"]) == [("a", 2)]
        assert moves.waits_for == {"a"}

    def test_a_slot_that_is_released_withdraws_it(self, running):
        running.add_items([moved_in("a"), record(MOVED_US)], 1)
        running.stop_query()
        assert running.stop_query() is None
        assert running.state is PartitionState.SCHEDULED


class TestStarts:
    """Stream partitions that one names while it goes on."""

    @pytest.mark.rule("spanner-partition-start")
    def test_they_are_announced_once_with_the_position_behind_them(self, running):
        starts = [
            PartitionStartRecord(MOVED_US * 1000, f"1-{number}", (f"child-{number}",))
            for number in range(2)
        ]
        running.add_items([starts[0], starts[0], starts[1]], 1)
        publication = running.publication()
        assert publication.started == tuple(
            ChildPartition(f"child-{number}", ("token",), MOVED_US * 1000) for number in range(2)
        )
        assert publication.position == Position(MOVED_US - 1, {STARTS: "1-1"})
        running.confirm(publication)
        running.stop_query()
        running.queue_query()
        running.start_query(2)
        running.add_items(starts, 1)

        assert running.publication().started == ()

    def test_an_aborted_transaction_leaves_them_to_the_next(self, running):
        start = PartitionStartRecord(MOVED_US * 1000, "1-0", ("child",))
        running.add_items([start], 1)
        first = running.publication()
        running.add_items([PartitionStartRecord((MOVED_US + 1) * 1000, "2-0", ("later",))], 1)

        assert [one.token for one in running.publication().started] == ["child", "later"]
        running.confirm(first)
        assert [one.token for one in running.publication().started] == ["later"]
        running.check_invariants()

    def test_those_of_the_initial_query_are_its_children(self):
        root = StreamPartition(ChildPartition("", (), START_US * 1000))
        root.start_query(1)
        for token in ("a", "b"):
            root.add_items([PartitionStartRecord(START_US * 1000, "0", (token,))], 1)
        assert root.end_query(0, had_end=True)
        start_ns = START_US * 1000
        children = (ChildPartition("a", (), start_ns), ChildPartition("b", (), start_ns))
        assert root.publication().finish == (start_ns, children)

    @pytest.mark.rule("spanner-partition-end")
    def test_an_end_proves_itself(self, running):
        end_ns = MOVED_US * 1000
        assert running.add_items([record(MOVED_US - 1), PartitionEndRecord(end_ns, "1-9")], 1)

        assert running.publication().finish == (end_ns, ())
        assert times(running) == [MOVED_US - 1]


class TestIntervals:
    """A query that had an end is followed by the next one."""

    @pytest.mark.rule("spanner-query-interval")
    def test_one_that_brought_something_is_followed_at_once(self, running):
        running.add_items([beat(MOVED_US)], 1)
        assert running.end_query(7, had_end=True)
        assert running.retry_at_us == 7

    def test_one_that_brought_nothing_is_repeated_later(self, running):
        assert not running.end_query(7, had_end=True)
        assert running.retry_at_us > 7

    @pytest.mark.rule("spanner-query-interval")
    def test_one_without_an_end_proves_nothing(self, running):
        running.add_items([beat(MOVED_US)], 1)
        assert not running.end_query(7)


class TestSourceWaits:
    """Each source is asked for once, however many wait for it."""

    def test_each_is_asked_for_once_and_all_go_on(self):
        waits = SourceWaits()
        assert waits.add("x", [("a", 1), ("b", 1)]) == [do.AwaitSources((("a", 1), ("b", 1)))]
        assert waits.add("y", [("a", 1)]) == []
        assert waits.add("x", []) == []
        assert list(waits.publish("a", 1)) == ["x", "y"]
        assert list(waits.publish("a", 1)) == []
        assert waits.add("y", [("a", 1)]) == [do.AwaitSources((("a", 1),))]

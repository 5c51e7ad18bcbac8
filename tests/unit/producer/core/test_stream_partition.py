"""Positions, resume and finish proof of one stream partition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.position import Position
from tidegate.producer.core.stream_partition import (
    RETRY_DELAY_MAX_US,
    StreamPartition,
)
from tidegate.producer.errors import TooManyParkedKeys
from tidegate.producer.messages import FORM_RECORD, ChangeMessage, ParkedChange, PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.checksums import parked_key
from tidegate.schemas.errors import InvariantViolation, ProducerError
from tidegate.schemas.progress import ChildPartition

START_US = 1_000_000


def record(at_us, transaction="t", sequence="00000000"):
    """Return a record without messages: only its place matters here."""
    return PublishableRecord(at_us, transaction, sequence, ())


def partition(parents=(), heard=()):
    """Return a stream partition that starts at START_US."""
    return StreamPartition(ChildPartition("token", parents, START_US * 1000), heard=heard)


class TestBackOff:
    """A query is repeated later each time, until one brings something new."""

    def queries_in_a_minute(self, token, *returned):
        """Count the queries of a minute, each of which returns the same items and fails."""
        running = StreamPartition(ChildPartition(token, (), START_US * 1000))
        now_us = count = 0
        while now_us < 60_000_000:
            count += 1
            running.start_query(count)
            running.add_items(list(returned), 1)
            running.fail_query(now_us)
            now_us = running.retry_at_us
        return count

    @pytest.mark.parametrize("token", ["token", "a", "c", "abcdefgh"])
    @pytest.mark.parametrize(
        "returned",
        [
            [],
            [record(START_US + 10)],
            [HeartbeatRecord((START_US + 10) * 1000)],
            [ChildPartitionsRecord(5_000_000_000, "0", (ChildPartition("x", ("token",), 5),))],
            [PartitionEventRecord((START_US + 10) * 1000, "0", (), ("x",))],
            [PartitionEventRecord((START_US + 10) * 1000, "0", ("x",))],
            [PartitionStartRecord((START_US + 10) * 1000, "0", ("x",))],
        ],
        ids=[
            "nothing",
            "a repeat",
            "an old heartbeat",
            "children",
            "a move-out",
            "a move-in",
            "a start",
        ],
    )
    def test_a_query_that_fails_after_each_repeat_is_not_repeated_often(self, token, returned):
        assert 5 < self.queries_in_a_minute(token, *returned) <= 12

    def test_something_new_starts_it_from_the_beginning(self):
        running = partition()
        for query_id in range(9):
            running.start_query(query_id)
            running.fail_query(0)
        late_us = running.retry_at_us
        running.start_query(10)
        running.add_items([record(START_US + 10)], 1)
        running.fail_query(0)

        assert running.retry_at_us < late_us / 100


class TestLife:
    """States follow from what was heard and read."""

    @pytest.mark.rule("spanner-parents-first")
    def test_it_waits_for_all_parents(self):
        waiting = partition(parents=("p", "q"), heard=("p",))
        assert waiting.state is PartitionState.CREATED
        waiting.announce("q")

        assert waiting.state is PartitionState.SCHEDULED
        assert waiting.start_query(1) == START_US * 1000
        assert waiting.state is PartitionState.RUNNING

    @pytest.mark.rule("spanner-parents-first")
    def test_a_query_before_all_parents_is_a_bug(self):
        with pytest.raises(InvariantViolation):
            partition(parents=("p",)).start_query(1)

    @pytest.mark.rule("spanner-child-start")
    def test_its_first_query_begins_at_the_nanosecond_of_its_start(self):
        child = StreamPartition(ChildPartition("token", ("p",), 1_000_000_001), heard=("p",))

        assert child.start_query(1) == 1_000_000_001

    @pytest.mark.rule("spanner-query-end", "spanner-children-records")
    def test_children_of_several_records_are_one_finish(self):
        running = partition()
        running.start_query(1)
        for token in ("x", "y"):
            child = ChildPartition(token, ("token",), 5_000_000_000)
            running.add_items([ChildPartitionsRecord(5_000_000_000, "0", (child,))], 1)

        assert running.end_query(0)
        assert [c.token for c in running.publication().finish[1]] == ["x", "y"]

    @pytest.mark.rule("spanner-end")
    @pytest.mark.parametrize(
        "past",
        [
            HeartbeatRecord(4_000_001_000),
            ChildPartitionsRecord(4_000_000_001, "0", (ChildPartition("x", ("token",), 1),)),
            record(4_000_001),
        ],
        ids=["heartbeat", "children", "data"],
    )
    def test_what_lies_past_a_bounded_end_proves_it(self, past):
        running = partition()
        running.start_query(1)
        last = record(4_000_000)

        assert running.add_items([last, past], 1, end_ns=4_000_000_000)
        assert running.publication().finish == (4_000_000_000, ())
        assert running.publication().records == (last,)

    @pytest.mark.parametrize(
        "past",
        [
            HeartbeatRecord(4_000_001_000),
            ChildPartitionsRecord(4_000_000_001, "1", (ChildPartition("late", ("token",), 1),)),
            record(4_000_001),
        ],
        ids=["heartbeat", "children", "data"],
    )
    def test_children_within_a_bounded_end_are_kept_whatever_follows_them(self, past):
        running = partition()
        running.start_query(1)
        kept = [ChildPartition(name, ("token",), 4_000_000_000) for name in "xy"]
        first, second = (ChildPartitionsRecord(child.start_ns, "0", (child,)) for child in kept)

        assert not running.add_items([first, past, second], 1, end_ns=4_000_000_000)
        assert running.end_query(0)
        assert running.publication().finish == (4_000_000_000, tuple(kept))
        assert running.publication().records == ()

    @pytest.mark.parametrize(
        "before",
        [
            [],
            [HeartbeatRecord(4_000_000_000)],
            [ChildPartitionsRecord(4_000_000_000, "0", (ChildPartition("x", ("token",), 1),))],
        ],
        ids=["nothing", "heartbeat", "children"],
    )
    def test_nothing_at_or_before_a_bounded_end_proves_it(self, before):
        running = partition()
        running.start_query(1)

        assert not running.add_items(before, 1, end_ns=4_000_000_000)

    @pytest.mark.rule("spanner-end")
    @pytest.mark.parametrize("end_ns", [4_000_000_000, 4_000_000_001, 4_000_000_999])
    @pytest.mark.parametrize("within_ns", [0, 1, 998, 999])
    def test_an_end_between_two_microseconds_closes_none_of_its_instant(self, end_ns, within_ns):
        """A heartbeat of the end's own microsecond lets records of it follow."""
        running = partition()
        running.start_query(1)
        last = record(4_000_000)
        items = [HeartbeatRecord(4_000_000_000 + within_ns), last]

        assert not running.add_items(items, 1, end_ns=end_ns)
        assert running.add_items([record(4_000_001)], 1, end_ns=end_ns)
        assert running.publication().records == (last,)

    @pytest.mark.rule("spanner-query-end", "P6")
    def test_a_query_that_ends_early_and_empty_is_no_proof(self):
        running = partition()
        running.start_query(1)
        running.add_items([], 0, end_ns=1)

        assert not running.end_query(0)

    def test_retries_wait_longer_each_time_and_never_too_long(self):
        failing = partition()
        delays = []
        for attempt in range(30):
            failing.start_query(attempt)
            failing.fail_query(0)
            delays.append(failing.retry_at_us)

        assert delays[:3] == sorted(set(delays[:3]))
        assert max(delays) <= RETRY_DELAY_MAX_US

    def test_a_service_that_asks_for_a_pause_gets_it(self):
        failing = partition()
        failing.start_query(1)
        failing.fail_query(5, asked_us=20_000_000)
        assert 20_000_000 <= failing.retry_at_us - 5 <= 25_000_000  # spread beyond it
        for attempt in range(2, 30):
            failing.start_query(attempt)
            failing.fail_query(5, asked_us=1)
        assert failing.retry_at_us - 5 > 20_000_000  # less than what it waits anyway

    def test_what_comes_after_a_success_is_tried_soon_again(self):
        failing = partition()
        for attempt in range(5):
            failing.start_query(attempt)
            failing.fail_query(0)
        late = failing.retry_at_us
        failing.start_query(9)
        failing.add_items([HeartbeatRecord(2_000_000_000)], 1)
        failing.fail_query(0)

        assert failing.retry_at_us < late


class TestPublishing:
    """Published moves by confirmed publications only."""

    def test_nothing_moves_before_the_confirmation(self):
        running = partition()
        running.start_query(1)
        running.add_items([record(START_US + 5)], 10)
        publication = running.publication()

        assert running.published == Position(START_US - 1)
        running.confirm(publication)
        assert running.published == Position(START_US + 4, {"t": "00000000"})
        assert not running.has_news

    def test_what_was_read_meanwhile_stays_pending(self):
        running = partition()
        running.start_query(1)
        running.add_items([record(START_US + 5)], 10)
        publication = running.publication()
        running.add_items([record(START_US + 6)], 20)
        running.confirm(publication)

        assert [r.commit_timestamp_us for r in running.pending] == [START_US + 6]
        assert running.pending_bytes == 20
        assert running.has_news
        running.check_invariants()

    def test_what_is_left_out_moves_the_position_and_is_counted_once_it_is_committed(self):
        running = partition()
        running.start_query(1)
        left_out = record(START_US + 5)._replace(messages=(), filtered=3)
        running.add_items([left_out, record(START_US + 6)], 10)
        publication = running.publication()
        assert (running.filtered, publication.filtered) == (0, 3)
        assert running.snapshot(publication).filtered == running.move(publication).filtered == 3
        running.add_items([record(START_US + 7)._replace(messages=(), filtered=1)], 10)
        running.confirm(publication)

        assert running.published.watermark_us == START_US + 5
        assert (running.filtered, running.publication().filtered) == (3, 4)
        assert StreamPartition.restore(running.snapshot()).filtered == 3

    def test_a_snapshot_restores_to_the_same(self):
        running = partition(parents=("p",), heard=("p",))
        running.start_query(1)
        running.add_items([record(START_US + 5, "a"), record(START_US + 5, "b", "00000007")], 10)
        running.confirm(running.publication())
        restored = StreamPartition.restore(running.snapshot())

        assert restored.snapshot() == running.snapshot()
        assert restored.published == running.published

    @pytest.mark.rule("spanner-record-order")
    def test_a_record_behind_the_others_is_refused(self):
        running = partition()
        running.start_query(1)
        running.add_items([record(START_US + 9)], 1)

        with pytest.raises(ProducerError, match="behind"):
            running.add_items([record(START_US + 3)], 1)

    @pytest.mark.rule("spanner-record-order")
    def test_a_source_that_breaks_its_order_after_a_resume_is_refused(self):
        """The repetition has ended with the first new record: what lies before that is wrong."""
        running = partition()
        running.start_query(1)
        running.add_items([record(START_US + 5), record(START_US + 9)], 1)
        running.fail_query(0)
        running.start_query(2)
        running.add_items([record(START_US + 9), record(START_US + 20)], 1)

        with pytest.raises(ProducerError, match="behind"):
            running.add_items([record(START_US + 9)], 1)


def places(draw_max=4):
    """Histories: ascending (commit time, transaction, sequence), several at one instant."""
    return st.lists(
        st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 3)),
        unique=True,
        max_size=12,
    ).map(sorted)


@pytest.mark.rule("spanner-once-per-query", "spanner-start-inclusive")
@given(history=places(), data=st.data())
def test_any_break_and_inclusive_repetition_gives_each_record_once(history, data):
    """Read in pieces, lose what is unpublished at each break, repeat the boundary: each once."""
    records = [record(START_US + t, tx, f"{seq:08d}") for t, tx, seq in history]
    published = []
    owner = partition()
    for query_id in range(1, 5):
        start_us = owner.start_query(query_id) // 1000
        offered = [r for r in records if r.commit_timestamp_us >= start_us]
        offered = offered[: data.draw(st.integers(0, len(offered)))]
        owner.add_items(offered, 1)
        if data.draw(st.booleans()):
            publication = owner.publication()
            published += publication.records
            owner.confirm(publication)
            owner = StreamPartition.restore(owner.snapshot())
        elif data.draw(st.booleans()):
            owner = StreamPartition.restore(owner.snapshot())  # crashed: the pending is gone
        else:
            owner.fail_query(0)
    if owner.query_id is None:
        owner.start_query(9)
    start_us = max(START_US, owner.read.watermark_us)
    owner.add_items([r for r in records if r.commit_timestamp_us >= start_us], 1)
    published += owner.publication().records

    assert published == records


class TestParking:
    """What is parked becomes true with the transaction that publishes it."""

    def parked(self, at_us, key=b"k"):
        """Return a record whose only change cannot be published."""
        change = ParkedChange(
            "t", key, b"%08d" % at_us, b"U", b"{}", FORM_RECORD, "SchemaError", "why", "token"
        )
        return PublishableRecord(at_us, "tx", "0", (), (change,))

    def good(self, at_us, key=b"k"):
        """Return a record whose only change can be published."""
        message = ChangeMessage("t", key, b"value", b"%08d" % at_us, b"U", bytes(8))
        return PublishableRecord(at_us, "tx", "0", (message,))

    def reading(self):
        """Return a stream partition whose query runs."""
        one = partition()
        one.start_query(1)
        return one

    def test_later_changes_of_the_key_follow_it_and_others_are_published(self):
        one = self.reading()
        one.add_items([self.parked(START_US + 1)], 1)
        one.add_items([self.good(START_US + 2), self.good(START_US + 3, b"other")], 1)

        first, second, third = one.publication().records
        assert len(first.parked) == len(second.parked) == 1
        assert second.messages == third.parked == ()
        assert third == self.good(START_US + 3, b"other")
        assert one.publication().totals["t"].mods == 1

    def test_a_publication_holds_what_was_parked_at_its_moment(self):
        one = self.reading()
        one.add_items([self.parked(START_US + 1, b"a")], 1)
        publication = one.publication()
        one.add_items([self.parked(START_US + 2, b"b")], 1)

        assert one.snapshot().parked_keys == ()
        assert one.parks_more(publication)
        drafted = one.snapshot(publication)
        assert (drafted.parked_keys, drafted.parked) == ((parked_key("t", b"a"),), 1)
        one.confirm(publication)
        assert one.snapshot() == drafted
        assert one.parked.keys == {parked_key("t", b"a"), parked_key("t", b"b")}
        one.check_invariants()

    def test_an_abort_changes_nothing(self):
        one = self.reading()
        one.add_items([self.parked(START_US + 1)], 1)
        before = one.publication()

        assert one.publication() == before
        assert one.snapshot().parked == 0

    def test_what_is_read_again_after_a_restart_is_parked_again(self):
        one = self.reading()
        one.add_items([self.parked(START_US + 1)], 1)
        one.confirm(one.publication())
        one.add_items([self.good(START_US + 2)], 1)
        again = StreamPartition.restore(one.snapshot())
        again.start_query(1)
        again.add_items([self.good(START_US + 2)], 1)

        assert again.publication().records == one.publication().records
        assert again.publication().records[0].messages == ()
        assert again.snapshot(again.publication()).parked == 2

    def test_a_record_that_would_park_a_key_too_many_is_not_added(self):
        one = self.reading()
        one.add_items([self.parked(START_US + n, b"%d" % n) for n in range(1, 1_001)], 1)

        with pytest.raises(TooManyParkedKeys):
            one.add_items([self.good(START_US + 2_000), self.parked(START_US + 2_001, b"x")], 1)
        assert one.read.watermark_us == START_US + 2_000 - 1
        assert len(one.publication().records) == 1_001

    def test_what_was_put_back_is_published_again(self):
        one = self.reading()
        one.add_items([self.parked(START_US + 1)], 1)
        one.confirm(one.publication())

        assert not one.put_back(frozenset({12}))
        assert one.put_back(frozenset({parked_key("t", b"k")}))
        one.add_items([self.good(START_US + 2)], 1)
        assert one.publication().records == (self.good(START_US + 2),)
        assert one.snapshot().parked == 1

"""Positions, queries, the end and the key moves of one stream partition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.producer.core.conftest import message, parked_change, record
from tidegate.producer.core.file_position import (
    CLOSED,
    FILES_PREFIX,
    PARTS_MAX,
    SOURCE,
    FilePosition,
    parts_of,
    position_of,
)
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.position import Position, lies_past, waits_for_move_ins
from tidegate.producer.core.stream_opening import names_partitions
from tidegate.producer.core.stream_partition import RETRY_DELAY_MAX_US, StreamPartition
from tidegate.producer.errors import TooManyParkedKeys
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import (
    ChildPartitionsRecord,
    FilesClosedRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
)
from tidegate.schemas.checksums import parked_key
from tidegate.schemas.errors import InvariantViolation, ProducerError
from tidegate.schemas.progress import MOVE_OUTS, STARTS, ChildPartition

START_US = 1_000_000
MOVED_US = START_US + 10
END_NS = 4_000_000_000
NEW = Position(START_US - 1)


def partition(parents=(), heard=(), token="token"):
    return StreamPartition(ChildPartition(token, parents, START_US * 1000), heard=heard)


@pytest.fixture
def running():
    """A stream partition that starts at START_US, with a query."""
    made = partition()
    made.start_query(1)
    return made


def beat(at_us):
    return HeartbeatRecord(at_us * 1000)


def names(token, start_ns=END_NS):
    return ChildPartitionsRecord(start_ns, "0", (ChildPartition(token, ("token",), start_ns),))


def start(at_us, sequence, *tokens):
    return PartitionStartRecord(at_us * 1000, sequence, tokens)


def moved_in(*sources, at_us=MOVED_US):
    return PartitionEventRecord(at_us * 1000, "1-0", sources)


def moved_out(*destinations, at_us=MOVED_US):
    return PartitionEventRecord(at_us * 1000, "1-1", (), destinations)


def times(partition):
    return [one.commit_timestamp_us for one in partition.pending]


class TestPosition:
    @pytest.mark.rule("spanner-heartbeat-meaning", "spanner-equal-timestamps")
    def test_a_record_leaves_its_instant_open(self):
        position = Position(0).with_record(record(10, "a"))
        assert position == Position(9, {"a": "00000000"})
        covered = record(10, "a"), record(10, "b"), record(10, "a", "00000001"), record(11, "a")
        assert [position.covers(one) for one in covered] == [True, False, False, False]
        # A heartbeat at the boundary's instant proves nothing new.
        assert position.with_heartbeat(10) is position
        assert position.with_heartbeat(11) == Position(10)
        assert position.with_record(record(11, "b")) == Position(10, {"b": "00000000"})

    @pytest.mark.rule("spanner-record-sequence")
    @pytest.mark.parametrize(
        ("lower", "higher"),
        [
            ("9", "00000010"),
            ("00000009", "10"),
            ("99999999", "100000000"),
            ("f-00000001", "10-00000000"),
            ("963d1af435fb3e79-9", "963d1af435fb3e79-0000000a"),
        ],
    )
    def test_sequences_of_any_width_are_compared_as_numbers(self, lower, higher):
        assert Position(9, {"a": higher}).covers(record(10, "a", lower))
        assert not Position(9, {"a": lower}).covers(record(10, "a", higher))

    @pytest.mark.parametrize(
        ("sources", "destinations", "boundary"),
        [((), ("y",), {MOVE_OUTS: "a-1"}), (("x",), ("y",), {MOVE_OUTS: "a-1"}), (("x",), (), {})],
    )
    def test_a_move_out_is_held_and_a_move_in_met_again(self, sources, destinations, boundary):
        move = PartitionEventRecord(10_000, "a-1", sources, destinations)
        assert Position(0).with_move(move) == Position(9, boundary)

    def test_a_move_out_that_is_read_again_changes_nothing(self):
        first, second = (PartitionEventRecord(10_000, f"a-{n}", (), ("y",)) for n in range(2))
        position = Position(0).with_move(first).with_move(second)
        assert position.with_move(first) is position
        assert position.with_move(second) is position


def of_file(file, number, turn=1):
    return PublishableRecord(7, file, f"{number}/{turn}", ())


class TestFilePosition:
    def test_the_token_says_which_rules_hold(self):
        assert type(position_of(f"{FILES_PREFIX}object/1/a", 5)) is FilePosition
        assert type(position_of("P", 5, [("t", "0")])) is Position
        assert position_of("P", 5, [("t", "0")]) == Position(5, {"t": "0"})

    def test_records_of_a_file_are_covered_up_to_the_last_one(self):
        position = FilePosition(5).with_record(of_file("a", 9)).with_record(of_file("b", 1, 2))
        assert position.boundary == {"a": "9/1", "b": "1/2"}
        covered = [position.covers(of_file(*one)) for one in (("a", 9), ("a", 10), ("c", 1))]
        assert covered == [True, False, False]

    def test_a_file_that_was_read_in_parts_has_a_turn_for_each(self):
        position = FilePosition(5, {"a": "9/1"})
        for number, turn in ((10, 1), (11, 3), (12, 3), (13, 5)):
            position = position.with_record(of_file("a", number, turn))
        assert position.boundary == {"a": "10/1,12/3,13/5"}
        assert parts_of(position.boundary["a"]) == [(10, 1), (12, 3), (13, 5)]
        assert position.covers(of_file("a", 13, 7))
        assert not position.covers(of_file("a", 14, 5))

    def test_the_first_parts_of_too_many_are_joined(self):
        position = FilePosition(5)
        for turn in range(1, PARTS_MAX + 3):
            position = position.with_record(of_file("a", 10 * turn, turn))
        expected = [(10 * turn, turn) for turn in range(3, PARTS_MAX + 3)]
        assert parts_of(position.boundary["a"]) == expected

    def test_a_heartbeat_moves_the_watermark_and_forgets_no_file(self):
        position = FilePosition(5).with_record(of_file("a", 9))
        assert position.with_heartbeat(100) == FilePosition(99, {"a": "9/1"})
        assert position.with_heartbeat(4) is position

    def test_closed_files_leave_it_and_the_source_outlives_them(self):
        position = FilePosition(5, {"a": "9/1", "b": "1/2"})
        closed = position.with_closed(FilesClosedRecord(70, ("a", "x")))
        assert closed == FilePosition(5, {"b": "1/2", CLOSED: "70"})
        assert closed.resumption == closed.boundary
        known = closed.with_closed(FilesClosedRecord(70, (), "mysql/log"))
        assert known == FilePosition(5, {"b": "1/2", CLOSED: "70", SOURCE: "mysql/log"})
        empty = known.with_closed(FilesClosedRecord(80, ("b",)))
        assert empty == FilePosition(5, {CLOSED: "80", SOURCE: "mysql/log"})

    def test_no_other_position_has_files(self):
        with pytest.raises(InvariantViolation, match="reads none"):
            Position(5).with_closed(FilesClosedRecord(70, ()))
        assert Position(5, {"t": "0"}).resumption == {}

    def test_a_stream_partition_is_named_once(self):
        position = FilePosition(5)
        assert not position.covers_start(start(0, "0", "t"))
        assert position.with_start(start(0, "0", "t")).covers_start(start(0, "0", "t"))


def items(at_us):
    return [
        record(at_us), beat(at_us), names("x", at_us * 1000), start(at_us, "0", "t"),
        PartitionEndRecord(at_us * 1000, "0"), PartitionEventRecord(at_us * 1000, "0", ()),
    ]  # fmt: skip


@pytest.mark.parametrize("rest_ns", [0, 999])
def test_the_end_is_inclusive_for_each_kind_of_item(rest_ns):
    for within_us in (999, 1_000):
        assert not any(lies_past(item, 1_000_000 + rest_ns) for item in items(within_us))
    assert all(lies_past(item, 1_000_000 + rest_ns) for item in items(1_001))


def test_only_moves_and_heartbeats_of_the_instant_wait_for_no_move_in():
    waiting = [waits_for_move_ins(item, 1_000) for item in items(1_000)]
    assert waiting == [True, False, True, True, True, False]
    assert all(waits_for_move_ins(item, 1_000) for item in items(1_001))


def test_only_names_of_stream_partitions_count_for_the_initial_query():
    _, beat_of_it, children, begun, end, _ = items(5)
    assert all(map(names_partitions, (children, begun)))
    others = (beat_of_it, end, record(5)._replace(filtered=1), FilesClosedRecord(0, ()))
    assert not any(map(names_partitions, others))


class TestBackOff:
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
            [], [record(MOVED_US)], [beat(MOVED_US)], [names("x")], [moved_out("x")],
            [moved_in("x")], [start(MOVED_US, "0", "x")],
        ],
    )  # fmt: skip
    def test_a_query_that_fails_after_each_repeat_is_not_repeated_often(self, token, returned):
        assert 5 < self.queries_in_a_minute(token, *returned) <= 12

    def test_retries_wait_longer_each_time_and_never_too_long(self):
        failing, delays = partition(), []
        for attempt in range(30):
            failing.start_query(attempt)
            failing.fail_query(0)
            delays.append(failing.retry_at_us)
        assert delays[:3] == sorted(set(delays[:3]))
        assert max(delays) <= RETRY_DELAY_MAX_US

    def test_a_service_that_asks_for_a_pause_gets_it(self, running):
        running.fail_query(5, asked_us=20_000_000)
        assert 20_000_000 <= running.retry_at_us - 5 <= 25_000_000, "spread beyond it"
        for attempt in range(2, 30):
            running.start_query(attempt)
            running.fail_query(5, asked_us=1)
        assert running.retry_at_us - 5 > 20_000_000, "less than what it waits anyway"


class TestLife:
    @pytest.mark.rule("spanner-parents-first")
    def test_it_waits_for_all_parents(self):
        waiting = partition(parents=("p", "q"), heard=("p",))
        assert waiting.state is PartitionState.CREATED
        with pytest.raises(InvariantViolation):
            waiting.start_query(1)
        waiting.announce("q")
        assert waiting.state is PartitionState.SCHEDULED
        assert waiting.start_query(1) == START_US * 1000
        assert waiting.state is PartitionState.RUNNING

    @pytest.mark.rule("spanner-child-start")
    def test_its_first_query_begins_at_the_nanosecond_of_its_start(self):
        child = StreamPartition(ChildPartition("token", ("p",), 1_000_000_001), heard=("p",))
        assert child.start_query(1) == 1_000_000_001

    @pytest.mark.rule("spanner-query-end", "spanner-children-records")
    def test_children_of_several_records_are_one_finish(self, running):
        for token in "xy":
            running.add_items([names(token)], 1)
        assert running.end_query(0)
        assert [c.token for c in running.publication().finish[1]] == ["x", "y"]

    PAST = pytest.mark.parametrize(
        "past",
        [beat(4_000_001), names("late", END_NS + 1), record(4_000_001)],
        ids=["heartbeat", "children", "data"],
    )

    @pytest.mark.rule("spanner-end")
    @PAST
    def test_what_lies_past_a_bounded_end_proves_it(self, running, past):
        last = record(4_000_000)
        assert running.add_items([last, past], 1, end_ns=END_NS)
        assert running.publication().finish == (END_NS, ())
        assert running.publication().records == (last,)

    @PAST
    def test_children_within_a_bounded_end_are_kept_whatever_follows_them(self, running, past):
        kept = tuple(ChildPartition(name, ("token",), END_NS) for name in "xy")
        assert not running.add_items([names("x"), past, names("y")], 1, end_ns=END_NS)
        assert running.end_query(0)
        assert running.publication().finish == (END_NS, kept)
        assert running.publication().records == ()

    @pytest.mark.rule("spanner-end")
    @pytest.mark.parametrize("end_ns", [END_NS, END_NS + 1, END_NS + 999])
    @pytest.mark.parametrize("within_ns", [0, 1, 998, 999])
    def test_an_end_between_two_microseconds_closes_none_of_its_instant(
        self, running, end_ns, within_ns
    ):
        """A heartbeat of the end's own microsecond lets records of it follow."""
        last = record(4_000_000)
        beat_within = HeartbeatRecord(END_NS + within_ns)
        assert not running.add_items([beat_within, last], 1, end_ns=end_ns)
        assert running.add_items([record(4_000_001)], 1, end_ns=end_ns)
        assert running.publication().records == (last,)

    @pytest.mark.rule("spanner-query-end", "P6")
    def test_a_query_that_ends_early_and_empty_is_no_proof(self, running):
        running.add_items([], 0, end_ns=1)
        assert not running.end_query(0)


class TestPublishing:
    def test_what_was_read_meanwhile_stays_pending(self, running):
        running.add_items([record(START_US + 5)], 10)
        publication = running.publication()
        assert running.published == NEW
        running.add_items([record(START_US + 6)], 20)
        running.confirm(publication)
        assert running.published == Position(START_US + 4, {"t": "00000000"})
        assert (times(running), running.pending_bytes) == ([START_US + 6], 20)
        assert running.has_news
        running.check_invariants()
        running.confirm(running.publication())
        assert not running.has_news

    def test_what_is_left_out_moves_the_position_and_is_counted_once_it_is_committed(self, running):
        left_out = record(START_US + 5)._replace(filtered=3)
        running.add_items([left_out, record(START_US + 6)], 10)
        publication = running.publication()
        assert (running.filtered, publication.filtered) == (0, 3)
        assert running.snapshot(publication).filtered == running.move(publication).filtered == 3
        running.add_items([record(START_US + 7)._replace(filtered=1)], 10)
        running.confirm(publication)
        assert running.published.watermark_us == START_US + 5
        assert (running.filtered, running.publication().filtered) == (3, 4)
        assert StreamPartition.restore(running.snapshot()).filtered == 3

    @pytest.mark.rule("spanner-record-order")
    def test_a_source_that_breaks_its_order_after_a_resume_is_refused(self, running):
        """The repetition has ended with the first new record: what lies before that is wrong."""
        running.add_items([record(START_US + 5), record(START_US + 9)], 1)
        with pytest.raises(ProducerError, match="behind"):
            running.add_items([record(START_US + 3)], 1)
        running.fail_query(0)
        running.start_query(2)
        running.add_items([record(START_US + 9), record(START_US + 20)], 1)
        with pytest.raises(ProducerError, match="behind"):
            running.add_items([record(START_US + 9)], 1)


# Ascending (commit time, transaction, sequence), several at one instant.
PLACES = st.lists(
    st.tuples(st.integers(0, 5), st.sampled_from("abc"), st.integers(0, 3)),
    unique=True, max_size=12,
).map(sorted)  # fmt: skip


@pytest.mark.rule("spanner-once-per-query", "spanner-start-inclusive")
@given(history=PLACES, data=st.data())
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


def parked(at_us, key=b"k"):
    return PublishableRecord(at_us, "tx", "0", (), (parked_change(b"%08d" % at_us, key),))


def good(at_us, key=b"k"):
    return PublishableRecord(at_us, "tx", "0", (message(b"%08d" % at_us, key),))


class TestParking:
    def test_a_publication_holds_what_was_parked_at_its_moment(self, running):
        running.add_items([parked(START_US + 1, b"a")], 1)
        publication = running.publication()
        assert running.publication() == publication, "an abort changes nothing"
        running.add_items([parked(START_US + 2, b"b")], 1)
        assert (running.snapshot().parked_keys, running.snapshot().parked) == ((), 0)
        assert running.parks_more(publication)
        drafted = running.snapshot(publication)
        assert (drafted.parked_keys, drafted.parked) == ((parked_key("t", b"a"),), 1)
        running.confirm(publication)
        assert running.snapshot() == drafted
        assert running.parked.keys == {parked_key("t", b"a"), parked_key("t", b"b")}
        running.check_invariants()

    def test_a_record_that_would_park_a_key_too_many_is_not_added(self, running):
        running.add_items([parked(START_US + n, b"%d" % n) for n in range(1, 1_001)], 1)
        with pytest.raises(TooManyParkedKeys):
            running.add_items([good(START_US + 2_000), parked(START_US + 2_001, b"x")], 1)
        assert running.read.watermark_us == START_US + 2_000 - 1
        assert len(running.publication().records) == 1_001


class TestWaiting:
    @pytest.mark.rule("spanner-key-moves")
    @pytest.mark.parametrize(
        "item",
        [
            record(MOVED_US), record(MOVED_US + 1), beat(MOVED_US + 1),
            start(MOVED_US, "1-2", "new"), PartitionEndRecord(MOVED_US * 1000, "1-3"),
            moved_in("other", at_us=MOVED_US + 1),
        ],
    )  # fmt: skip
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
        assert running.stop_query() is None, "a slot that is released withdraws it"
        assert running.state is PartitionState.SCHEDULED

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

    def test_what_it_has_passed_is_not_waited_for_again(self, running):
        running.add_items([record(MOVED_US + 2)], 1)
        running.add_items([moved_in("a"), moved_in("token", at_us=MOVED_US + 3)], 1)
        assert running.take_waits() == []


class TestStarts:
    @pytest.mark.rule("spanner-partition-start")
    def test_they_are_announced_once_with_the_position_behind_them(self, running):
        starts = [start(MOVED_US, f"1-{number}", f"child-{number}") for number in range(2)]
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

    def test_those_of_the_initial_query_are_its_children(self):
        root, start_ns = partition(token=""), START_US * 1000
        root.start_query(1)
        for token in "ab":
            root.add_items([start(START_US, "0", token)], 1)
        assert root.end_query(0, had_end=True)
        children = tuple(ChildPartition(token, (), start_ns) for token in "ab")
        assert root.publication().finish == (start_ns, children)

    @pytest.mark.rule("spanner-partition-end")
    def test_an_end_proves_itself(self, running):
        end_ns = MOVED_US * 1000
        assert running.add_items([record(MOVED_US - 1), PartitionEndRecord(end_ns, "1-9")], 1)
        assert running.publication().finish == (end_ns, ())
        assert times(running) == [MOVED_US - 1]


class TestIntervals:
    @pytest.mark.rule("spanner-query-interval")
    @pytest.mark.parametrize("had_end", [False, True])
    @pytest.mark.parametrize("items", [[], [beat(MOVED_US)]], ids=["nothing", "something"])
    def test_one_that_brought_something_is_followed_at_once(self, running, items, had_end):
        """One without an end proves nothing."""
        running.add_items(items, 1)
        assert running.end_query(7, had_end=had_end) == (bool(items) and had_end)
        assert (running.retry_at_us == 7) == (bool(items) and had_end)

"""Queries: how one starts and stops, what follows from what it returns, and the index of them."""

import gc
import weakref
from collections import Counter

import pytest

from tests.unit.producer.core.conftest import SLOTS, START_US, record
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.queries import (
    Consequence,
    Queries,
    QueryLimits,
    StallWatch,
    consequence_of,
    stall_after_us,
)
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    PositionExpired,
    QueryInterrupted,
    QueryRefused,
    SourceFileError,
    SourceOrderBroken,
    TokenRefused,
    TooManyParkedKeys,
)
from tidegate.producer.spanner.forms import WINDOW_US
from tidegate.schemas.errors import (
    ConfigError,
    InvariantViolation,
    ProducerError,
    SchemaError,
    UnreachableError,
)
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN, slot_of


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def queries(counters):
    return Queries(counters)


@pytest.fixture
def partition():
    return StreamPartition(ChildPartition("token", (), START_US * 1000))


def test_each_query_has_a_number_of_its_own(queries, partition):
    assert queries.stop(partition) == [], "there is none"
    first = queries.start(partition)
    assert queries.stop(partition) == [do.StopQuery("token", first.query_id)]
    second = queries.start(partition)
    assert first.start_ns == second.start_ns == START_US * 1000
    assert first.query_id != second.query_id


@pytest.mark.rule("spanner-query-interval", "spanner-end")
@pytest.mark.parametrize("window_us", [None, WINDOW_US])
def test_a_query_has_an_end_only_where_keys_move(counters, partition, window_us):
    started = Queries(counters, limits=QueryLimits(window_us=window_us)).start(partition)
    assert WINDOW_US == 20 * 60 * 1_000_000
    assert started.end_ns == (None if window_us is None else (START_US + WINDOW_US) * 1000)


def test_a_query_that_may_work_later_is_repeated_and_counted(queries, partition, counters):
    queries.start(partition)
    assert queries.fail(partition, QueryInterrupted("gone", pause_us=40_000_000), 0) == []
    assert partition.retry_at_us >= 40_000_000
    assert counters.counts["query_retry"] == 1
    assert partition.state is PartitionState.SCHEDULED


@pytest.mark.rule("spanner-record-order")
def test_a_record_behind_what_was_read_stops_the_query(queries, partition):
    query_id = queries.start(partition).query_id
    event = on.RecordsRead("token", query_id, [record(START_US + at) for at in (20, 10)], 10)
    stop, report = queries.add_records(partition, event, end_ns=None, now_us=0)
    assert stop == do.StopQuery("token", query_id)
    assert report.watermark_us == START_US + 19


def test_the_error_of_a_stopped_stream_partition_holds_no_records(queries, partition):
    class Held(list):
        """A list that can be watched."""

    items = Held(record(START_US + at) for at in (20, 10))
    watched = weakref.ref(items)
    query_id = queries.start(partition).query_id
    queries.add_records(
        partition, on.RecordsRead("token", query_id, items, 10), end_ns=None, now_us=0
    )
    del items
    gc.collect()
    assert isinstance(partition.stopped_by, SourceOrderBroken)
    assert watched() is None


RETRY, STOP_WORKER = Consequence.RETRY, Consequence.STOP_WORKER


@pytest.mark.parametrize(
    ("errors", "of_a_token", "of_the_initial_query"),
    [
        ([QueryInterrupted, UnreachableError], RETRY, RETRY),
        (
            [
                TokenRefused, PositionExpired, SourceOrderBroken, SchemaError, IncompatibleChange,
                MessageTooLarge, TooManyParkedKeys, SourceFileError,
            ],
            Consequence.STOP_STREAM_PARTITION, STOP_WORKER,
        ),
        (
            [QueryRefused, ConfigError, InvariantViolation, ProducerError],
            STOP_WORKER, STOP_WORKER,
        ),
    ],
    ids=["may pass", "of one stream partition", "of everything"],
)  # fmt: skip
def test_what_follows_from_an_error(errors, of_a_token, of_the_initial_query):
    for kind in errors:
        assert consequence_of(kind("m"), token="a") is of_a_token
        assert consequence_of(kind("m"), token=ROOT_TOKEN) is of_the_initial_query


def test_a_refusal_counts_for_a_while_from_the_last_time(counters):
    queries = Queries(counters, limits=QueryLimits(refusal_pause_us=100))
    partitions = {
        name: StreamPartition(ChildPartition(name, (), 1_000)) for name in ("t0", "a", "b")
    }
    for number in range(1_000):
        queries._note_refusal(f"t{number}", number)
    assert len(queries._refused_us) == 100
    queries._note_refusal("a", 1_000)
    queries._note_refusal("b", 1_010)
    queries._note_refusal("a", 1_050)
    queries.delay(partitions.values())
    assert [partition.retry_at_us for partition in partitions.values()] == [0, 1_150, 1_110]


def test_a_source_is_asked_for_once_and_all_that_wait_for_it_go_on(queries):
    found = []
    assert queries._await_sources("x", [("a", 1), ("b", 1)]) == [
        do.AwaitSources((("a", 1), ("b", 1)))
    ]
    assert queries._await_sources("y", [("a", 1)]) == []
    assert queries._await_sources("x", []) == []
    queries.publish_sources([("a", 1)], found.append)
    assert found == ["x", "y"]
    queries.publish_sources([("a", 1)], found.append)
    assert found == ["x", "y"]
    assert queries._await_sources("y", [("a", 1)]) == [do.AwaitSources((("a", 1),))]


def test_repeats_that_are_read_during_a_transaction_are_released_with_it(opened):
    opened.later()
    opened.answers_commits = False
    opened.returns("a", opened.change(START_US + 10))
    opened.later()
    assert opened.worker.transaction is not None
    former = opened.queries["a"].query_id
    opened.fails("a", QueryInterrupted("gone"))
    opened.later()
    late = on.RecordsRead("a", former, [opened.change(START_US + 10)], 77)
    assert opened.give(late) == [do.ReleaseBudget((("a", 77),))], "a former query's go at once"
    opened.returns("a", opened.change(START_US + 10))
    before = opened.released()
    opened.give(on.TransactionCommitted())
    assert opened.released() - before == 200


class TestStalled:
    def silence(self, bench, seconds=10):
        """Let time pass as a loop does that hears nothing."""
        for _ in range(seconds):
            bench.later()

    @pytest.mark.rule("spanner-heartbeat-silence", "spanner-deadline")
    def test_ten_heartbeats_without_an_item(self, bench):
        bench.open_stream("a", "b")
        bench.later()
        silent = bench.queries["a"].query_id
        for _ in range(11):
            bench.returns("b", bench.heartbeat(bench.now_us))
            bench.later()
        assert do.StopQuery("a", silent) in bench.effects
        assert bench.queries["a"].query_id != silent
        assert bench.worker.counters.counts["stalled"] == 1

    def test_a_reader_that_waits_for_the_worker_is_not_silent(self, opened):
        query = opened.queries["a"]
        opened.give(on.QueryPaused("a", query.query_id))
        self.silence(opened, 60)
        for _ in range(10):
            opened.give(on.QueryResumed("a", query.query_id))
            self.silence(opened, 9)
            assert opened.queries["a"] is query
        self.silence(opened, 3)
        assert opened.queries["a"] is not query


SECOND_US = 1_000_000


def ticked(watch, *seconds):
    for second in seconds:
        watch.tick(second * SECOND_US)


@pytest.mark.rule("spanner-heartbeat-silence")
def test_a_query_is_silent_from_when_it_was_heard():
    watch = StallWatch(10 * SECOND_US)
    a, b, gone = (StreamPartition(ChildPartition(name, (), 1_000)) for name in ("a", "b", "gone"))
    ticked(watch, 0)
    for number, one in enumerate((a, b, gone)):
        watch.hear(number, one)
    watch.forget(2)
    watch.forget(7)
    ticked(watch, *range(1, 10))
    watch.hear(0, a)
    ticked(watch, 10)
    assert watch.stalled() == [b]
    ticked(watch, *range(11, 20))
    assert watch.stalled() == [b, a]


def test_a_worker_that_stood_still_has_heard_nothing_from_anybody():
    watch = StallWatch(10 * SECOND_US)
    ticked(watch, 0)
    watch.hear(1, StreamPartition(ChildPartition("a", (), 1_000)))
    ticked(watch, 3_600)
    assert watch.stalled() == []


@pytest.mark.rule("spanner-heartbeat-silence")
@pytest.mark.parametrize(
    ("heartbeat_ms", "seconds"), [(1_000, 10), (300_000, 3_000), (100, 5), (500, 5)]
)
def test_ten_heartbeats_and_never_less_than_a_busy_host_needs(heartbeat_ms, seconds):
    assert stall_after_us(heartbeat_ms) == seconds * SECOND_US


class TestStopped:
    ERROR = PositionExpired("gone", code="OUT_OF_RANGE", lost_from="x", lost_until="y")

    @pytest.mark.rule("spanner-expired-position")
    def test_the_others_advance(self, bench):
        bench.open_stream("a", "b")
        bench.returns("a", bench.heartbeat(START_US + 10))
        effects = bench.fails("a", self.ERROR)
        bench.returns("b", bench.heartbeat(START_US + 500))
        bench.later(3_600_000_000)
        assert do.ReportStopped("a", self.ERROR, START_US + 9) in effects
        assert not bench.stopped
        assert bench.worker.stopped == {"a": self.ERROR}
        assert bench.worker.watermark_us == START_US + 9
        assert "a" not in bench.queries
        marks = {t.token: t.watermark_us for t in bench.last_snapshot("b").tokens}
        assert marks["b"] == START_US + 499

    def test_one_worker_does_not_try_again_with_every_rebalance(self, opened):
        opened.fails("a", self.ERROR)
        opened.give(on.SlotsLost(tuple(range(SLOTS))))
        opened.own(*range(SLOTS))
        opened.later()
        assert "a" not in opened.queries
        opened.later(60_000_000)
        assert "a" in opened.queries


TOKENS = tuple(f"p{number}" for number in range(300))
READ = "p7"


class CountedTokens(dict):
    """The stream partitions of a slot; counts those that somebody looks at."""

    looked_at: Counter[str]

    def __iter__(self):
        for token in super().__iter__():
            self.looked_at[token] += 1
            yield token

    def items(self):
        for token in self:
            yield token, self[token]

    def values(self):
        for token in self:
            yield self[token]


class TestWork:
    @pytest.fixture
    def looked_at(self, bench):
        """Count the stream partitions that the worker looks at, in a worker with many."""
        bench.open_stream(*TOKENS)
        bench.later(61_000_000)
        bench.later()
        bench.runner._observe = lambda _event, _worker: None  # which looks at all, to compare
        found = Counter()
        for slot in bench.worker.slots.values():
            slot.tokens = CountedTokens(slot.tokens)
            slot.tokens.looked_at = found
        bench.worker._cycle._due_us = bench.now_us + 10**12
        return found

    def test_of_records_ticks_failures_and_what_metrics_show(self, bench, looked_at):
        bench.returns(READ, bench.change(bench.now_us))
        bench.give(on.Ticked())
        bench.fails(READ, QueryInterrupted("away"))
        bench.now_us += 10_000_000
        bench.give(on.Ticked(has_read_inbox=False))
        assert READ in bench.queries
        assert bench.worker.watermark_us == START_US - 1
        assert bench.worker.states[PartitionState.RUNNING] == len(TOKENS)
        assert not bench.worker.stopped
        assert looked_at.total() == 0

    def test_of_the_beginning_of_a_transaction(self, bench, looked_at, monkeypatch):
        bench.returns(READ, bench.change(bench.now_us))
        publication, taken = StreamPartition.publication, []
        monkeypatch.setattr(
            StreamPartition,
            "publication",
            lambda self: taken.append(self.child.token) or publication(self),
        )
        bench.worker.handle(on.Ticked(has_read_inbox=False), now=bench.at(bench.now_us + 10**12))
        assert taken == [READ]
        assert looked_at.total() == 0


@pytest.mark.parametrize(
    ("attribute", "value"),
    [("state", PartitionState.CREATED), ("pending_bytes", 5), ("retry_at_us", 5)],
)
def test_a_change_that_the_index_has_not_seen_breaks_the_invariants(opened, attribute, value):
    setattr(opened.worker.slots[slot_of("a", SLOTS)].tokens["a"], attribute, value)
    with pytest.raises(InvariantViolation, match="index differs"):
        opened.worker._index.check_invariants(opened.worker.slots.values())


def test_each_announcement_is_reported_with_the_keys_that_the_parent_had_parked():
    """The first parent creates the child and the last one starts it; another does neither."""
    changed, parents = {}, ("p1", "p2", "p3")
    child = StreamPartition(ChildPartition("child", parents, START_US * 1_000))
    child.report_changes(changed)
    for number, parent in enumerate(parents):
        changed.clear()
        child.announce(parent, (number, number + 10))
        assert changed == {"child": child}
        assert len(child.published_parked.keys) == 2 * (number + 1)

"""Queries: how one starts and stops, and what follows from what its reader delivered."""

from __future__ import annotations

import pytest

from tests.unit.producer.core.conftest import SLOTS
from tests.unit.producer.core.conftest import START_US as BEGIN_US
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.queries import Queries, QueryLimits
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import PositionExpired, QueryInterrupted, QueryRefused, TokenRefused
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.records import HeartbeatRecord
from tidegate.producer.spanner.forms import WINDOW_US
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

START_US = 1_000_000


def record(at_us, transaction="t"):
    """Return a record without messages: only its place matters here."""
    return PublishableRecord(at_us, transaction, "00000000", ())


@pytest.fixture
def counters():
    return Counters()


@pytest.fixture
def queries(counters):
    return Queries(counters)


@pytest.fixture
def partition():
    return StreamPartition(ChildPartition("token", (), START_US * 1000))


def read(queries, partition, *items, size=10, end_ns=None):
    event = on.RecordsRead("token", partition.query_id, list(items), size)
    return queries.add_records(partition, event, end_ns=end_ns, now_us=0)


def test_each_query_has_a_number_of_its_own(queries, partition):
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


def test_without_a_query_there_is_nothing_to_stop(queries, partition):
    assert queries.stop(partition) == []


def test_what_proves_the_end_stops_the_query(queries, partition):
    query_id = queries.start(partition).query_id
    past = HeartbeatRecord(START_US * 1000 + 5_000)

    assert do.StopQuery("token", query_id) in read(queries, partition, past, end_ns=START_US * 1000)


def test_the_bytes_of_repeats_are_released(queries, partition):
    queries.start(partition)
    read(queries, partition, record(START_US + 10))
    partition.confirm(partition.publication())
    queries.fail(partition, QueryInterrupted("gone"), 0)
    queries.start(partition)

    assert read(queries, partition, record(START_US + 10), size=7) == [
        do.ReleaseBudget((("token", 7),))
    ]


def test_an_end_without_children_is_counted(queries, partition, counters):
    queries.start(partition)
    queries.end(partition, 0)

    assert counters.counts["unproven_finish"] == 1
    assert partition.state is PartitionState.SCHEDULED


def test_a_query_that_may_work_later_is_repeated_and_counted(queries, partition, counters):
    queries.start(partition)

    assert queries.fail(partition, QueryInterrupted("gone", pause_us=40_000_000), 0) == []
    assert partition.retry_at_us >= 40_000_000
    assert counters.counts["query_retry"] == 1
    assert partition.state is PartitionState.SCHEDULED


def test_an_error_of_the_token_is_reported_and_everything_read_before_it_counts(queries, partition):
    queries.start(partition)
    read(queries, partition, record(START_US + 10))
    error = TokenRefused("no")

    reported = do.ReportStopped("token", error, START_US + 9)
    assert queries.fail(partition, error, 0) == [reported]
    assert partition.state is PartitionState.STOPPED
    assert partition.has_news


def test_an_error_of_everything_stops_the_worker(queries, partition):
    queries.start(partition)
    error = QueryRefused("no")

    assert queries.fail(partition, error, 0) == [do.Stop(error)]


@pytest.mark.rule("spanner-record-order")
def test_a_record_behind_what_was_read_stops_the_query(queries, partition):
    query_id = queries.start(partition).query_id
    stop, report = read(queries, partition, record(START_US + 20), record(START_US + 10))

    assert stop == do.StopQuery("token", query_id)
    assert report.watermark_us == START_US + 19


class TestBytes:
    """Everything that was counted for a query is released once."""

    def released(self, effects):
        return sum(size for e in effects if isinstance(e, do.ReleaseBudget) for _, size in e.sizes)

    def test_repeats_that_are_read_during_a_transaction_are_released_with_it(self, bench):
        bench.open_stream("a")
        bench.later()
        bench.answers_commits = False
        bench.returns("a", bench.change(BEGIN_US + 10))
        bench.later()
        assert bench.worker.transaction is not None
        failed = bench.queries.pop("a")
        bench.give(on.QueryFailed("a", failed.query_id, QueryInterrupted("gone")))
        bench.later(1_000_000)
        bench.returns("a", bench.change(BEGIN_US + 10))

        assert self.released(bench.give(on.TransactionCommitted())) == 200


class TestStalled:
    """A query that has become silent is repeated, on a connection that looks alive."""

    def silence(self, bench, seconds=10):
        """Let time pass as a loop does that hears nothing."""
        return [effect for _ in range(seconds) for effect in bench.later(1_000_000)]

    @pytest.mark.rule("spanner-heartbeat-silence", "spanner-deadline")
    def test_ten_heartbeats_without_an_item(self, bench):
        bench.open_stream("a", "b")
        bench.later()
        silent = bench.queries["a"].query_id
        for _ in range(10):
            bench.returns("b", bench.heartbeat(bench.now_us))
            bench.later(1_000_000)
        bench.later(1_000_000)

        assert do.StopQuery("a", silent) in bench.effects
        assert bench.queries["a"].query_id != silent
        assert bench.worker.counters.counts["stalled"] == 1

    def test_a_reader_that_waits_for_the_worker_is_not_silent(self, bench):
        bench.open_stream("a")
        query = bench.queries["a"]
        bench.give(on.QueryPaused("a", query.query_id))
        self.silence(bench, 60)
        assert bench.queries["a"] is query

        bench.give(on.QueryResumed("a", query.query_id))
        self.silence(bench, 9)
        assert bench.queries["a"] is query
        self.silence(bench, 3)
        assert bench.queries["a"] is not query

    def test_a_query_that_receives_a_message_in_parts_is_not_silent(self, bench):
        bench.open_stream("a")
        query = bench.queries["a"]
        for _ in range(30):
            bench.give(on.QueryResumed("a", query.query_id))
            self.silence(bench, 5)
        assert bench.queries["a"] is query

    def test_a_query_that_is_silent_each_time_is_repeated_later_each_time(self, bench):
        bench.open_stream("a")
        numbers = set()
        for _ in range(120):
            self.silence(bench, 1)
            numbers |= {query.query_id for query in bench.queries.values()}

        assert 5 < len(numbers) < 12

    def test_no_query_counts_as_silent_while_the_inbox_is_not_read(self, bench):
        bench.open_stream("a")
        query = bench.queries["a"]
        for _ in range(60):
            bench.now_us += 1_000_000
            bench.give(on.Ticked(has_read_inbox=False))

        assert bench.queries["a"] is query

    def test_the_initial_query_too(self, bench):
        bench.own(*range(SLOTS))
        first = bench.queries[ROOT_TOKEN]
        self.silence(bench, 13)

        assert bench.queries[ROOT_TOKEN] is not first


class TestStopped:
    """An error of one stream partition stops that one; its watermark holds."""

    def refuse(self, bench, token):
        error = PositionExpired("gone", code="OUT_OF_RANGE", lost_from="x", lost_until="y")
        effects = bench.give(on.QueryFailed(token, bench.queries.pop(token).query_id, error))
        return error, effects

    @pytest.mark.rule("spanner-expired-position")
    def test_the_others_advance(self, bench):
        bench.open_stream("a", "b")
        bench.returns("a", bench.heartbeat(BEGIN_US + 10))
        error, effects = self.refuse(bench, "a")
        bench.returns("b", bench.heartbeat(BEGIN_US + 500))
        bench.later(3_600_000_000)

        assert do.ReportStopped("a", error, BEGIN_US + 9) in effects
        assert not bench.stopped
        assert bench.worker.stopped == {"a": error}
        assert bench.worker.watermark_us == BEGIN_US + 9
        assert "a" not in bench.queries
        marks = {t.token: t.watermark_us for t in bench.last_snapshot("b").tokens}
        assert marks["b"] == BEGIN_US + 499

    def test_the_next_owner_tries_again(self, bench, make_bench):
        bench.open_stream("a")
        self.refuse(bench, "a")
        bench.later()
        heir = make_bench(name="w2")
        heir.own(*range(SLOTS))

        assert "a" in heir.queries
        assert not heir.worker.stopped

    def test_one_worker_does_not_try_again_with_every_rebalance(self, bench):
        bench.open_stream("a")
        self.refuse(bench, "a")
        bench.give(on.SlotsLost(tuple(range(SLOTS))))
        bench.own(*range(SLOTS))
        bench.later(1_000_000)
        assert "a" not in bench.queries

        bench.later(60_000_000)
        assert "a" in bench.queries

    def test_a_refused_initial_query_stops_the_worker(self, bench):
        bench.own(*range(SLOTS))
        query = bench.queries[ROOT_TOKEN].query_id
        bench.give(on.QueryFailed(ROOT_TOKEN, query, PositionExpired("x", code="OUT_OF_RANGE")))

        assert isinstance(bench.stopped[0].error, PositionExpired)

    def test_a_slot_with_a_stopped_stream_partition_is_released(self, bench):
        bench.open_stream("a")
        bench.returns("a", bench.heartbeat(BEGIN_US + 10))
        self.refuse(bench, "a")
        bench.give(on.SlotsRevoked(tuple(range(SLOTS))))

        assert not bench.worker.slots
        assert bench.last_snapshot("a").tokens[0].watermark_us == BEGIN_US + 9

"""The change stream queries of a worker: started, stopped, and what their readers delivered.

Each running query has a number of its own.  What a query that is no longer running still delivers
is ignored, and its bytes are released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.key_moves import SourceWaits
from tidegate.producer.core.lifecycle import PartitionChange
from tidegate.producer.core.partition_index import PartitionIndex
from tidegate.producer.core.query_failure import Consequence, consequence_of
from tidegate.producer.core.query_scheduler import SchedulerLimits
from tidegate.producer.core.refusals import Refusals
from tidegate.producer.core.stall_watch import StallWatch
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.core.waiting_report import WaitingReport
from tidegate.producer.errors import QueryError
from tidegate.schemas.errors import InvariantViolation, TidegateError
from tidegate.schemas.instants import NS_PER_US


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """When queries are repeated, and how many run."""

    refusal_pause_us: int = 60_000_000
    """A worker does not try a stopped stream partition again before this."""
    stall_after_us: int = 10_000_000
    """A query that is silent for so long is repeated."""
    window_us: int | None = None
    """How long the interval of one query is; None: queries have no end."""
    scheduler: SchedulerLimits = field(default_factory=SchedulerLimits)


class Queries:
    """Starts and stops the queries of stream partitions, and passes on what they returned."""

    def __init__(self, counters: Counters, *, limits: QueryLimits | None = None) -> None:
        """Start without a query."""
        self._counters = counters
        limits = limits or QueryLimits()
        self._refusals = Refusals(limits.refusal_pause_us)
        self._stalls = StallWatch(limits.stall_after_us)
        self._waiting = WaitingReport()
        self._source_waits = SourceWaits()
        self._window_us = limits.window_us
        self._last_id = 0

    def schedule(
        self, index: PartitionIndex, find: Callable[[str], StreamPartition | None], now_us: int
    ) -> list[do.Effect]:
        """Queue the queries that are due, and start or stop what the scheduler decides.

        `find` returns a stream partition of the index; None while its slot is not OWNED.
        """
        for token in index.take_due(now_us):
            due = find(token)
            if due is not None:
                due.queue_query()
        effects: list[do.Effect] = []
        while (decision := index.decide(now_us)) is not None:
            partition = find(decision.token)
            if partition is None:
                raise InvariantViolation(
                    "a query was scheduled in a slot that is not OWNED", token=decision.token
                )
            effects += self._carry_out(partition, decision.change)
        return effects + self.report(index, now_us)

    def report(self, index: PartitionIndex, now_us: int) -> list[do.Effect]:
        """Return the report of how many stream partitions are not read, if one is due."""
        report = self._waiting.report(index.states, now_us)
        return [] if report is None else [report]

    def _carry_out(self, partition: StreamPartition, change: PartitionChange) -> list[do.Effect]:
        if change is PartitionChange.QUERY_STARTED:
            return [self.start(partition)]
        self._counters.counts["turn_ended"] += change is PartitionChange.TURN_ENDED
        self._counters.counts["paused"] += change is PartitionChange.PAUSED
        query_id = partition.set_aside(change)
        if query_id is None:
            return []
        self._stalls.forget(query_id)
        return [do.StopQuery(partition.child.token, query_id)]

    def start(self, partition: StreamPartition) -> do.StartQuery:
        """Start the query of a stream partition that is SCHEDULED or QUEUED."""
        self._last_id += 1
        start_ns = partition.start_query(self._last_id)
        self._stalls.hear(self._last_id, partition)
        window_us = self._window_us
        end_ns = None if window_us is None else start_ns + window_us * NS_PER_US
        token, resumption = partition.child.token, partition.read.resumption
        return do.StartQuery(token, self._last_id, start_ns, end_ns, resumption)

    def stop(self, partition: StreamPartition) -> list[do.Effect]:
        """Stop the query of a stream partition, if one runs; let it wait for none."""
        query_id = partition.stop_query()
        if query_id is None:
            return []
        self._stalls.forget(query_id)
        return [do.StopQuery(partition.child.token, query_id)]

    def pause(self, event: on.QueryPaused) -> None:
        """Expect nothing of a query whose reader waits until bytes are released."""
        self._stalls.forget(event.query_id)

    def resume(self, partition: StreamPartition, event: on.QueryResumed) -> None:
        """Expect something again of a query whose reader waited, or received a part."""
        self._stalls.hear(event.query_id, partition)

    def repeat_stalled(self, now_us: int) -> list[do.Effect]:
        """Stop the queries that have become silent; they are repeated as after a failure."""
        effects: list[do.Effect] = []
        self._stalls.tick(now_us)
        for partition in self._stalls.stalled():
            query_id = partition.query_id
            if query_id is not None:
                self._stalls.forget(query_id)
                self._counters.notice("stalled", partition.child.token)
                effects.append(do.StopQuery(partition.child.token, query_id))
                partition.fail_query(now_us)
        return effects

    def delay(self, partitions: Iterable[StreamPartition]) -> None:
        """Let stream partitions of a slot that was taken over wait if they were stopped lately."""
        for partition in partitions:
            partition.delay_query(self._refusals.query_not_before_us(partition.child.token))

    def add_records(
        self, partition: StreamPartition, event: on.RecordsRead, *, end_ns: int | None, now_us: int
    ) -> list[do.Effect]:
        """Add what a running query returned; `end_ns` is the end of a bounded stream."""
        effects: list[do.Effect] = []
        self._stalls.hear(event.query_id, partition)
        try:
            if partition.add_items(event.items, event.size_bytes, end_ns=end_ns):
                effects += self.stop(partition)
            effects += self._source_waits.add(event.token, partition.take_waits())
        except TidegateError as error:
            effects.append(do.StopQuery(event.token, event.query_id))
            effects += self.fail(partition, error, now_us)
        if partition.pending_bytes and not partition.has_news:
            # Repeats only: no commit would release their bytes, and readers would wait forever.
            effects.append(do.ReleaseBudget(((event.token, partition.drop_bytes()),)))
        return effects

    def end(self, partition: StreamPartition, now_us: int) -> None:
        """End a running query that the service ended with OK."""
        self._forget(partition)
        if not partition.end_query(now_us, had_end=self._window_us is not None):
            self._counters.notice("unproven_finish", partition.child.token)

    def publish_sources(
        self, published: Iterable[tuple[str, int]], find: Callable[[str], StreamPartition | None]
    ) -> None:
        """Let those go on that wait for nothing but sources that have published now.

        `find` returns a stream partition; None if the worker does not own it any more.
        """
        for source, at_us in published:
            for token in self._source_waits.publish(source, at_us):
                partition = find(token)
                if partition is not None:
                    partition.source_published(source, at_us)

    def fail(
        self, partition: StreamPartition, error: TidegateError, now_us: int
    ) -> list[do.Effect]:
        """End a running query that failed, as the error's class demands."""
        self._forget(partition)
        token = partition.child.token
        match consequence_of(error, token=token):
            case Consequence.RETRY:
                self._counters.counts["query_retry"] += 1
                asked_us = error.pause_us if isinstance(error, QueryError) else 0
                partition.fail_query(now_us, asked_us=asked_us)
                return []
            case Consequence.STOP_STREAM_PARTITION:
                self._counters.counts["stopped"] += 1
                self._refusals.add(token, now_us)
                partition.refuse_query(error)
                return [do.ReportStopped(token, error, partition.read.watermark_us)]
            case Consequence.STOP_WORKER:
                return [do.Stop(error)]

    def _forget(self, partition: StreamPartition) -> None:
        if partition.query_id is not None:
            self._stalls.forget(partition.query_id)

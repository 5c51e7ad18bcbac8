"""The change stream queries of a worker: their starts, their ends, and their output.

Each running query has its own number.  Output of a query that is no longer running is ignored, and
its bytes are released.

A stopped stream partition is tried again by the next owner of its slot, or by this worker when it
takes over the slot again.  Without a pause, a fleet that rebalances often would repeat a refused
query, or read up to the same undecodable record, with every rebalance.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.counters import Counters
from tidegate.producer.core.lifecycle import PartitionChange, PartitionState
from tidegate.producer.core.partition_index import PartitionIndex, SchedulerLimits
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.producer.errors import (
    IncompatibleChange,
    MessageTooLarge,
    PositionExpired,
    QueryError,
    SourceFileError,
    SourceOrderBroken,
    TokenRefused,
    TooManyParkedKeys,
    TopicRefused,
    without_frames,
)
from tidegate.schemas.errors import InvariantViolation, SchemaError, TidegateError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.topics import ROOT_TOKEN

_HEARTBEATS_MISSED = 10
_SILENCE_MIN_US = 5_000_000
"""The least silence that counts as a stall: a pause of the service, or a busy host, is shorter."""
_TICK_MAX_US = 1_000_000
_REPORT_EVERY_US = 60_000_000
"""Stream partitions may wait for hours, or begin and end to wait many times a second."""

_ERRORS_OF_ONE_STREAM_PARTITION = (
    TokenRefused,
    PositionExpired,
    SourceOrderBroken,
    # Caused by one record.  Stream partitions whose records have the same fault stop as well.
    SchemaError,
    IncompatibleChange,
    MessageTooLarge,
    TopicRefused,
    TooManyParkedKeys,
    SourceFileError,
)


class Consequence(Enum):
    """The consequence of an error of one query."""

    RETRY = "the query is repeated, later each time"
    STOP_STREAM_PARTITION = "the stream partition stops; the others go on"
    STOP_WORKER = "the worker stops"


def consequence_of(error: TidegateError, *, token: str) -> Consequence:
    """Return the consequence of an error of a token's query, or of its output.

    Only this function decides it, by the error's class (docs/decisions/errors.md).  An error of one
    stream partition must not hold up the others; an error that affects all work of a worker must
    not look like an error of a stream partition.  Every error of the initial query that is not
    retriable stops the worker: without its children there is nothing to read.
    """
    if error.retriable:
        return Consequence.RETRY
    if token != ROOT_TOKEN and isinstance(error, _ERRORS_OF_ONE_STREAM_PARTITION):
        return Consequence.STOP_STREAM_PARTITION
    return Consequence.STOP_WORKER


def stall_after_us(heartbeat_ms: int) -> int:
    """Return the silence after which a query with this heartbeat interval has stalled."""
    return max(_HEARTBEATS_MISSED * heartbeat_ms * 1_000, _SILENCE_MIN_US)


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """How often queries are repeated, and how many run."""

    refusal_pause_us: int = 60_000_000
    """The pause before a worker tries a stopped stream partition again."""
    stall_after_us: int = 10_000_000
    """The silence after which a query is repeated."""
    window_us: int | None = None
    """The length of one query's interval; None: queries have no end."""
    scheduler: SchedulerLimits = field(default_factory=SchedulerLimits)


class StallWatch:
    """The silence of each running query; `limit_us` is the longest allowed silence.

    A stream partition without changes sends a heartbeat at each interval, so a query that returns
    nothing for many intervals has stalled, although its connection may look alive.  Bytes of an
    incomplete message end the silence: on a slow link a large message takes longer than many
    heartbeats.

    Only time in which the worker was awake counts.  A worker that was suspended, or that waited for
    a broker, has received nothing from any query in that time; it must not repeat them all.
    """

    def __init__(self, limit_us: int) -> None:
        self._limit_us = limit_us
        self._ticked_us: int | None = None
        self._awake_us = 0
        # Not a dict: access to its first entry costs as much as was removed before it.
        self._heard: OrderedDict[int, tuple[StreamPartition, int]] = OrderedDict()
        """By query; the query with the longest silence comes first."""

    def hear(self, query_id: int, partition: StreamPartition) -> None:
        """Record that a query started or continued, or that its output was handled."""
        self._heard.pop(query_id, None)
        self._heard[query_id] = partition, self._awake_us

    def forget(self, query_id: int) -> None:
        """Stop watching a query: it ended, or it waits for this worker."""
        self._heard.pop(query_id, None)

    def tick(self, now_us: int) -> None:
        """Advance the time; all earlier output of readers has been handled."""
        if self._ticked_us is not None:
            self._awake_us += min(now_us - self._ticked_us, _TICK_MAX_US)
        self._ticked_us = now_us

    def stalled(self) -> list[StreamPartition]:
        """Return the stream partitions whose queries have been silent for too long."""
        silent = []
        for partition, heard_us in self._heard.values():
            if self._awake_us - heard_us < self._limit_us:
                break
            silent.append(partition)
        return silent


class Queries:
    """Starts and stops the queries of stream partitions, and adds their output to them."""

    def __init__(self, counters: Counters, *, limits: QueryLimits | None = None) -> None:
        self._counters = counters
        limits = limits or QueryLimits()
        self._stalls = StallWatch(limits.stall_after_us)
        self._window_us = limits.window_us
        self._last_id = 0
        self._refusal_pause_us = limits.refusal_pause_us
        self._refused_us: dict[str, int] = {}
        """The times at which tokens were stopped within the last pause, the oldest first."""
        self._waiting_for: dict[tuple[str, int], set[str]] = {}
        """(source, time) -> the tokens that wait until the source has published up to a move."""
        self._report_due_us: int | None = None
        self._is_waiting_reported = False

    # ------------------------------------------------------------ starting and stopping

    def schedule(
        self, index: PartitionIndex, find: Callable[[str], StreamPartition | None], now_us: int
    ) -> list[do.Effect]:
        """Queue the queries that are due, and carry out the scheduler's decisions.

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
        return effects + self.report(index.states, now_us)

    def _carry_out(self, partition: StreamPartition, change: PartitionChange) -> list[do.Effect]:
        if change is PartitionChange.QUERY_STARTED:
            return [self.start(partition)]
        self._counters.counts["turn_ended"] += change is PartitionChange.TURN_ENDED
        self._counters.counts["paused"] += change is PartitionChange.PAUSED
        return self._stopped(partition, partition.set_aside(change))

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
        """Stop the query of a stream partition, if one runs; it waits for no other query."""
        return self._stopped(partition, partition.stop_query())

    def _stopped(self, partition: StreamPartition, query_id: int | None) -> list[do.Effect]:
        if query_id is None:
            return []
        self._stalls.forget(query_id)
        return [do.StopQuery(partition.child.token, query_id)]

    def delay(self, partitions: Iterable[StreamPartition]) -> None:
        """Delay stream partitions of a slot that was taken over, if they were stopped recently."""
        for partition in partitions:
            refused_us = self._refused_us.get(partition.child.token)
            partition.delay_query(0 if refused_us is None else refused_us + self._refusal_pause_us)

    def report(self, states: Mapping[PartitionState, int], now_us: int) -> list[do.Effect]:
        """Report how many stream partitions wait for a query: at most once a minute.

        The last report of a series says that all of them are read again.
        """
        queued = states.get(PartitionState.QUEUED, 0)
        paused = states.get(PartitionState.PAUSED, 0)
        held = states.get(PartitionState.HELD, 0)
        is_waiting = queued + paused + held > 0
        if not is_waiting and not self._is_waiting_reported:
            return []
        if self._report_due_us is not None and now_us < self._report_due_us:
            return []
        self._is_waiting_reported = is_waiting
        self._report_due_us = now_us + _REPORT_EVERY_US
        return [do.ReportWaiting(queued, paused, states.get(PartitionState.RUNNING, 0), held)]

    # ------------------------------------------------------------ output of readers

    def pause(self, event: on.QueryPaused) -> None:
        """Expect no output of a query whose reader waits until bytes are released."""
        self._stalls.forget(event.query_id)

    def resume(self, partition: StreamPartition, event: on.QueryResumed) -> None:
        """Expect output again from a query whose reader waited, or received a part."""
        self._stalls.hear(event.query_id, partition)

    def repeat_stalled(self, now_us: int) -> list[do.Effect]:
        """Stop the queries that have stalled; they are repeated as after a failure."""
        effects: list[do.Effect] = []
        self._stalls.tick(now_us)
        for partition in self._stalls.stalled():
            query_id = partition.query_id
            if query_id is not None:
                effects += self._stopped(partition, query_id)
                self._counters.notice("stalled", partition.child.token)
                partition.fail_query(now_us)
        return effects

    def add_records(
        self, partition: StreamPartition, event: on.RecordsRead, *, end_ns: int | None, now_us: int
    ) -> list[do.Effect]:
        """Add the output of a running query; `end_ns` is the end of a bounded stream."""
        effects: list[do.Effect] = []
        self._stalls.hear(event.query_id, partition)
        try:
            if partition.add_items(event.items, event.size_bytes, end_ns=end_ns):
                effects += self.stop(partition)
            effects += self._await_sources(event.token, partition.take_waits())
        except TidegateError as error:
            effects.append(do.StopQuery(event.token, event.query_id))
            effects += self.fail(partition, without_frames(error), now_us)
        if partition.pending_bytes and not partition.has_news:
            # Only repeats: no commit would release their bytes, and readers would wait forever.
            effects.append(do.ReleaseBudget(((event.token, partition.drop_bytes()),)))
        return effects

    def end(self, partition: StreamPartition, now_us: int) -> None:
        """End a running query that the service ended with OK."""
        self._forget(partition)
        if not partition.end_query(now_us, had_end=self._window_us is not None):
            self._counters.notice("unproven_finish", partition.child.token)

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
                self._note_refusal(token, now_us)
                partition.refuse_query(error)
                return [do.ReportStopped(token, error, partition.read.watermark_us)]
            case Consequence.STOP_WORKER:
                return [do.Stop(error)]

    def _note_refusal(self, token: str, now_us: int) -> None:
        refused_us = self._refused_us
        refused_us.pop(token, None)
        refused_us[token] = now_us
        while now_us - refused_us[oldest := next(iter(refused_us))] >= self._refusal_pause_us:
            del refused_us[oldest]

    def _forget(self, partition: StreamPartition) -> None:
        if partition.query_id is not None:
            self._stalls.forget(partition.query_id)

    # ------------------------------------------------------------ keys that move

    def _await_sources(self, token: str, waits: Iterable[tuple[str, int]]) -> list[do.Effect]:
        """Let a stream partition wait for sources; ask about those that no other one awaits."""
        new = []
        for wait in waits:
            if wait not in self._waiting_for:
                new.append(wait)
            self._waiting_for.setdefault(wait, set()).add(token)
        return [do.AwaitSources(tuple(new))] if new else []

    def publish_sources(
        self, published: Iterable[tuple[str, int]], find: Callable[[str], StreamPartition | None]
    ) -> None:
        """Continue the stream partitions whose last awaited source has published.

        `find` returns a stream partition; None if the worker no longer owns it.
        """
        for source, at_us in published:
            for token in sorted(self._waiting_for.pop((source, at_us), ())):
                partition = find(token)
                if partition is not None:
                    partition.source_published(source, at_us)

"""A change stream in memory, to which a test appends records; implements `ports.ChangeStream`."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.threads import SystemThreads
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.records import ChildPartitionsRecord, DataChangeRecord, HeartbeatRecord
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.producer.driver.clock import Clock
    from tidegate.producer.driver.threads import Threads
    from tidegate.producer.records import StreamRecord

__all__ = ["MemoryChangeStream", "MemoryResponse"]

_NS_PER_US = 1_000
_MS_PER_S = 1_000


@dataclass(slots=True)
class _StreamPartition:
    start_ns: int
    parents: tuple[str, ...] = ()
    records: list[DataChangeRecord] = field(default_factory=list)
    promised_ns: int = 0
    """A heartbeat said that nothing before this follows."""
    end_ns: int | None = None
    children: tuple[ChildPartition, ...] = ()


class MemoryChangeStream:
    """A change stream that starts with the given stream partitions, at `start_ns`.

    Any thread may append and query.  A query that finds nothing waits; after each heartbeat
    interval it returns a heartbeat with the clock's wall time.
    """

    def __init__(
        self,
        *tokens: str,
        start_ns: int,
        clock: Clock | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._changed = (threads or SystemThreads()).condition()
        self._partitions = {token: _StreamPartition(start_ns) for token in tokens}

    def append(self, token: str, record: DataChangeRecord) -> None:
        """Commit a record in a stream partition.

        Raises ValueError if the stream partition has ended, or for a commit timestamp before one
        that a query has returned already.
        """
        with self._changed:
            partition = self._partitions[token]
            last_ns = partition.records[-1].commit_timestamp_ns if partition.records else 0
            earliest_ns = max(partition.start_ns, partition.promised_ns, last_ns)
            if partition.end_ns is not None or record.commit_timestamp_ns < earliest_ns:
                message = f"{token} takes no record of {record.commit_timestamp_ns} any more"
                raise ValueError(message)
            partition.records.append(record)
            self._changed.notify_all()

    def replace(self, *parents: str, children: tuple[str, ...], at_ns: int) -> None:
        """End stream partitions and start others in their place: a split, a merge or a move.

        Raises ValueError if a parent has ended, or has returned something later than `at_ns`.
        """
        with self._changed:
            ended = [self._partitions[token] for token in parents]
            for parent in ended:
                times = [record.commit_timestamp_ns + 1 for record in parent.records]
                if parent.end_ns is not None or at_ns < max([parent.promised_ns, *times]):
                    message = f"the stream partitions {parents} cannot end at {at_ns}"
                    raise ValueError(message)
            named = tuple(ChildPartition(token, parents, at_ns) for token in children)
            for parent in ended:
                parent.end_ns, parent.children = at_ns, named
            for token in children:
                self._partitions[token] = _StreamPartition(at_ns, parents)
            self._changed.notify_all()

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> _MemoryQuery:
        """Prepare a query; see `ports.ChangeStream`."""
        return _MemoryQuery(self, token, start_ns, end_ns, heartbeat_ms / _MS_PER_S)

    # ------------------------------------------------------------ for queries

    def active_at(self, at_ns: int) -> tuple[ChildPartition, ...]:
        """Return the stream partitions that the initial query names."""
        with self._changed:
            return tuple(
                ChildPartition(token, (), at_ns)
                for token, one in self._partitions.items()
                if one.start_ns <= at_ns and (one.end_ns is None or one.end_ns > at_ns)
            )

    def wait(self, query: _MemoryQuery, *, served: int) -> tuple[list[StreamRecord], bool]:
        """Return (what follows the first `served` records, whether that was the end); may wait."""
        partition = self._partitions[query.token]

        def has_news() -> bool:
            is_longer = len(partition.records) > served
            return query.is_cancelled or is_longer or partition.end_ns is not None

        with self._changed:
            self._changed.wait_for(has_news, query.heartbeat_s)
            if query.is_cancelled:
                raise QueryInterrupted("the query was cancelled", code="CANCELLED")
            if len(partition.records) > served:
                return list(partition.records[served:]), False
            if partition.end_ns is not None:
                children = ChildPartitionsRecord(partition.end_ns, "00000000", partition.children)
                return [children], True
            partition.promised_ns = max(partition.promised_ns, self._clock.wall_us() * _NS_PER_US)
            return [HeartbeatRecord(partition.promised_ns)], False

    def first_at(self, token: str, start_ns: int) -> int:
        """Return how many records of a stream partition come before `start_ns`."""
        with self._changed:
            records = self._partitions[token].records
            return bisect_left(records, start_ns, key=lambda record: record.commit_timestamp_ns)

    def wake(self) -> None:
        """Make every query look at its cancellation."""
        with self._changed:
            self._changed.notify_all()


class MemoryResponse:
    """Some records as one response; implements `ports.Response`."""

    def __init__(self, records: list[StreamRecord], *, size_bytes: int | None = None) -> None:
        """Weigh as much as the records' text, unless a size is given."""
        self.records = records
        self.size_bytes = len(repr(records)) if size_bytes is None else size_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        """Return the records; none is left unfinished."""
        return self.records, 0


class _MemoryQuery:
    """One query; implements `ports.RunningQuery`."""

    def __init__(
        self,
        stream: MemoryChangeStream,
        token: str,
        start_ns: int,
        end_ns: int | None,
        heartbeat_s: float,
    ) -> None:
        self.token = token
        self.heartbeat_s = heartbeat_s
        self.is_cancelled = False
        self._stream = stream
        self._start_ns = start_ns
        self._end_ns = end_ns

    def __iter__(self) -> Iterator[MemoryResponse]:
        """Yield responses until the stream partition ends or one lies past the query's end."""
        if self.token == ROOT_TOKEN:
            children = self._stream.active_at(self._start_ns)
            yield MemoryResponse([ChildPartitionsRecord(self._start_ns, "00000000", children)])
            return
        served, is_over = self._stream.first_at(self.token, self._start_ns), False
        while not is_over:
            records, is_over = self._stream.wait(self, served=served)
            served += sum(isinstance(record, DataChangeRecord) for record in records)
            wanted = [record for record in records if not self._lies_past(record)]
            is_over = is_over or len(wanted) < len(records)
            if wanted:
                yield MemoryResponse(wanted)

    def cancel(self) -> None:
        """End the query."""
        self.is_cancelled = True
        self._stream.wake()

    def _lies_past(self, record: StreamRecord) -> bool:
        if self._end_ns is None:
            return False
        match record:
            case DataChangeRecord():
                return record.commit_timestamp_ns > self._end_ns
            case HeartbeatRecord():
                return record.timestamp_ns > self._end_ns
            case ChildPartitionsRecord():
                return record.start_ns > self._end_ns

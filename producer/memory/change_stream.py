"""A change stream in memory, to which a test appends records; implements `ports.ChangeStream`."""

from __future__ import annotations

import threading
from bisect import bisect_left
from dataclasses import dataclass, field

from tidegate.producer.driver.runtime import SystemClock
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.ports import Clock, Tasks
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    FilesClosedRecord,
    HeartbeatRecord,
    PartitionEndRecord,
    PartitionEventRecord,
    PartitionStartRecord,
    StreamRecord,
)
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

_NS_PER_US = 1_000
_MS_PER_S = 1_000


@dataclass(slots=True)
class _StreamPartition:
    start_ns: int
    parents: tuple[str, ...] = ()
    records: list[DataChangeRecord] = field(default_factory=list)
    promised_ns: int = 0
    """The time of a heartbeat: later records have this time or a later one."""
    end_ns: int | None = None
    children: tuple[ChildPartition, ...] = ()


class MemoryChangeStream:
    """A change stream that starts with the given stream partitions, at `start_ns`.

    Any thread may append and query; `tasks` read the queries.  A query without new records waits;
    after each heartbeat interval it returns a heartbeat with the clock's wall time.
    """

    def __init__(
        self, *tokens: str, start_ns: int, tasks: Tasks, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._changed = tasks.signal()
        self._partitions = {token: _StreamPartition(start_ns) for token in tokens}

    def append(self, token: str, record: DataChangeRecord) -> None:
        """Commit a record in a stream partition.

        Raises ValueError if the stream partition has ended, or for a commit timestamp before one
        that a query has already returned.
        """
        with self._lock:
            partition = self._partitions[token]
            last_ns = partition.records[-1].commit_timestamp_ns if partition.records else 0
            earliest_ns = max(partition.start_ns, partition.promised_ns, last_ns)
            if partition.end_ns is not None or record.commit_timestamp_ns < earliest_ns:
                raise ValueError(
                    f"{token} takes no record of {record.commit_timestamp_ns} any more"
                )
            partition.records.append(record)
        self._changed.notify()

    def replace(self, *parents: str, children: tuple[str, ...], at_ns: int) -> None:
        """End stream partitions and start others in their place: a split, a merge or a move.

        Raises ValueError if a parent has ended, has a record of `at_ns` or later, or has returned a
        heartbeat later than `at_ns`.
        """
        with self._lock:
            ended = [self._partitions[token] for token in parents]
            for parent in ended:
                times = [record.commit_timestamp_ns + 1 for record in parent.records]
                if parent.end_ns is not None or at_ns < max([parent.promised_ns, *times]):
                    raise ValueError(f"the stream partitions {parents} cannot end at {at_ns}")
            named = tuple(ChildPartition(token, parents, at_ns) for token in children)
            for parent in ended:
                parent.end_ns, parent.children = at_ns, named
            for token in children:
                self._partitions[token] = _StreamPartition(at_ns, parents)
        self._changed.notify()

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> _MemoryQuery:
        """Prepare a query; see `ports.ChangeStream`."""
        return _MemoryQuery(self, token, start_ns, end_ns, heartbeat_ms / _MS_PER_S)

    # ------------------------------------------------------------ for queries

    def active_at(self, at_ns: int) -> tuple[ChildPartition, ...]:
        """Return the stream partitions that the initial query names."""
        with self._lock:
            return tuple(
                ChildPartition(token, (), at_ns)
                for token, partition in self._partitions.items()
                if partition.start_ns <= at_ns
                and (partition.end_ns is None or partition.end_ns > at_ns)
            )

    async def wait(self, query: _MemoryQuery, *, served: int) -> tuple[list[StreamRecord], bool]:
        """Return (records after the first `served` ones, whether the end was reached); may wait."""
        partition = self._partitions[query.token]

        def has_news() -> bool:
            is_longer = len(partition.records) > served
            return query.is_cancelled or is_longer or partition.end_ns is not None

        await self._changed.wait_for(has_news, query.heartbeat_s)
        with self._lock:
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
        """Return the number of records of a stream partition before `start_ns`."""
        with self._lock:
            records = self._partitions[token].records
            return bisect_left(records, start_ns, key=lambda record: record.commit_timestamp_ns)

    def wake(self) -> None:
        """Make every query check its cancellation."""
        self._changed.notify()


class MemoryResponse:
    """Records as one response; implements `ports.Response`."""

    def __init__(self, records: list[StreamRecord], *, size_bytes: int | None = None) -> None:
        """Set the size: the length of the records' text, unless it is given."""
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
        self._served: int | None = None
        """Records that were returned, or are earlier than the query; None before it began."""
        self._is_over = False
        self._next: MemoryResponse | None = None

    async def next_size(self) -> int | None:
        """Return a response's size; None at the end of the stream partition or of the query."""
        self._next = await self._following()
        return None if self._next is None else self._next.size_bytes

    async def receive(self) -> MemoryResponse:
        """Return the response whose size was returned."""
        assert self._next is not None, "`next_size` comes first"  # noqa: S101 - see the port
        return self._next

    async def _following(self) -> MemoryResponse | None:
        if self.token == ROOT_TOKEN:
            return self._receive_active()
        if self._served is None:
            self._served = self._stream.first_at(self.token, self._start_ns)
        while not self._is_over:
            records, self._is_over = await self._stream.wait(self, served=self._served)
            self._served += sum(isinstance(record, DataChangeRecord) for record in records)
            served = [record for record in records if not self._lies_past(record)]
            self._is_over = self._is_over or len(served) < len(records)
            if served:
                return MemoryResponse(served)
        return None

    def _receive_active(self) -> MemoryResponse | None:
        if self._is_over:
            return None
        self._is_over = True
        children = self._stream.active_at(self._start_ns)
        return MemoryResponse([ChildPartitionsRecord(self._start_ns, "00000000", children)])

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
            case ChildPartitionsRecord() | PartitionStartRecord():
                return record.start_ns > self._end_ns
            case PartitionEndRecord():
                return record.end_ns > self._end_ns
            case PartitionEventRecord():
                return record.commit_timestamp_ns > self._end_ns
            case FilesClosedRecord():
                return False

"""A change stream beside which tables are read in chunks: `ports.ChangeStream` around another.

A run begins where a stream partition of the change stream announces it, at the commit time that the
request names: the announcement stands among the stream partition's records as one of Spanner's own
would, so it is made once, whatever is repeated.  `table_run` says what follows.

Rows go to a topic beside the data topic (`schemas.topics.beside`): in the data topic an older row
could come after a newer change of its key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

import structlog

from tidegate.producer.backfill.long_read import LongRead
from tidegate.producer.backfill.read_partition import Key, is_of_backfill
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import RunPlace, chunk_token, place_of, wait_token
from tidegate.producer.errors import ConditionRefused, QueryRefused
from tidegate.producer.ports import ChangeStream, Response, RunningQuery
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
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

_log = structlog.get_logger()

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_RECORD_BYTES = 64
"""What a response without rows counts for."""
_LOOK_S = 0.2
"""How often a run that waits looks at its request."""
_REFUSED_PAUSE_NS = 30 * _NS_PER_S
"""After a chunk that Spanner refused to read; longer after each further one."""
_REFUSED_PAUSE_MAX_NS = 600 * _NS_PER_S
_CAUSE_MAX = 300
"""Characters of a failure's cause in a token."""


class ChunkRows(Protocol):
    """A read of one chunk: a query whose records are INSERTs, and what follows from its end."""

    async def next_size(self) -> int | None:
        """As `ports.RunningQuery`."""
        ...

    async def receive(self) -> Response:
        """As `ports.RunningQuery`."""
        ...

    def cancel(self) -> None:
        """As `ports.RunningQuery`."""
        ...

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return, once the query has ended, the records of the last rows, and the last key.

        The key is None where the chunk has fewer rows than were asked for: the table ends here.
        """
        ...


class ChunkReads(Protocol):
    """Reads of tables as they were at one time."""

    async def chunk(self, place: RunPlace) -> ChunkRows | None:
        """Prepare a read of the rows that follow a key; None if there is no such table any more.

        With a condition the rows that meet it are read, and no others.  A row has its place in the
        same record whenever the same chunk is read.  Raises ConditionRefused, as the read does, for
        a condition that cannot be evaluated.
        """
        ...


class OnDemandStream:
    """A change stream, and what `requests` want beside it."""

    def __init__(
        self,
        stream: ChangeStream,
        reads: ChunkReads,
        requests: TableRequests,
        *,
        now_ns: Callable[[], int] = time.time_ns,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._stream = stream
        self._reads = reads
        self._requests = requests
        self._now_ns = now_ns
        self._sleep = sleep

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> RunningQuery:
        """Prepare a query, which its first `next_size` sends."""
        place = place_of(token)
        if place is None:
            query = self._stream.query(
                token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=heartbeat_ms
            )
            if token == ROOT_TOKEN or is_of_backfill(token):
                return query
            return _Announcing(query, lambda: self._requests.announced_by(token), start_ns)
        if place.is_chunk:
            return _Chunk(
                self._reads, self._requests, place,
                token=token, heartbeat_ns=heartbeat_ms * _NS_PER_MS,
                now_ns=self._now_ns, sleep=self._sleep,
            )  # fmt: skip
        return _Waiting(
            self._requests, place,
            token=token, start_ns=start_ns, heartbeat_ns=heartbeat_ms * _NS_PER_MS,
            now_ns=self._now_ns, sleep=self._sleep,
        )  # fmt: skip


class _Records:
    """A response of our own."""

    size_bytes = _RECORD_BYTES

    def __init__(self, *records: StreamRecord) -> None:
        self._records = records

    def decode(self) -> tuple[list[StreamRecord], int]:
        return list(self._records), 0


# ---------------------------------------------------------------- announcing


class _Announcing:
    """A query of the change stream, with the announcements of runs among its records."""

    def __init__(
        self, query: RunningQuery, requests: Callable[[], Iterable[TableRequest]], start_ns: int
    ) -> None:
        self._query = query
        self._requests = requests
        self._start_ns = start_ns
        self._announced: set[tuple[int, str]] = set()

    async def next_size(self) -> int | None:
        return await self._query.next_size()

    async def receive(self) -> Response:
        response = await self._query.receive()
        return _Announced(response, self._insert) if self._requests() else response

    def cancel(self) -> None:
        self._query.cancel()

    def _insert(self, records: list[StreamRecord]) -> list[StreamRecord]:
        """Put each announcement before the first record of a later time."""
        due = [
            one
            for one in self._requests()
            if (one.run, one.table) not in self._announced and one.start.start_ns >= self._start_ns
        ]
        for request in sorted(due, key=lambda one: one.start_us):
            start: PartitionStartRecord = request.start
            place = next(
                (at for at, one in enumerate(records) if _time_ns(one) > start.start_ns), None
            )
            if place is not None:
                records = [*records[:place], start, *records[place:]]
                self._announced.add((request.run, request.table))
        return records


class _Announced:
    """A response whose records are replaced when they are decoded."""

    def __init__(
        self, response: Response, insert: Callable[[list[StreamRecord]], list[StreamRecord]]
    ) -> None:
        self._response = response
        self._insert = insert
        self.size_bytes = response.size_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        records, unfinished = self._response.decode()
        return self._insert(records), unfinished


def _time_ns(record: StreamRecord) -> int:
    match record:
        case DataChangeRecord() | PartitionEventRecord():
            return record.commit_timestamp_ns
        case HeartbeatRecord():
            return record.timestamp_ns
        case PartitionEndRecord():
            return record.end_ns
        case PartitionStartRecord() | ChildPartitionsRecord():
            return record.start_ns
        case FilesClosedRecord():  # of no change stream
            return 0


# ---------------------------------------------------------------- waiting


class _Waiting:
    """Reports the present time until the run's next chunk is due, then names it."""

    def __init__(
        self,
        requests: TableRequests,
        place: RunPlace,
        *,
        token: str,
        start_ns: int,
        heartbeat_ns: int,
        now_ns: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._requests = requests
        self._place = place
        self._token = token
        self._heartbeat_ns = heartbeat_ns
        self._now_ns = now_ns
        self._sleep = sleep
        self._reported_ns = start_ns
        self._report_at_ns = 0
        self._next: _Records | None = None
        self._is_over = False

    async def next_size(self) -> int | None:
        while not self._is_over and self._next is None:
            self._next = self._decide()
            if self._next is None:
                await self._sleep(min(_LOOK_S, self._heartbeat_ns / _NS_PER_S))
        return None if self._next is None else _RECORD_BYTES

    async def receive(self) -> Response:
        found, self._next = self._next, None
        return found or _Records()

    def cancel(self) -> None:
        self._is_over = True

    def _decide(self) -> _Records | None:
        now_ns = max(_whole_us(self._now_ns()), self._reported_ns)
        request = self._requests.newest(self._place.table)
        if self._place.failure or _must_end(self._requests, self._place):
            self._is_over = True
            return _Records(PartitionEndRecord(now_ns, "0"))
        if self._place.since_ns:
            # It begins once the chunk's marker is committed: a moment that no earlier one knows.
            return self._followed_by(wait_token(self._place.measured(now_ns)), now_ns)
        if (
            request is not None
            and request.run == self._place.run
            and request.state is RunState.RUNNING
            and now_ns >= self._place.due_ns + request.pause_ns(self._place.held_ns)
        ):
            chunk = self._place.chunk(now_ns, rows=request.chunk_rows)
            return self._followed_by(chunk_token(chunk), now_ns)
        if now_ns >= self._report_at_ns:
            self._reported_ns, self._report_at_ns = now_ns, now_ns + self._heartbeat_ns
            return _Records(HeartbeatRecord(now_ns))
        return None

    def _followed_by(self, token: str, now_ns: int) -> _Records:
        self._is_over = True
        child = ChildPartition(token, (self._token,), now_ns)
        return _Records(ChildPartitionsRecord(now_ns, "0", (child,)))


# ---------------------------------------------------------------- reading


class _Chunk:
    """Reads the rows of a chunk, then names what follows it."""

    def __init__(
        self,
        reads: ChunkReads,
        requests: TableRequests,
        place: RunPlace,
        *,
        token: str,
        heartbeat_ns: int,
        now_ns: Callable[[], int],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._reads = reads
        self._requests = requests
        self._place = place
        self._token = token
        self._heartbeat_s = heartbeat_ns / _NS_PER_S
        self._now_ns = now_ns
        self._sleep = sleep
        self._rows: ChunkRows | None = None
        self._last: _Records | None = None
        self._has_ended = False
        self._is_cancelled = False

    async def next_size(self) -> int | None:
        if self._has_ended:
            return None if self._last is None else _RECORD_BYTES
        if _must_end(self._requests, self._place):
            # A row that cannot be published would hold the watermark for good, and a search that
            # finds a row now and then for days.  Each record is a transaction of its own.
            if self._rows is not None:
                self._rows.cancel()
            self._last, self._has_ended = _Records(_end_of(self._place)), True
            return _RECORD_BYTES
        try:
            size = await self._next_size_of_rows()
        except QueryRefused as error:
            self._last = self._after_refusal(error)
        else:
            if size is not None or self._is_cancelled:
                return size
            self._last = self._after_rows()
        self._has_ended = True
        return _RECORD_BYTES

    async def receive(self) -> Response:
        if self._has_ended or self._rows is None:
            found, self._last = self._last, None
            return found or _Records()
        return await self._rows.receive()

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._rows is not None:
            self._rows.cancel()

    async def _next_size_of_rows(self) -> int | None:
        if self._rows is None:
            rows = await self._reads.chunk(self._place)
            if rows is not None:
                # Spanner may look at many rows before it finds one, or pass over deleted ones.
                alive = _Records(HeartbeatRecord(self._place.read_ns))
                rows = LongRead(
                    rows, alive, every_s=self._heartbeat_s, sleep=self._sleep,
                    with_condition=bool(self._place.where),
                )  # fmt: skip
            self._rows = rows
            if self._rows is None or self._is_cancelled:
                return None
        return await self._rows.next_size()

    def _after_rows(self) -> _Records:
        place = self._place
        if self._rows is None:
            _log.warning("table is gone", table=place.table, run=place.run)
            return _Records(_end_of(place))
        records, after = self._rows.rest()
        if after is None:
            _log.info("table was read", table=place.table, run=place.run, chunks=place.number + 1)
            return _Records(*records, _end_of(place))
        return _Records(*records, self._followed_by(place.next(after)))

    def _after_refusal(self, error: QueryRefused) -> _Records:
        """Read the chunk again later, at another time: nothing may hold the watermark for good.

        A condition that cannot be evaluated ends the run: at no time would it be another one.
        """
        place = self._place
        if isinstance(error, ConditionRefused):
            cause = str(error.fields.get("details") or error.message)[:_CAUSE_MAX]
            _log.error(
                "backfill ended by its condition", table=place.table, run=place.run,
                chunk=place.number, where=place.where, cause=cause,
            )  # fmt: skip
            return _Records(self._followed_by(place.failed(cause)))
        _log.error(
            "chunk not read", table=place.table, run=place.run, chunk=place.number,
            refusals=place.refusals + 1, error=str(error),
        )  # fmt: skip
        pause_ns = min(_REFUSED_PAUSE_NS * (place.refusals + 1), _REFUSED_PAUSE_MAX_NS)
        return _Records(self._followed_by(place.again(due_ns=self._now_ns() + pause_ns)))

    def _followed_by(self, place: RunPlace) -> ChildPartitionsRecord:
        # Nothing of before now is to come, so the watermark need not wait for the next commit too.
        start_ns = max(_next(self._place.read_ns), _whole_us(self._now_ns()))
        child = ChildPartition(wait_token(place), (self._token,), start_ns)
        return ChildPartitionsRecord(start_ns, "0", (child,))


def _must_end(requests: TableRequests, place: RunPlace) -> bool:
    """Whether a run is to end: it was cancelled, or there is a later one of its table."""
    newest = requests.newest(place.table)
    if newest is None or newest.run < place.run:
        return False
    return newest.run > place.run or newest.state is RunState.CANCELLED


def _end_of(place: RunPlace) -> PartitionEndRecord:
    return PartitionEndRecord(_next(place.read_ns), "0")


def _whole_us(at_ns: int) -> int:
    """Return a time that Kafka's records can hold exactly."""
    return at_ns // NS_PER_US * NS_PER_US


def _next(read_ns: int) -> int:
    """Return the first whole microsecond after a time."""
    return (read_ns // NS_PER_US + 1) * NS_PER_US

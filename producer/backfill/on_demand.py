"""A change stream whose tables can be read in chunks while it runs: wraps a `ports.ChangeStream`.

A run begins where a stream partition of the change stream announces it, at the commit time in the
request: the announcement is among the stream partition's records like one of Spanner's, so it is
made once, whatever is repeated.  The stream partitions of `table_run` follow.  Rows go to a
separate topic (`schemas.topics.beside`): in the data topic an older row could come after a newer
change of its key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable

from tidegate.producer.backfill.chunk_query import ChunkReads, RunChunkQuery
from tidegate.producer.backfill.read_partition import is_of_backfill
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.stream import OwnResponse, ReplacedResponse, whole_us_ns
from tidegate.producer.backfill.table_run import RunChunk, RunWait, place_of
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
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000
_LOOK_S = 0.2
"""How often a waiting run reads its request."""


class OnDemandStream:
    """A change stream, and the runs of `requests`."""

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
        """Prepare a query; its first `next_size` sends it."""
        match place_of(token):
            case RunChunk() as chunk:
                return RunChunkQuery(
                    self._reads, self._requests, chunk,
                    token=token, heartbeat_ns=heartbeat_ms * _NS_PER_MS,
                    now_ns=self._now_ns, sleep=self._sleep,
                )  # fmt: skip
            case RunWait() as wait:
                return _Waiting(
                    self._requests, wait,
                    token=token, start_ns=start_ns, heartbeat_ns=heartbeat_ms * _NS_PER_MS,
                    now_ns=self._now_ns, sleep=self._sleep,
                )  # fmt: skip
            case None:
                query = self._stream.query(
                    token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=heartbeat_ms
                )
                if token == ROOT_TOKEN or is_of_backfill(token):
                    return query
                return _Announcing(query, lambda: self._requests.announced_by(token), start_ns)


class _Announcing:
    """A query of the change stream, with the announcements of runs among its records."""

    def __init__(
        self, query: RunningQuery, requests: Callable[[], Iterable[TableRequest]], start_ns: int
    ) -> None:
        self._query = query
        self._requests = requests
        self._start_ns = start_ns
        self._announced: set[tuple[int, str]] = set()
        self.next_size = query.next_size
        self.cancel = query.cancel

    async def receive(self) -> Response:
        response = await self._query.receive()
        return ReplacedResponse(response, self._insert) if self._requests() else response

    def _insert(self, records: list[StreamRecord]) -> list[StreamRecord]:
        """Put each announcement before the first record of a later time."""
        due = [
            request
            for request in self._requests()
            if (request.run, request.table) not in self._announced
            and request.start.start_ns >= self._start_ns
        ]
        for request in sorted(due, key=lambda request: request.start_us):
            start: PartitionStartRecord = request.start
            later = (
                number for number, record in enumerate(records) if _time_ns(record) > start.start_ns
            )
            place = next(later, None)
            if place is not None:
                records = [*records[:place], start, *records[place:]]
                self._announced.add((request.run, request.table))
        return records


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


class _Waiting:
    """Reports the present time until the run's next chunk is due, then names the chunk."""

    def __init__(
        self,
        requests: TableRequests,
        place: RunWait,
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
        self._next: OwnResponse | None = None
        self._is_over = False

    async def next_size(self) -> int | None:
        while not self._is_over and self._next is None:
            self._next = self._decide()
            if self._next is None:
                await self._sleep(min(_LOOK_S, self._heartbeat_ns / _NS_PER_S))
        return None if self._next is None else self._next.size_bytes

    async def receive(self) -> Response:
        response, self._next = self._next, None
        return response or OwnResponse()

    def cancel(self) -> None:
        self._is_over = True

    def _decide(self) -> OwnResponse | None:
        place, now_ns = self._place, max(whole_us_ns(self._now_ns()), self._reported_ns)
        request = self._requests.newest(place.table)
        if place.failure or self._requests.must_end(place):
            self._is_over = True
            return OwnResponse(PartitionEndRecord(now_ns, "0"))
        if place.since_ns:
            # It begins once the chunk's marker is committed, at a time that is not known earlier.
            return self._followed_by(place.measured(now_ns), now_ns)
        if (
            request is not None
            and request.run == place.run
            and request.state is RunState.RUNNING
            and now_ns >= place.due_ns + request.pause_ns(place.held_ns)
        ):
            return self._followed_by(place.chunk(now_ns, rows=request.chunk_rows), now_ns)
        if now_ns >= self._report_at_ns:
            self._reported_ns, self._report_at_ns = now_ns, now_ns + self._heartbeat_ns
            return OwnResponse(HeartbeatRecord(now_ns))
        return None

    def _followed_by(self, place: RunWait | RunChunk, now_ns: int) -> OwnResponse:
        self._is_over = True
        child = ChildPartition(place.token, (self._token,), now_ns)
        return OwnResponse(ChildPartitionsRecord(now_ns, "0", (child,)))

"""The query of one chunk of a run: its rows, then the stream partition that follows.

Few rows may meet a condition, and Spanner scans deleted rows, so a read may find no row for
minutes.  A silent query counts as stalled, and is repeated (`core.queries`).  So this one reports
the time of its rows at each heartbeat for a while, and then gives up, because the watermark waits
for the chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import structlog

from tidegate.producer.backfill.read_partition import Key
from tidegate.producer.backfill.requests import TableRequests
from tidegate.producer.backfill.stream import OwnResponse, next_us_ns, whole_us_ns
from tidegate.producer.backfill.table_run import RunChunk, RunWait
from tidegate.producer.errors import ConditionRefused, QueryRefused
from tidegate.producer.ports import Response, RunningQuery
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    PartitionEndRecord,
)
from tidegate.schemas.progress import ChildPartition

SILENT_MAX_S = 600.0
"""How long Spanner may search before the next part of its answer."""

_NS_PER_S = 1_000_000_000
_REFUSED_PAUSE_NS = 30 * _NS_PER_S
"""The pause after a chunk that Spanner refused to read; longer after each further refusal."""
_REFUSED_PAUSE_MAX_NS = 600 * _NS_PER_S
_CAUSE_MAX = 300
"""Characters of a failure's cause in a token."""

_log = structlog.get_logger()


class ChunkRows(RunningQuery, Protocol):
    """A read of one chunk: a query whose records are INSERTs, with its last rows after its end."""

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return, once the query has ended, the records of the last rows, and the last key.

        The key is None if the chunk has fewer rows than requested: the table ends here.
        """
        ...


class ChunkReads(Protocol):
    """Reads of tables at one time."""

    async def chunk(self, place: RunChunk) -> ChunkRows | None:
        """Prepare a read of the rows that follow a key; None if the table no longer exists.

        With a condition only the rows that meet it are read.  A row has the same place in the same
        record whenever the chunk is read again.  Raises ConditionRefused, as the read does, for a
        condition that cannot be evaluated.
        """
        ...


class LongRead:
    """A read of a chunk, `rows`, that returns `alive` while it is silent; a `ChunkRows`."""

    def __init__(
        self,
        rows: ChunkRows,
        alive: Response,
        *,
        every_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        with_condition: bool = True,
    ) -> None:
        """`every_s` is the time between two responses of a silent read."""
        self._with_condition = with_condition
        self._rows = rows
        self._alive = alive
        self._every_s = every_s
        self._sleep = sleep
        self._step: asyncio.Future[int | None] | None = None
        self._is_silent = False
        self._silent_s = 0.0

    async def next_size(self) -> int | None:
        """Return as the read does; raises QueryRefused if it was silent for too long.

        With a condition it raises ConditionRefused: its rows would be found no sooner at another
        time.
        """
        step = self._step
        if step is None:
            self._step = step = asyncio.ensure_future(self._rows.next_size())
            step.add_done_callback(_retrieve)
        sleeping = asyncio.ensure_future(self._sleep(self._every_s))
        tasks: set[asyncio.Future[Any]] = {step, sleeping}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            step.cancel()
            raise
        finally:
            sleeping.cancel()
        self._is_silent = not step.done()
        if not self._is_silent:
            self._step, self._silent_s = None, 0.0
            return step.result()
        self._silent_s += self._every_s
        if self._silent_s >= SILENT_MAX_S:
            step.cancel()
            self._rows.cancel()
            awaited = "row that meets the condition" if self._with_condition else "row of the table"
            raise (ConditionRefused if self._with_condition else QueryRefused)(
                f"Spanner has found no {awaited} for {SILENT_MAX_S:.0f} s"
            )
        return self._alive.size_bytes

    async def receive(self) -> Response:
        """Return `alive` while the read is silent, otherwise the response of the read."""
        if self._is_silent:
            self._is_silent = False
            return self._alive
        return await self._rows.receive()

    def cancel(self) -> None:
        """End the read; does not block."""
        self._rows.cancel()

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return the rest of the read."""
        return self._rows.rest()


class RunChunkQuery:
    """Reads the rows of a chunk, then names the stream partition that follows it."""

    def __init__(
        self,
        reads: ChunkReads,
        requests: TableRequests,
        place: RunChunk,
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
        self._last: OwnResponse | None = None
        self._has_ended = False
        self._is_cancelled = False

    async def next_size(self) -> int | None:
        """Wait for rows, a sign of life or the end; see `ports.RunningQuery`."""
        if self._has_ended:
            return None if self._last is None else self._last.size_bytes
        if self._requests.must_end(self._place):
            # A row that cannot be published would hold the watermark forever, and a search that
            # finds a row now and then, for days.  Each record is its own transaction.
            if self._rows is not None:
                self._rows.cancel()
            self._last = OwnResponse(_end_of(self._place))
        else:
            try:
                size = await self._next_size_of_rows()
            except QueryRefused as error:
                self._last = self._after_refusal(error)
            else:
                if size is not None or self._is_cancelled:
                    return size
                self._last = self._after_rows()
        self._has_ended = True
        return self._last.size_bytes

    async def receive(self) -> Response:
        """Return the response whose size was returned."""
        if self._has_ended or self._rows is None:
            last, self._last = self._last, None
            return last or OwnResponse()
        return await self._rows.receive()

    def cancel(self) -> None:
        """End the query; does not block."""
        self._is_cancelled = True
        if self._rows is not None:
            self._rows.cancel()

    async def _next_size_of_rows(self) -> int | None:
        if self._rows is None:
            rows = await self._reads.chunk(self._place)
            if rows is not None:
                alive = OwnResponse(HeartbeatRecord(self._place.read_ns))
                self._rows = LongRead(
                    rows, alive, every_s=self._heartbeat_s, sleep=self._sleep,
                    with_condition=bool(self._place.where),
                )  # fmt: skip
            if self._rows is None or self._is_cancelled:
                return None
        return await self._rows.next_size()

    def _after_rows(self) -> OwnResponse:
        place = self._place
        if self._rows is None:
            _log.warning("table is gone", table=place.table, run=place.run)
            return OwnResponse(_end_of(place))
        records, after = self._rows.rest()
        if after is None:
            _log.info("table was read", table=place.table, run=place.run, chunks=place.number + 1)
            return OwnResponse(*records, _end_of(place))
        return OwnResponse(*records, self._followed_by(place.next(after)))

    def _after_refusal(self, error: QueryRefused) -> OwnResponse:
        """Read the chunk again later, at another time: nothing may hold the watermark forever.

        A condition that cannot be evaluated ends the run: another time would not change it.
        """
        place = self._place
        if isinstance(error, ConditionRefused):
            cause = str(error.fields.get("details") or error.message)[:_CAUSE_MAX]
            _log.error(
                "backfill ended by its condition", table=place.table, run=place.run,
                chunk=place.number, where=place.where, cause=cause,
            )  # fmt: skip
            return OwnResponse(self._followed_by(place.failed(cause)))
        _log.error(
            "chunk not read", table=place.table, run=place.run, chunk=place.number,
            refusals=place.refusals + 1, error=str(error),
        )  # fmt: skip
        pause_ns = min(_REFUSED_PAUSE_NS * (place.refusals + 1), _REFUSED_PAUSE_MAX_NS)
        return OwnResponse(self._followed_by(place.again(due_ns=self._now_ns() + pause_ns)))

    def _followed_by(self, wait: RunWait) -> ChildPartitionsRecord:
        # No row from before now will follow, so the watermark need not wait for the next commit
        # too.
        start_ns = max(next_us_ns(self._place.read_ns), whole_us_ns(self._now_ns()))
        child = ChildPartition(wait.token, (self._token,), start_ns)
        return ChildPartitionsRecord(start_ns, "0", (child,))


def _end_of(place: RunChunk) -> PartitionEndRecord:
    return PartitionEndRecord(next_us_ns(place.read_ns), "0")


def _retrieve(step: asyncio.Future[int | None]) -> None:
    """Retrieve an error that no caller waits for any more: otherwise asyncio would report it."""
    if not step.cancelled():
        step.exception()

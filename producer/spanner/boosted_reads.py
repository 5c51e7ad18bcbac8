"""The read of a chunk by Data Boost: its rows come from other servers than the instance's.

Data Boost takes only shares of a partitioned read, which have neither a limit nor an order.  So the
instance reads the chunk's keys: they say where it ends, and in which order its rows are.  The range
of these keys is then cut into shares in a read-only transaction at the chunk's time, and the shares
are read one after another.  A row has its place by its key, however Spanner cuts the range.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from tidegate.producer.backfill.read_partition import Key
from tidegate.producer.ports import Response, RunningQuery
from tidegate.producer.records import DataChangeRecord, StreamRecord
from tidegate.producer.spanner.table_rows import BoostedDecoder


class _Keys(RunningQuery, Protocol):
    """A read of a chunk's keys, as that of its rows."""

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]: ...


class _KeysResponse:
    """A response with keys: none of its records is published; port: `ports.Response`."""

    def __init__(self, response: Response, decoder: BoostedDecoder) -> None:
        self._response = response
        self._decoder = decoder
        self.size_bytes = response.size_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        records, unfinished = self._response.decode()
        self._decoder.expect(records)
        return [], unfinished


class BoostedChunk:
    """A read of one chunk: `backfill.chunk_query.ChunkRows`; all records are in its `rest`."""

    def __init__(
        self,
        keys: _Keys,
        decoder: BoostedDecoder,
        cut: Callable[[Key], Awaitable[Iterable[RunningQuery]]],
    ) -> None:
        """Read `keys` first; `cut` returns the shares of the rows up to a key, for `decoder`."""
        self._keys = keys
        self._decoder = decoder
        self._cut = cut
        self._query: RunningQuery = keys
        self._shares: deque[RunningQuery] | None = None
        self._is_cancelled = False

    async def next_size(self) -> int | None:
        """As `ports.RunningQuery`."""
        while (size := await self._query.next_size()) is None:
            if self._is_cancelled or not await self._go_on():
                return None
        return size

    async def receive(self) -> Response:
        """As `ports.RunningQuery`."""
        response = await self._query.receive()
        return _KeysResponse(response, self._decoder) if self._shares is None else response

    def cancel(self) -> None:
        """As `ports.RunningQuery`."""
        self._is_cancelled = True
        self._query.cancel()

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return all records, in the order of their keys, and the last key of a full chunk.

        Raises SchemaError unless the shares had a row for each key, and no other one.
        """
        return self._decoder.rest()

    async def _go_on(self) -> bool:
        """Turn to the next share; return False after the last one."""
        if self._shares is None:
            self._decoder.expect(self._keys.rest()[0])
            last = self._decoder.last_key
            self._shares = deque(() if last is None else await self._cut(last))
        if not self._shares:
            return False
        self._query = self._shares.popleft()
        if self._is_cancelled:  # while it was cut
            self._query.cancel()
        return True

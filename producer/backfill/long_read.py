"""A read of a chunk whose rows may have to be searched for: it may find none for minutes.

Few rows may meet a condition, and Spanner passes over rows that were deleted.

A query that is silent is taken for one that hangs, and is repeated (`core.stall_watch`).  So this
one says at each heartbeat that it goes on, for a while; then it gives up, since the watermark waits
for the chunk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from tidegate.producer.backfill.read_partition import Key
from tidegate.producer.errors import ConditionRefused, QueryRefused
from tidegate.producer.ports import Response
from tidegate.producer.records import DataChangeRecord

SILENT_MAX_S = 600.0
"""How long Spanner may search before the next part of its answer."""


class _Rows(Protocol):
    """As `on_demand.ChunkRows`, which needs this module."""

    async def next_size(self) -> int | None: ...

    async def receive(self) -> Response: ...

    def cancel(self) -> None: ...

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]: ...


class LongRead:
    """The read `rows`, with the response `alive` wherever it is silent; `on_demand.ChunkRows`."""

    def __init__(
        self,
        rows: _Rows,
        alive: Response,
        *,
        every_s: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        with_condition: bool = True,
    ) -> None:
        """`every_s` is the time between two responses of a read that is silent."""
        self._with_condition = with_condition
        self._rows = rows
        self._alive = alive
        self._every_s = every_s
        self._sleep = sleep
        self._step: asyncio.Future[int | None] | None = None
        self._is_silent = False
        self._silent_s = 0.0

    async def next_size(self) -> int | None:
        """As the read; raises QueryRefused where that was silent for too long.

        With a condition that is ConditionRefused: at no time would it find its rows sooner.
        """
        step = self._step
        if step is None:
            self._step = step = asyncio.ensure_future(self._rows.next_size())
            step.add_done_callback(_retrieve)
        sleeping = asyncio.ensure_future(self._sleep(self._every_s))
        both: set[asyncio.Future[Any]] = {step, sleeping}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
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
            what = "row that meets the condition" if self._with_condition else "row of the table"
            raise (ConditionRefused if self._with_condition else QueryRefused)(
                f"Spanner has found no {what} for {SILENT_MAX_S:.0f} s"
            )
        return self._alive.size_bytes

    async def receive(self) -> Response:
        """Return `alive` where the read is silent, otherwise what it has received."""
        if self._is_silent:
            self._is_silent = False
            return self._alive
        return await self._rows.receive()

    def cancel(self) -> None:
        """End the read; does not block."""
        self._rows.cancel()

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """As the read."""
        return self._rows.rest()


def _retrieve(step: asyncio.Future[int | None]) -> None:
    """Look at an error that nobody waits for any more: asyncio would report it."""
    if not step.cancelled():
        step.exception()

"""Connections for streaming queries, opened and closed with the number of queries.

A connection carries about a hundred streams.  Everything here belongs to one asyncio loop, that of
the first query; only `ResponseStream.cancel` and `StreamChannels.close` are for other threads.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from tidegate.producer.spanner.transport.connection import NotSentError
from tidegate.producer.spanner.transport.status import CallError
from tidegate.program.memory import return_freed_memory

STREAMS_PER_CHANNEL_MAX = 90
"""The service allows about a hundred on one connection; further calls would wait unnoticed."""
_SPARE_PLACES = 10
"""If fewer places are left elsewhere, an empty connection stays open for the next queries."""
_CLOSE_PATIENCE_S = 5.0
_MOVES_MAX = 3
"""A server that accepts no calls must not cause connections without end."""
_LARGE_BYTES = 256 << 10
_RETURN_EVERY_BYTES = 4 << 20
"""Bytes of messages after which freed memory is returned; each return costs time."""


class Call(Protocol):
    """A streaming call: `transport.call` over `h2`, or `transport.grpc_connection`."""

    async def next_size(self) -> int | None:
        """Wait for the next message; return its size in bytes, None after the last."""
        ...

    async def read(self, *, pause_s: float) -> bytes | None:
        """Return the message, or None if it has not arrived within `pause_s` seconds."""
        ...

    def cancel(self) -> None:
        """End the call; may be called more than once."""
        ...


class Connection(Protocol):
    """A connection with many streaming calls."""

    @property
    def is_usable(self) -> bool:
        """Whether new calls may be made."""
        ...

    @property
    def streams_max(self) -> int:
        """The number of concurrent calls that the server accepts, as far as known."""
        ...

    async def call(self, path: str, message: bytes, metadata: Iterable[tuple[str, str]]) -> Call:
        """Send a request; raises NotSentError if the connection accepts no more calls."""
        ...

    def close(self) -> None:
        """End the connection and its calls."""
        ...


@dataclass(slots=True, eq=False)
class _Place:
    """One connection and the number of response streams on it."""

    connection: Connection
    streams: int = 0

    @property
    def room(self) -> int:
        """Number of streams that it can still take."""
        if not self.connection.is_usable:
            return 0
        return min(STREAMS_PER_CHANNEL_MAX, self.connection.streams_max) - self.streams


@dataclass(slots=True)
class _ReceivedBytes:
    """The bytes of large messages since freed memory was last returned."""

    since: int = 0

    def add(self, size: int) -> None:
        if size < _LARGE_BYTES:
            return
        self.since += size
        if self.since >= _RETURN_EVERY_BYTES:
            self.since = 0
            return_freed_memory()


class ResponseStream:
    """The response messages of one streaming query."""

    def __init__(
        self,
        begin: Callable[[], Awaitable[Call]],
        give_back: Callable[[], None],
        received: _ReceivedBytes,
    ) -> None:
        self._begin = begin
        self._received = received
        self._give_back: Callable[[], None] | None = give_back
        self._call: Call | None = None
        self._loop = asyncio.get_running_loop()

    async def next_size(self) -> int | None:
        """Wait for the next message to begin; return its size in bytes, None at the end.

        Returns `call.WAITING` while the connection is busy with other streams.
        Raises `grpc.RpcError` if the call fails, CANCELLED after `cancel`.
        """
        if self._call is None:
            call = await self._begin()
            if self._give_back is None:  # closed meanwhile
                call.cancel()
                raise CallError.cancelled()
            self._call = call
        return await self._call.next_size()

    async def read(self, *, pause_s: float = math.inf) -> bytes | None:
        """Receive the message that has begun, and return it.  Raises `grpc.RpcError`.

        Returns None if a part of it arrived within `pause_s` seconds, and while the connection is
        busy with other streams: the next call continues.
        """
        assert self._call is not None, "`next_size` comes first"  # noqa: S101 - the port says so
        message = await self._call.read(pause_s=pause_s)
        if message is not None:
            self._received.add(len(message))
        return message

    def cancel(self) -> None:
        """End the call; any thread may."""
        with suppress(RuntimeError):  # the loop is closed, and every call with it
            self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """End the call if it still runs and leave the connection; may be called more than once."""
        if self._call is not None:
            self._call.cancel()
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


class _Seat:
    """A response stream's place on a connection, until it is left."""

    def __init__(self, channels: StreamChannels) -> None:
        self._channels = channels
        self._place: _Place | None = channels.enter()

    async def call(self, method: str, request: bytes, metadata: Sequence[tuple[str, str]]) -> Call:
        """Begin the call, on another connection if this one no longer accepts it."""
        for _ in range(_MOVES_MAX):
            try:
                return await self._connection().call(method, request, metadata)
            except NotSentError:
                if self._place is not None:
                    left, self._place = self._place, self._channels.enter()
                    self._channels.leave(left)
        return await self._connection().call(method, request, metadata)

    def leave(self) -> None:
        """Return the place; may be called more than once."""
        if self._place is not None:
            self._channels.leave(self._place)
            self._place = None

    def _connection(self) -> Connection:
        if self._place is None:
            raise CallError.cancelled()
        return self._place.connection


class StreamChannels:
    """Connections from `open_connection`, each with up to `STREAMS_PER_CHANNEL_MAX` streams."""

    def __init__(self, open_connection: Callable[[], Connection]) -> None:
        self._open_connection = open_connection
        self._places: list[_Place] = []
        self._received = _ReceivedBytes()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(
        self,
        method: str,
        request: bytes,
        metadata: Callable[[], Awaitable[Sequence[tuple[str, str]]]],
    ) -> ResponseStream:
        """Prepare a streaming call without a deadline; its first `next_size` sends it.

        `metadata` is called then.
        """
        self._loop = asyncio.get_running_loop()
        seat = _Seat(self)

        async def begin() -> Call:
            return await seat.call(method, request, await metadata())

        return ResponseStream(begin, seat.leave, self._received)

    def close(self) -> None:
        """Close all connections; running calls end.  Not to be called on the loop's own thread."""
        loop = self._loop
        if loop is None or not loop.is_running():
            return
        with suppress(RuntimeError, TimeoutError):  # the loop has ended meanwhile
            asyncio.run_coroutine_threadsafe(self._close_all(), loop).result(_CLOSE_PATIENCE_S)

    # ------------------------------------------------------------ places

    def enter(self) -> _Place:
        """Take a place on the fullest connection with room, so that others empty, or a new one."""
        with_room = [place for place in self._places if place.room > 0]
        if not with_room:
            with_room = [_Place(self._open_connection())]
            self._places += with_room
        place = max(with_room, key=lambda place: place.streams)
        place.streams += 1
        return place

    def leave(self, place: _Place) -> None:
        """Return a place; connections that are not needed are closed."""
        place.streams -= 1
        for empty in [place for place in self._places if not place.streams]:
            other_places = sum(place.room for place in self._places if place is not empty)
            if empty.connection.is_usable and other_places < _SPARE_PLACES:
                continue
            self._places.remove(empty)
            empty.connection.close()

    async def _close_all(self) -> None:
        places, self._places = self._places, []
        for place in places:
            place.connection.close()
        await asyncio.sleep(0)  # the step in which gRPC closes its channels

"""Connections for streaming queries, opened as queries grow in number and closed when they end.

A connection carries about a hundred streams.  Everything here belongs to one asyncio loop, that of
the first query; only `ResponseStream.cancel` and `StreamChannels.close` are for other threads.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.program.freed_memory import return_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import grpc

__all__ = ["STREAMS_PER_CHANNEL_MAX", "ResponseStream", "StreamChannels"]

STREAMS_PER_CHANNEL_MAX = 90
"""The service allows about a hundred on one connection; a call beyond would wait unseen."""
_SPARE_PLACES = 10
"""With fewer left elsewhere an empty connection stays open: the next queries would need it."""
_CLOSE_PATIENCE_S = 5.0
_LARGE_BYTES = 256 << 10
_RETURN_EVERY_BYTES = 8 << 20
"""Messages received at once leave that much behind in gRPC's own blocks; each return costs time."""


@dataclass(slots=True, eq=False)
class _Place:
    """One connection and the number of response streams on it."""

    channel: grpc.aio.Channel
    streams: int = 0


@dataclass(slots=True)
class _ReceivedBytes:
    """The bytes of large messages since the memory of gRPC's copies was last returned."""

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

    def __init__(self, call: Any, give_back: Callable[[], None], received: _ReceivedBytes) -> None:
        self._call = call
        self._received = received
        self._give_back: Callable[[], None] | None = give_back
        self._loop = asyncio.get_running_loop()

    async def read(self) -> bytes | None:
        """Return the next serialised `PartialResultSet`, None at the end.

        Raises `grpc.RpcError` if the call fails, and CancelledError after `cancel`.
        """
        message = await self._call.read()
        if not isinstance(message, bytes):  # grpc.aio.EOF
            return None
        self._received.add(len(message))
        return message

    def cancel(self) -> None:
        """End the call; any thread may."""
        with suppress(RuntimeError):  # the loop is closed, and with it every call
            self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """End the call if it still runs and leave the connection; may be called more than once."""
        self._call.cancel()
        if self._give_back is not None:
            self._give_back()
            self._give_back = None


class StreamChannels:
    """Connections from `open_channel`, each with up to `STREAMS_PER_CHANNEL_MAX` streams."""

    def __init__(self, open_channel: Callable[[], grpc.aio.Channel]) -> None:
        self._open_channel = open_channel
        self._places: list[_Place] = []
        self._received = _ReceivedBytes()
        self._closing: set[asyncio.Task[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def call(
        self, method: str, request: bytes, metadata: Sequence[tuple[str, str]]
    ) -> ResponseStream:
        """Begin a streaming call without a deadline."""
        self._loop = asyncio.get_running_loop()
        place = self._place()
        call = place.channel.unary_stream(
            method,
            # Neither is decoded here: a response is, once there is room for it.
            request_serializer=None,
            response_deserializer=None,
        )(request, metadata=metadata)
        place.streams += 1
        return ResponseStream(call, lambda: self._leave(place), self._received)

    async def call_once(
        self, method: str, request: bytes, metadata: Sequence[tuple[str, str]], *, timeout_s: float
    ) -> bytes:
        """Return the serialised answer of a unary call; raises `grpc.RpcError`."""
        self._loop = asyncio.get_running_loop()
        place = self._place()
        place.streams += 1
        try:
            answer = await place.channel.unary_unary(
                method, request_serializer=None, response_deserializer=None
            )(request, metadata=metadata, timeout=timeout_s)
        finally:
            self._leave(place)
        return bytes(answer)

    def close(self) -> None:
        """Close all connections; calls that still run end.  Not for the loop's own thread."""
        loop = self._loop
        if loop is None or not loop.is_running():
            return
        with suppress(RuntimeError, TimeoutError):  # the loop has ended meanwhile
            asyncio.run_coroutine_threadsafe(self._close_all(), loop).result(_CLOSE_PATIENCE_S)

    # ------------------------------------------------------------ inside

    def _place(self) -> _Place:
        """Return the fullest connection with room, so that others empty; else a new one."""
        with_room = [one for one in self._places if one.streams < STREAMS_PER_CHANNEL_MAX]
        if not with_room:
            self._places.append(_Place(self._open_channel()))
            return self._places[-1]
        return max(with_room, key=lambda one: one.streams)

    def _leave(self, place: _Place) -> None:
        place.streams -= 1
        for empty in [one for one in self._places if not one.streams]:
            room = sum(STREAMS_PER_CHANNEL_MAX - one.streams for one in self._places)
            if room - STREAMS_PER_CHANNEL_MAX < _SPARE_PLACES:
                return
            self._places.remove(empty)
            task = asyncio.create_task(empty.channel.close(None))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close_all(self) -> None:
        places, self._places = self._places, []
        for place in places:
            await place.channel.close(None)
        if self._closing:
            await asyncio.wait(self._closing)

"""One streaming call of gRPC over HTTP/2: its response messages, and its flow control.

A message begins with its size.  The server may send a little ahead on each stream (`AHEAD_BYTES`),
which holds the size of the next message and all of a small one; it may send the rest only once the
reader asked for the message, which it does when there is room.  So the memory of many silent calls
does not depend on the size of their next messages.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from tidegate.producer.spanner.transport.status import CallError, WebPage, status_error

AHEAD_BYTES = 4 << 10
"""Bytes that a server may send on a stream that is not read, and on a silent one."""
_BUSY_AHEAD_BYTES = 64 << 10
"""The same on a stream whose messages are being read, while there is allowance left."""

_WINDOW_BYTES_MAX = (1 << 31) - 1
"""The limit of HTTP/2."""

WAITING = -1
"""Returned in place of a size: nothing came, and the connection received bytes of other calls."""
_PREFIX = struct.Struct(">BI")
RATE_MIN_BYTES_PER_S = 1_024
"""The least rate at which a message counts as arriving.

A link of 4.8 Mbit/s carries 585 messages at once at this rate, and one of a telephone still one; at
a lower rate a message of the largest size, 10 MiB, would take longer than three hours.
"""
_BEHIND_OTHERS_S = (2.0, 120.0)
"""Seconds without bytes while other calls get some: a call reports it from the first to the second.

A slow link carries large messages one after the other.  Later the call counts as silent, because a
call that hangs must end at some time.
"""
_PIECE_BYTES = 4_096
"""Bytes that end such a wait.

Busy links deliver frames of 16 KiB; fewer bytes end it only if they complete the message.
"""


class ByteProgress:
    """Whether a call is silent: counts the bytes received since its last sign of progress."""

    def __init__(self) -> None:
        """Start without a wait."""
        self._received = 0
        """Bytes since the last sign."""
        self._since_s: float | None = None
        """Since when the reader waits for bytes."""
        self._piece = 0
        """Bytes since `_behind_since_s`."""
        self._behind_since_s: float | None = None

    def wait(self, now_s: float, *, in_message: bool) -> None:
        """Record that a reader waits for bytes of the current or the next message."""
        if self._behind_since_s is None:
            self._behind_since_s, self._piece = now_s, 0
        if in_message and self._since_s is None:
            self._since_s = now_s

    def add(self, size: int) -> None:
        """Count received bytes."""
        self._received += size
        self._piece += size
        if self._piece >= _PIECE_BYTES:
            self._behind_since_s = None

    def end_message(self) -> None:
        """Start again, because a message is complete."""
        self._since_s = self._behind_since_s = None
        self._received = 0

    def is_coming(self, now_s: float) -> bool:
        """Whether a message arrived fast enough since the last sign; if so, this is a sign."""
        if self._since_s is None or self._received < RATE_MIN_BYTES_PER_S * (now_s - self._since_s):
            return False
        self._since_s, self._received = now_s, 0
        return True

    def is_behind(self, now_s: float) -> bool:
        """Whether it waits for bytes and other calls of its connection may be the reason."""
        if self._behind_since_s is None:
            return False
        first_s, last_s = _BEHIND_OTHERS_S
        return first_s <= now_s - self._behind_since_s <= last_s


def framed(message: bytes) -> bytes:
    """Return a request message in gRPC's framing."""
    return _PREFIX.pack(0, len(message)) + message


def _cut_short() -> CallError:
    return CallError(grpc.StatusCode.INTERNAL, "the response ended within a message")


@dataclass(slots=True)
class ReadAhead:
    """The bytes beyond `AHEAD_BYTES` that all calls together may let their servers send ahead."""

    left: int = 4 << 20

    def take(self, size: int) -> int:
        """Take at most `size` of the remaining bytes; return their number."""
        granted = min(size, self.left)
        self.left -= granted
        return granted


class Call:
    """A call's response; for one reader, on one asyncio loop.

    `widen` lets the server send more bytes; `cancel` ends the call at the server.
    """

    def __init__(
        self,
        *,
        widen: Callable[[int], None],
        cancel: Callable[[], None],
        ahead: ReadAhead,
    ) -> None:
        self._widen = widen
        self._cancel = cancel
        self._ahead = ahead
        self._extra = 0
        """Bytes taken from the allowance."""
        self._window = AHEAD_BYTES
        """Bytes that the server may still send."""
        self._received = bytearray()
        self._next = 0
        """The bytes of the message whose size was returned, including its prefix."""
        self._page: WebPage | None = None
        self._is_begun = False
        self._is_over = False
        self._error: CallError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._progress = ByteProgress()
        self._is_behind = False

    # ------------------------------------------------------------ the reader's side

    async def next_size(self) -> int | None:
        """Wait for the next message to begin; return its size, None after the last.

        Returns WAITING after some seconds in which the connection is busy with other calls.  Raises
        CallError if the call failed, after all complete messages.
        """
        while len(self._received) < _PREFIX.size:
            if self._is_over:
                self._end()
                return None
            await self._change()
            if self._was_behind():
                return WAITING
        is_compressed, size = _PREFIX.unpack_from(self._received)
        if is_compressed:
            error = CallError(grpc.StatusCode.INTERNAL, "a compressed message, not asked for")
            self.fail(error)
            raise error
        self._next = _PREFIX.size + size
        return int(size)

    async def read(self, *, pause_s: float = math.inf) -> bytes | None:
        """Receive the message whose size was returned, and return it; raises CallError.

        Returns None if bytes arrive fast enough but the message is incomplete `pause_s` seconds
        after the call, and while the connection is busy with other calls: the next call continues.
        """
        last = self._next
        loop = asyncio.get_running_loop()
        pause_at = loop.time() + pause_s
        while (missing := last - len(self._received)) > 0:
            if self._is_over:
                raise self._error or _cut_short()
            if missing > self._window:
                self._grant(missing - self._window)
            await self._change(in_message=True)
            now = loop.time()
            is_part = self._was_behind() or (now >= pause_at and self._progress.is_coming(now))
            if is_part and len(self._received) < last and not self._is_over:
                return None
        self._progress.end_message()
        with memoryview(self._received) as view:
            message = bytes(view[_PREFIX.size : last])
        if len(self._received) == last:
            self._received = bytearray()  # the memory of a large one is not kept
        else:
            del self._received[:last]
        self._refill()
        return message

    def cancel(self) -> None:
        """End the call; may be called more than once."""
        self.fail(CallError.cancelled())

    # ------------------------------------------------------------ the connection's side

    def begin(self, headers: dict[str, str]) -> None:
        """Handle the response's first headers."""
        status, kind = headers.get(":status", ""), headers.get("content-type", "")
        if status != "200" or not kind.startswith("application/grpc"):
            self._page = WebPage.of(headers)
        self._is_begun = True

    @property
    def is_begun(self) -> bool:
        """Whether the first headers were received: later ones are trailers."""
        return self._is_begun

    def add(self, content: bytes, size: int) -> None:
        """Add received bytes; `size` includes their padding."""
        self._progress.add(len(content))
        if self._page is not None:
            self.fail(self._page.error(content))
            return
        self._window -= size
        self._received += content
        if size > len(content):  # padding is nothing that a reader could request
            self._grant(size - len(content))
        self._wake()

    def yield_to_others(self, now: float) -> None:
        """Record that the connection is busy with other calls, at a time of the loop."""
        if self._progress.is_behind(now):
            self._is_behind = True
            self._wake()

    def end(self, trailers: dict[str, str]) -> None:
        """Set the final status."""
        if self._page is not None and "grpc-status" not in trailers:
            self.stop(self._page.error(b""))
            return
        self.stop(status_error(trailers))

    def stop(self, error: CallError | None) -> None:
        """Handle the end of the stream."""
        if not self._is_over:
            self._is_over, self._error, self._window = True, error, 0
            self._give_back()
            self._wake()

    def fail(self, error: CallError) -> None:
        """End the call at once; received bytes that were not read are dropped."""
        self._received = bytearray()
        if self._is_over:
            self._error = error
            self._give_back()
        else:
            self.stop(error)
            self._cancel()

    # ------------------------------------------------------------ inside

    def _end(self) -> None:
        """Return if the call ended with OK and a complete message; raises CallError."""
        if self._error is not None:
            raise self._error
        if self._received:
            raise _cut_short()

    def _refill(self) -> None:
        """Let the server send ahead again, once half of the window is used."""
        if self._is_over:
            self._give_back()
            return
        open_bytes = self._window + len(self._received)
        if open_bytes > (AHEAD_BYTES + self._extra) // 2:
            return
        if not self._window:  # the server may have had more to send
            self._extra += self._ahead.take(_BUSY_AHEAD_BYTES - AHEAD_BYTES - self._extra)
        elif len(self._received) < self._next:  # it had not
            self._give_back()
        if open_bytes < AHEAD_BYTES + self._extra:
            self._grant(AHEAD_BYTES + self._extra - open_bytes)

    def _give_back(self) -> None:
        """Return the part of the allowance that is not needed for received or expected bytes."""
        needed = max(0, self._window + len(self._received) - AHEAD_BYTES)
        if needed < self._extra:
            self._ahead.left += self._extra - needed
            self._extra = needed

    def _grant(self, size: int) -> None:
        size = min(size, _WINDOW_BYTES_MAX - self._window)
        if size > 0:
            self._window += size
            self._widen(size)

    def _was_behind(self) -> bool:
        was_behind, self._is_behind = self._is_behind, False
        return was_behind

    async def _change(self, *, in_message: bool = False) -> None:
        loop = asyncio.get_running_loop()
        self._progress.wait(loop.time(), in_message=in_message)
        self._waiter = loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

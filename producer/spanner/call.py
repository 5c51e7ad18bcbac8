"""One streaming call of gRPC over HTTP/2: its response messages, and how much of them may come.

A message begins with its size.  The server may send a little ahead on each stream
(`AHEAD_BYTES`), which holds the size of the next message and all of a small one; it may send the
rest only once the reader asked for the message, which it does when there is room.  So the memory of
many silent calls does not depend on what they will be sent.
"""

from __future__ import annotations

import asyncio
import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc
from h2.errors import ErrorCodes

from tidegate.producer.spanner.byte_progress import ByteProgress

AHEAD_BYTES = 4 << 10
"""What the server may send on a stream that nobody reads, and on one that is silent."""
_BUSY_AHEAD_BYTES = 64 << 10
"""The same on a stream whose messages are being read, as long as there is allowance."""

_WINDOW_BYTES_MAX = (1 << 31) - 1
"""HTTP/2's limit."""

WAITING = -1
"""Instead of a size: nothing came yet, and the connection brought bytes of other calls."""
_SHOWN_MAX = 200
RETRY_AFTER_HEADER = "retry-after"
"""A web page's header; an error has it among its trailers."""
_PREFIX = struct.Struct(">BI")
_CODES = {code.value[0]: code for code in grpc.StatusCode}
_OF_HTTP = {
    "400": grpc.StatusCode.INTERNAL,
    "401": grpc.StatusCode.UNAUTHENTICATED,
    "403": grpc.StatusCode.PERMISSION_DENIED,
    "404": grpc.StatusCode.UNIMPLEMENTED,
    **dict.fromkeys(("429", "502", "503", "504"), grpc.StatusCode.UNAVAILABLE),
}
_OF_ERROR_CODE: dict[int, grpc.StatusCode] = {
    ErrorCodes.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    ErrorCodes.CANCEL: grpc.StatusCode.CANCELLED,
    ErrorCodes.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCodes.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}


class CallError(grpc.RpcError):
    """A call that failed, as gRPC's own errors are read."""

    def __init__(
        self,
        code: grpc.StatusCode,
        details: str,
        *,
        trailers: Mapping[str, str] | None = None,
        is_web_page: bool = False,
    ) -> None:
        """Take the status; `is_web_page`: the answer had none of gRPC, and `code` is its HTTP's."""
        super().__init__(f"{code.name}: {details}")
        self._code, self._details = code, details
        self._trailers = tuple((trailers or {}).items())
        self.is_web_page = is_web_page

    def code(self) -> grpc.StatusCode:
        """Return the status."""
        return self._code

    def details(self) -> str:
        """Return the status's text."""
        return self._details

    def trailing_metadata(self) -> tuple[Any, ...]:
        """Return what came with the status; values of names that end with `-bin` are base64."""
        return self._trailers


def framed(message: bytes) -> bytes:
    """Return a request message as gRPC sends it."""
    return _PREFIX.pack(0, len(message)) + message


def cancelled() -> CallError:
    """Return the error of a call that this side ended."""
    return CallError(grpc.StatusCode.CANCELLED, "the call was cancelled")


def of_error_code(code: int, what: str) -> CallError:
    """Return the error for a stream that ended with a code of HTTP/2."""
    status = _OF_ERROR_CODE.get(code, grpc.StatusCode.INTERNAL)
    return CallError(status, f"{what} with HTTP/2's error code {code}")


def _cut_short() -> CallError:
    return CallError(grpc.StatusCode.INTERNAL, "the response ended within a message")


@dataclass(frozen=True, slots=True)
class _WebPage:
    """An answer that is not one of gRPC."""

    status: str
    kind: str
    server: str
    retry_after: str = ""

    @classmethod
    def of(cls, headers: Mapping[str, str]) -> _WebPage:
        """Take its headers."""
        server = headers.get("server", "") or headers.get("via", "")
        retry_after = headers.get(RETRY_AFTER_HEADER, "")
        return cls(headers.get(":status", ""), headers.get("content-type", ""), server, retry_after)

    def error(self, body: bytes) -> CallError:
        """Return the error that says what answered; `body` is how its content begins."""
        code = _OF_HTTP.get(self.status, grpc.StatusCode.UNKNOWN)
        by = f" by {self.server[:_SHOWN_MAX]!r}" if self.server else ""
        kind = f" of the type {self.kind[:_SHOWN_MAX]!r}" if self.kind else ""
        shown = " ".join(body[:_SHOWN_MAX].decode(errors="replace").split())
        text = f": {shown!r}" if shown else ""
        details = f"an answer without a gRPC status{by}: HTTP status {self.status}{kind}{text}"
        trailers = {RETRY_AFTER_HEADER: self.retry_after} if self.retry_after else None
        return CallError(code, details, trailers=trailers, is_web_page=True)


@dataclass(slots=True)
class ReadAhead:
    """The bytes beyond `AHEAD_BYTES` that all calls together may let their servers send ahead."""

    left: int = 4 << 20

    def take(self, size: int) -> int:
        """Return what there is of `size`, and take it."""
        taken = min(size, self.left)
        self.left -= taken
        return taken


class Call:
    """A call's response; for one reader, on one asyncio loop.

    `widen` lets the server send so many more bytes; `cancel` ends the call at the server.
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
        """What this call took of the allowance."""
        self._window = AHEAD_BYTES
        """What the server may still send."""
        self._received = bytearray()
        self._next = 0
        """The bytes of the message whose size was returned, with its prefix."""
        self._page: _WebPage | None = None
        self._is_begun = False
        self._is_over = False
        self._error: CallError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._progress = ByteProgress()
        self._is_behind = False

    # ------------------------------------------------------------ the reader's side

    async def next_size(self) -> int | None:
        """Wait for the next message to begin; return its size, None after the last.

        Returns WAITING after some seconds in which the connection is busy with other calls.
        Raises CallError if the call failed; complete messages come before that.
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
        """Let the message come whose size was returned, and return it; raises CallError.

        Returns None where bytes came fast enough and the message still lacks others `pause_s`
        seconds after the call, and where the connection is busy with other calls: the next call
        goes on.
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
            self._received = bytearray()  # a large one's memory is not kept
        else:
            del self._received[:last]
        self._refill()
        return message

    def cancel(self) -> None:
        """End the call; may be called more than once."""
        self.fail(cancelled())

    # ------------------------------------------------------------ the connection's side

    def begin(self, headers: dict[str, str]) -> None:
        """Take the response's first headers."""
        status, kind = headers.get(":status", ""), headers.get("content-type", "")
        if status != "200" or not kind.startswith("application/grpc"):
            self._page = _WebPage.of(headers)
        self._is_begun = True

    @property
    def is_begun(self) -> bool:
        """Whether the first headers have come: others are trailers."""
        return self._is_begun

    def add(self, content: bytes, size: int) -> None:
        """Take received bytes, which were `size` with their padding."""
        self._progress.add(len(content))
        if self._page is not None:
            self.fail(self._page.error(content))
            return
        self._window -= size
        self._received += content
        if size > len(content):  # padding is nothing that a reader could ask for
            self._grant(size - len(content))
        self._wake()

    def yield_to_others(self, now: float) -> None:
        """Take note that the connection is busy with other calls, at a time of the loop."""
        if self._progress.is_behind(now):
            self._is_behind = True
            self._wake()

    def end(self, trailers: dict[str, str]) -> None:
        """Take the status."""
        if self._page is not None and "grpc-status" not in trailers:
            self.stop(self._page.error(b""))
            return
        try:
            code = _CODES.get(int(trailers["grpc-status"]), grpc.StatusCode.UNKNOWN)
        except (KeyError, ValueError):
            self.stop(CallError(grpc.StatusCode.UNKNOWN, "the response ended without a status"))
            return
        details = unquote(trailers.get("grpc-message", ""))
        failed = CallError(code, details, trailers=trailers)
        self.stop(None if code is grpc.StatusCode.OK else failed)

    def stop(self, error: CallError | None) -> None:
        """Take the end of the stream: nothing comes any more."""
        if not self._is_over:
            self._is_over, self._error, self._window = True, error, 0
            self._give_back()
            self._wake()

    def fail(self, error: CallError) -> None:
        """End the call at once; what came and was not read is dropped."""
        self._received = bytearray()
        if self._is_over:
            self._error = error
            self._give_back()
        else:
            self.stop(error)
            self._cancel()

    # ------------------------------------------------------------ inside

    def _end(self) -> None:
        """Return if the call ended with OK and a whole message; raises CallError."""
        if self._error is not None:
            raise self._error
        if self._received:
            raise _cut_short()

    def _refill(self) -> None:
        """Let the server send ahead again, once half of that is used."""
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
        """Return what is not needed of the allowance for what came or may come."""
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

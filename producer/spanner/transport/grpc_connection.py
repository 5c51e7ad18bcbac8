"""A gRPC connection with many streaming calls, as an alternative to `h2`; for one asyncio loop.

gRPC returns a message when all of it has arrived, so the size of a message is known only after its
receipt.  A call receives one message at a time, and the next one when the reader asks for it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from typing import Any

import grpc
import grpc.aio

from tidegate.producer.spanner.transport.endpoint import Endpoint
from tidegate.producer.spanner.transport.status import CallError

_SILENT_S = 5.0
"""Equal to the shortest silence after which a query counts as stalled."""
_STREAMS_MAX = 1 << 31
"""gRPC does not report how many calls the server accepts; calls beyond that wait in the client."""
_STREAM_OPTIONS: tuple[tuple[str, int], ...] = (
    # Otherwise gRPC lets a server send mebibytes ahead on a fast connection.
    ("grpc.http2.bdp_probe", 0),
)


class GrpcCall:
    """The response of one call; for one reader."""

    def __init__(self, call: Any, connection: GrpcConnection) -> None:
        self._call = call
        self._connection = connection
        self._message: bytes | None = None

    async def next_size(self) -> int | None:
        """Wait for the next message; return its size, None after the last.

        Raises `grpc.RpcError` if the call failed.
        """
        if self._message is None:
            message = await self._received()
            if message is grpc.aio.EOF:  # type: ignore[attr-defined]  # the stubs lack it
                return None
            self._message = message
        return len(self._message)

    async def read(self, *, pause_s: float = math.inf) -> bytes:  # noqa: ARG002 - it has arrived
        """Return the message whose size was returned."""
        message, self._message = self._message, None
        assert message is not None, "`next_size` comes first"  # noqa: S101 - the port says so
        return message

    def cancel(self) -> None:
        """End the call; may be called more than once."""
        self._message = None
        if self._call.cancel():
            self._connection.leave_if_silent()

    async def _received(self) -> Any:
        try:
            message = await self._call.read()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The call was cancelled, not its reader.
            raise CallError.cancelled() from None
        self._connection.heard()
        return message


class GrpcConnection:
    """A connection to an endpoint, opened by its first call."""

    streams_max = _STREAMS_MAX

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._channel: grpc.aio.Channel | None = None
        self._closing: asyncio.Task[None] | None = None
        self._heard_at = 0.0
        self._is_suspect = False

    @property
    def is_usable(self) -> bool:
        """Whether new calls may be made: not after a silence in which a call was given up."""
        return self._closing is None and not self._is_suspect

    async def call(
        self, path: str, message: bytes, metadata: Iterable[tuple[str, str]]
    ) -> GrpcCall:
        """Send a request; the call reports the outcome."""
        if self._channel is None:
            self._channel = self._open()
            self.heard()
        begin = self._channel.unary_stream(path, None, None)
        return GrpcCall(begin(message, metadata=tuple(metadata)), self)

    def heard(self) -> None:
        """Record that the server sent something."""
        self._heard_at = asyncio.get_running_loop().time()
        self._is_suspect = False

    def leave_if_silent(self) -> None:
        """Accept no more calls after a silence: a network may have dropped the connection."""
        if asyncio.get_running_loop().time() - self._heard_at >= _SILENT_S:
            self._is_suspect = True

    def close(self) -> None:
        """End the connection and its calls in the next step of the loop."""
        if self._channel is not None and self._closing is None:
            self._closing = asyncio.create_task(self._channel.close(None))

    def _open(self) -> grpc.aio.Channel:
        endpoint = self._endpoint
        options = [*endpoint.channel_options(), *_STREAM_OPTIONS]
        credentials = endpoint.channel_credentials()
        if credentials is None:
            return grpc.aio.insecure_channel(endpoint.address, options=options)
        return grpc.aio.secure_channel(endpoint.address, credentials, options=options)

"""One HTTP/2 connection to Spanner, with many streaming calls; for one asyncio loop.

The connection opens with the first call.  The library `h2` implements the protocol; this module
adds gRPC's use of it and the flow control.  A connection never holds bytes back itself, each call
does (`call`): a call that is not read must not block the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

import grpc
import h2
from h2.config import H2Configuration
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    Event,
    RemoteSettingsChanged,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    TrailersReceived,
    WindowUpdated,
)
from h2.exceptions import NoAvailableStreamIDError, ProtocolError, TooManyStreamsError
from h2.settings import SettingCodes, Settings

from tidegate.producer.spanner.transport.call import (
    AHEAD_BYTES,
    Call,
    ReadAhead,
    framed,
)
from tidegate.producer.spanner.transport.endpoint import Endpoint
from tidegate.producer.spanner.transport.status import CallError


class DrainingConnection(H2Connection):
    """Works like `H2Connection`, but after a GOAWAY streams may still send and receive.

    `h2` treats a GOAWAY as the end of the connection.  Servers send it to replace an old
    connection, and finish its streams: otherwise every query of a worker would fail with its
    connection.
    """

    def __init__(self, config: H2Configuration) -> None:
        super().__init__(config)
        self.state_machine = _DrainingStateMachine()

    def clear_outbound_data_buffer(self) -> None:
        """Keep unsent bytes, which `h2` drops at a GOAWAY."""


class _DrainingStateMachine(H2ConnectionStateMachine):
    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        if input_ is ConnectionInputs.RECV_GOAWAY:
            return []
        return super().process_input(input_)


_CONNECT_TIMEOUT_S = 20.0
_KEEPALIVE_S = 120.0
"""As in the client libraries: servers end connections that ping much more often."""
_KEEPALIVE_TIMEOUT_S = 20.0
_CLOSE_PATIENCE_S = 5.0
"""For unsent bytes when the connection ends: a peer that does not read never receives them."""
_SILENT_S = 5.0
"""Equal to the shortest silence after which a query counts as stalled."""
_WINDOW_BYTES = 16 << 20
_FIRST_WINDOW_BYTES = 65_535
"""A connection's window until its first update."""
_HEADER_BYTES_MAX = 64 << 10
_BUSY_BYTES_PER_S = 64 << 10
"""More than the heartbeats of all calls of a connection need."""
_LOOK_EVERY_S = 1.0
_SAID_BYTES_MAX = 500
_USER_AGENT = f"grpc-python-h2/{h2.__version__} (tidegate-producer)"


class NotSentError(CallError):
    """The connection accepts no more calls; another one may."""


class Connection(asyncio.Protocol):
    """A connection to an endpoint; `is_usable` for new calls until it fails or the server leaves.

    Calls share `ahead`, the bytes that their servers may send ahead.
    """

    def __init__(self, endpoint: Endpoint, ahead: ReadAhead) -> None:
        self._endpoint = endpoint
        self._ahead = ahead
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._is_ready: asyncio.Future[None] | None = None
        self._http2 = _new_state()
        self._calls: dict[int, Call] = {}
        self._error: CallError | None = None
        self._is_draining = False
        self._is_suspect = False
        self._goaway = ""
        """The server's GOAWAY, as the end of an error's text."""
        self._unacknowledged = 0
        self._is_flushing = False
        self._keepalive: asyncio.TimerHandle | None = None
        self._received_at = 0.0
        self._looked_at = 0.0
        self._received_bytes = 0
        """Since `_looked_at`."""
        self._wider = asyncio.Event()
        """Set when the server may have opened a window for a request."""

    @property
    def is_usable(self) -> bool:
        """Whether new calls may be made.

        Not on a connection that was silent when a call on it was given up: a network may have
        dropped it without notice.  Received bytes make it usable again.
        """
        return self._error is None and not self._is_draining and not self._is_suspect

    @property
    def streams_max(self) -> int:
        """The number of concurrent calls that the server accepts, as far as known."""
        return self._http2.remote_settings.max_concurrent_streams

    async def call(self, path: str, message: bytes, metadata: Iterable[tuple[str, str]]) -> Call:
        """Send a request.

        Raises NotSentError if the connection accepts no more calls, and CallError if there is no
        connection.
        """
        await self._open()
        if self._is_draining or len(self._calls) >= self.streams_max:
            raise _not_sent()
        try:
            stream = self._http2.get_next_available_stream_id()
        except NoAvailableStreamIDError:
            self._is_draining = True
            raise _not_sent() from None
        try:
            self._http2.send_headers(stream, self._request_headers(path, metadata))
        except TooManyStreamsError:  # an ended call may not be reset yet
            raise _not_sent() from None
        except ProtocolError as error:  # the header table of the server is unknown now
            self._break(f"a request's metadata was refused: {error}")
            raise self._error or error from error
        call = Call(
            widen=lambda size: self._widen(stream, size),
            cancel=lambda: self._cancel(stream),
            ahead=self._ahead,
        )
        self._calls[stream] = call
        self._send()
        try:
            await self._send_body(stream, framed(message))
        except asyncio.CancelledError:
            call.cancel()
            raise
        return call

    def close(self) -> None:
        """End the connection and its calls."""
        if self._error is None:
            with suppress(ProtocolError):
                self._http2.close_connection()
        self._fail(CallError(grpc.StatusCode.CANCELLED, "the connection was closed"))

    # ------------------------------------------------------------ opening

    async def _open(self) -> None:
        """Wait until there is a connection and the server's settings; one attempt for all calls."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
        # A cancelled call must end only its own wait.
        await asyncio.shield(self._opening)
        if self._error is not None:
            raise self._error

    async def _connect(self) -> None:
        self._is_ready = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self._endpoint.connect(lambda: self)
                await self._is_ready
        # TLS errors are of the first kind, an invalid proxy address of the last.
        except (OSError, TimeoutError, ValueError) as error:
            reason = str(error) or type(error).__name__
            self._fail(_unavailable(f"no connection to {self._endpoint.address}: {reason}"))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the preface."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - for the type only
        self._transport = transport
        if self._error is not None:  # it was closed meanwhile
            transport.abort()
            return
        if not self._endpoint.speaks_http2(transport):
            self._fail(_unavailable(f"{self._endpoint.address} does not speak HTTP/2"))
            return
        self._http2.initiate_connection()
        self._http2.increment_flow_control_window(_WINDOW_BYTES - _FIRST_WINDOW_BYTES)
        self._send()
        self._received_at = asyncio.get_running_loop().time()
        self._keep_alive()

    def _request_headers(
        self, path: str, metadata: Iterable[tuple[str, str]]
    ) -> list[tuple[str, str]]:
        return [
            (":method", "POST"),
            (":scheme", self._endpoint.scheme),
            (":path", path),
            (":authority", self._endpoint.authority),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", _USER_AGENT),
            *metadata,
        ]

    # ------------------------------------------------------------ sending

    def _send(self) -> None:
        """Send the bytes that `h2` has prepared, with others sent in the same step of the loop."""
        if not self._is_flushing:
            self._is_flushing = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        data = self._http2.data_to_send()
        if data and self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def pause_writing(self) -> None:
        """Stop reading from a server that does not read the answers to its frames."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Resume reading."""
        if self._transport is not None:
            self._transport.resume_reading()

    async def _send_body(self, stream: int, body: bytes) -> None:
        """Send a request's body as far as the server's windows allow, then the rest."""
        while stream in self._calls:
            window = self._http2.local_flow_control_window(stream)
            size = min(len(body), self._http2.max_outbound_frame_size, window)
            if size <= 0:
                self._wider.clear()
                await self._wider.wait()
                continue
            part, body = body[:size], body[size:]
            self._http2.send_data(stream, part, end_stream=not body)
            self._send()
            if not body:
                return
        self._reset(stream)  # the server answered before it received all

    def _widen(self, stream: int, size: int) -> None:
        if stream in self._calls:
            with suppress(ProtocolError):  # its end was received and is not handled yet
                self._http2.increment_flow_control_window(size, stream)
                self._send()

    def _cancel(self, stream: int) -> None:
        if self._forget(stream) is not None:
            if asyncio.get_running_loop().time() - self._received_at >= _SILENT_S:
                self._is_suspect = True
            self._reset(stream)

    def _reset(self, stream: int) -> None:
        with suppress(ProtocolError):  # it has ended
            self._http2.reset_stream(stream, ErrorCodes.CANCEL)
            self._send()

    def _keep_alive(self) -> None:
        """Send a ping after a silence; end the connection if nothing follows."""
        loop = asyncio.get_running_loop()
        heard_at = self._received_at

        def give_up() -> None:
            if self._received_at == heard_at:
                self._fail(_unavailable(f"the server did not answer a ping{self._goaway}"))
            else:
                self._keep_alive()

        rest_s = heard_at + _KEEPALIVE_S - loop.time()
        if rest_s > 0:
            self._keepalive = loop.call_later(rest_s, self._keep_alive)
            return
        self._http2.ping(bytes(8))
        self._send()
        self._keepalive = loop.call_later(_KEEPALIVE_TIMEOUT_S, give_up)

    # ------------------------------------------------------------ receiving

    def data_received(self, data: bytes) -> None:
        """Handle received bytes."""
        if self._error is not None:
            return
        self._received_at = now = asyncio.get_running_loop().time()
        self._is_suspect = False
        self._received_bytes += len(data)
        if now - self._looked_at >= _LOOK_EVERY_S:
            self._look(now)
        try:
            for event in self._http2.receive_data(data):
                if type(event) is DataReceived:
                    self._take_data(event)
                else:
                    self._take(event)
        except ProtocolError as error:
            self._break(f"HTTP/2: {error}")
        else:
            self._send()

    def _look(self, now: float) -> None:
        """Notify the waiting calls if others keep the connection busy."""
        if self._received_bytes >= _BUSY_BYTES_PER_S * (now - self._looked_at):
            for call in self._calls.values():
                call.yield_to_others(now)
        self._looked_at, self._received_bytes = now, 0

    def connection_lost(self, exc: Exception | None) -> None:
        """End all calls."""
        reason = f": {exc}" if exc else ""
        lost = f"the connection to {self._endpoint.address} was lost{reason}"
        self._fail(_unavailable(lost + self._goaway))

    def _take_data(self, event: DataReceived) -> None:
        size = event.flow_controlled_length or 0
        self._unacknowledged += size
        if self._unacknowledged >= _WINDOW_BYTES // 2:
            self._http2.increment_flow_control_window(self._unacknowledged)
            self._unacknowledged = 0
        call = self._calls.get(event.stream_id or 0)
        if call is not None:
            call.add(event.data or b"", size)

    def _take(self, event: Event) -> None:
        match event:
            case ResponseReceived():
                self._take_headers(event)
            case TrailersReceived():
                self._end(event.stream_id, _texts(event.headers))
            case StreamEnded():
                self._end(event.stream_id, {})
            case StreamReset():
                call = self._forget(event.stream_id)
                if call is not None:
                    origin = "the server" if event.remote_reset else "a breach of HTTP/2's rules"
                    reason = f"{origin} ended the call{self._goaway}"
                    call.stop(CallError.reset(int(event.error_code or 0), reason))
            case RemoteSettingsChanged():
                self._wider.set()
                if self._is_ready is not None and not self._is_ready.done():
                    self._is_ready.set_result(None)
            case WindowUpdated():
                self._wider.set()
            case ConnectionTerminated():
                self._take_goaway(event)
            case _:
                pass  # `h2` has answered it, or it needs no answer

    def _take_headers(self, event: ResponseReceived) -> None:
        call = self._calls.get(event.stream_id or 0)
        if call is None:
            return
        headers = _texts(event.headers)
        if event.stream_ended is not None and "grpc-status" in headers:
            self._end(event.stream_id, headers)
        else:
            call.begin(headers)

    def _end(self, stream: int | None, trailers: dict[str, str]) -> None:
        call = self._forget(stream)
        if call is not None:
            call.end(trailers)

    def _forget(self, stream: int | None) -> Call | None:
        self._wider.set()
        return self._calls.pop(stream or 0, None)

    def _take_goaway(self, event: ConnectionTerminated) -> None:
        """Make no more calls; the calls that the server did not accept fail."""
        self._is_draining = True
        code = event.error_code
        debug_text = (event.additional_data or b"")[:_SAID_BYTES_MAX].decode(errors="replace")
        name = code.name if isinstance(code, ErrorCodes) else code
        details = f"the server takes no more calls ({name}) {debug_text}".rstrip()
        self._goaway = f", after {details}"
        last = event.last_stream_id or 0
        for stream in [number for number in self._calls if number > last]:
            call = self._forget(stream)
            if call is not None:
                call.stop(_unavailable(details))

    def _break(self, details: str) -> None:
        self._fail(CallError(grpc.StatusCode.INTERNAL, details))

    def _fail(self, error: CallError) -> None:
        """End the connection and all calls."""
        if self._error is not None:
            return
        self._error = error
        if self._keepalive is not None:
            self._keepalive.cancel()
        calls, self._calls = self._calls, {}
        self._wider.set()
        for call in calls.values():
            call.stop(error)
        if self._is_ready is not None and not self._is_ready.done():
            self._is_ready.set_result(None)
        if self._transport is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._flush()
                self._transport.close()
                loop = asyncio.get_running_loop()
                loop.call_later(_CLOSE_PATIENCE_S, self._transport.abort)


def _new_state() -> DrainingConnection:
    state = DrainingConnection(H2Configuration(client_side=True))
    # With the first settings, which apply at once: later changes apply once the server agrees.
    state.local_settings = Settings(
        client=True,
        initial_values={
            SettingCodes.ENABLE_PUSH: 0,
            SettingCodes.INITIAL_WINDOW_SIZE: AHEAD_BYTES,
            SettingCodes.MAX_HEADER_LIST_SIZE: _HEADER_BYTES_MAX,
        },
    )
    return state


def _not_sent() -> NotSentError:
    return NotSentError(grpc.StatusCode.UNAVAILABLE, "the connection takes no more calls")


def _unavailable(details: str) -> CallError:
    return CallError(grpc.StatusCode.UNAVAILABLE, details)


def _texts(headers: Sequence[tuple[bytes | str, bytes | str]] | None) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in headers or ()}


def _text(value: bytes | str) -> str:
    return value if isinstance(value, str) else value.decode(errors="replace")

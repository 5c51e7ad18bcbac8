"""Connections to one Spanner database: channels, the session, and the errors they raise.

Calls the service with the generated messages over plain gRPC channels, because the client library
decodes every value several times and its `Client()` sends requests on its own.  Opens more channels
as queries grow in number: a connection carries about a hundred streams.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.cloud.spanner_v1.types import (
    CreateSessionRequest,
    ExecuteSqlRequest,
    ResultSet,
    Session,
)

from tidegate.producer.errors import QueryError, QueryInterrupted, QueryRefused
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["STREAMS_PER_CHANNEL_MAX", "ResponseStream", "SpannerChannels", "rpc_error"]

STREAMS_PER_CHANNEL_MAX = 90
"""The service allows about a hundred on one connection; some room is left for unary calls."""

_SERVICE = "/google.spanner.v1.Spanner/"
_ENDPOINT = "spanner.googleapis.com:443"
_SCOPES = ("https://www.googleapis.com/auth/spanner.data",)
_SESSION_TIMEOUT_S = 20.0
_KEEPALIVE_MS = 120_000
"""As the client libraries: servers end connections that ping much more often."""
_RETRIABLE = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    # The connection broke during the call, or a proxy ended it.
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.UNKNOWN,
}
_HINTS = {
    grpc.StatusCode.PERMISSION_DENIED: (
        "Grant the worker's account spanner.databases.select on the database; with a database "
        "role, also SELECT on the change stream and EXECUTE on its READ function"
    ),
    grpc.StatusCode.UNAUTHENTICATED: (
        "Give the worker credentials (GOOGLE_APPLICATION_CREDENTIALS, or the host's own account)"
    ),
    grpc.StatusCode.NOT_FOUND: "Check the settings project, instance, database and change_stream",
    grpc.StatusCode.INVALID_ARGUMENT: "Check the setting change_stream and what the message names",
}
_SESSION_NOT_FOUND = re.compile("session (was )?not found", re.IGNORECASE)


def rpc_error(error: grpc.RpcError, *, what: str, **fields: object) -> QueryError:
    """Return the error for a failed call; `what` is the attempted action."""
    code: grpc.StatusCode = error.code()
    details = str(error.details() or "")
    lost_session = code is grpc.StatusCode.NOT_FOUND and _SESSION_NOT_FOUND.search(details)
    kind = QueryInterrupted if code in _RETRIABLE or lost_session else QueryRefused
    where: dict[str, Any] = {"code": code.name, "details": details, **fields}
    return kind(f"could not {what}", hint=_HINTS.get(code, ""), **where)


@dataclass(slots=True)
class _Channel:
    """One connection and the number of response streams on it."""

    channel: grpc.Channel
    streams: int = 0


class ResponseStream:
    """The response messages of one streaming query.

    Any thread may `cancel`; `close`, or reading to the end, releases the place on the channel.
    """

    def __init__(self, call: Any, give_back: Callable[[], None]) -> None:
        self._call = call
        self._give_back = give_back

    def __iter__(self) -> Iterator[bytes]:
        """Yield serialised `PartialResultSet`s; raises `grpc.RpcError` if the call fails."""
        try:
            yield from self._call
        finally:
            self.close()

    def cancel(self) -> None:
        """End the call; the iteration fails with status CANCELLED."""
        self._call.cancel()

    def close(self) -> None:
        """End the call if it still runs; may be called more than once."""
        self._call.cancel()
        self._give_back()


class SpannerChannels:
    """Channels to one database, and the multiplexed session that all its queries share.

    `emulator_host` is `host:port` of an emulator or simulator, reached in plaintext without
    credentials; empty means the service, with the host's default credentials.
    """

    def __init__(self, *, database: str, emulator_host: str = "", database_role: str = "") -> None:
        self.database = database
        self._emulator_host = emulator_host
        self._database_role = database_role
        self._credentials: grpc.ChannelCredentials | None = None
        self._channels: list[_Channel] = []
        self._session = ""
        self._lock = threading.Lock()
        self._session_lock = threading.Lock()

    def execute_sql(self, request: Any, *, timeout_s: float) -> Any:
        """Run a query and return its `ResultSet`; raises QueryError."""
        session = self.session(timeout_s=timeout_s)
        request.session = session
        try:
            return self._unary("ExecuteSql", ExecuteSqlRequest, ResultSet)(
                request, timeout=timeout_s, metadata=self._metadata(session)
            )
        except grpc.RpcError as error:
            raise self.failed(error, session, what="query Spanner") from error

    def stream_sql(self, request: Any, session: str) -> ResponseStream:
        """Begin a streaming query without a deadline, on the channel with the most room."""
        request.session = session
        place = self._place()
        call = place.channel.unary_stream(
            _SERVICE + "ExecuteStreamingSql",
            request_serializer=ExecuteSqlRequest.pb().SerializeToString,
            # Decoded by the reader, once there is room for it.
            response_deserializer=None,
        )(request, metadata=self._metadata(session))
        held = [place]

        def give_back() -> None:
            with self._lock:
                if held:
                    held.pop().streams -= 1

        return ResponseStream(call, give_back)

    def session(self, *, timeout_s: float = _SESSION_TIMEOUT_S) -> str:
        """Return the session's name; creates it if there is no session.  Raises QueryError."""
        with self._session_lock:
            if not self._session:
                template = {"multiplexed": True, "creator_role": self._database_role}
                request = CreateSessionRequest.pb()(database=self.database, session=template)
                metadata = (
                    ("google-cloud-resource-prefix", self.database),
                    ("x-goog-request-params", f"database={self.database}"),
                )
                try:
                    self._session = self._unary("CreateSession", CreateSessionRequest, Session)(
                        request, timeout=timeout_s, metadata=metadata
                    ).name
                except grpc.RpcError as error:
                    what = "open a session in Spanner"
                    raise rpc_error(error, what=what, database=self.database) from error
            return self._session

    def failed(
        self, error: grpc.RpcError, session: str, *, what: str, **fields: object
    ) -> QueryError:
        """Return the error for a failed call; a session that is gone is re-created next time."""
        translated = rpc_error(error, what=what, database=self.database, **fields)
        if translated.retriable and translated.code == "NOT_FOUND":
            with self._session_lock:
                if self._session == session:
                    self._session = ""
        return translated

    def close(self) -> None:
        """Close all channels; calls that still run end with CANCELLED."""
        with self._lock:
            channels, self._channels = self._channels, []
        for place in channels:
            place.channel.close()

    def _metadata(self, session: str) -> tuple[tuple[str, str], ...]:
        return (
            ("google-cloud-resource-prefix", self.database),
            ("x-goog-request-params", f"session={session}"),
        )

    def _unary(self, method: str, request: Any, response: Any) -> Any:
        with self._lock:
            place = self._channels[0] if self._channels else self._add_channel()
        return place.channel.unary_unary(
            _SERVICE + method,
            request_serializer=request.pb().SerializeToString,
            response_deserializer=response.pb().FromString,
        )

    def _place(self) -> _Channel:
        """Take a place for one stream, on a new channel when all are full."""
        with self._lock:
            place = min(self._channels, key=lambda channel: channel.streams, default=None)
            if place is None or place.streams >= STREAMS_PER_CHANNEL_MAX:
                place = self._add_channel()
            place.streams += 1
            return place

    def _add_channel(self) -> _Channel:
        """Open a channel with a connection of its own; the caller holds the lock."""
        options: list[tuple[str, int]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # Channels with equal options would share one connection, and its limit of streams.
            ("grpc.use_local_subchannel_pool", 1),
            # The reading thread takes messages itself: half the cost at one row a message.
            ("SingleThreadedUnaryStream", 1),
            # Else a stream's window grows with the speed of the line, to hundreds of megabytes that
            # the reader did not ask for yet.
            ("grpc.http2.bdp_probe", 0),
            # A connection that a network dropped without a word ends the calls on it. Pings go on
            # however long nothing is sent: a query sends its request once and only reads then.
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if self._emulator_host:
            channel = grpc.insecure_channel(self._emulator_host, options=options)
        else:
            channel = grpc.secure_channel(_ENDPOINT, self._channel_credentials(), options=options)
        place = _Channel(channel)
        self._channels.append(place)
        return place

    def _channel_credentials(self) -> grpc.ChannelCredentials:
        """Return TLS with the host's default credentials, found once."""
        if self._credentials is None:
            # Only where credentials are used: these modules reach for the network and the disk.
            import google.auth  # noqa: PLC0415
            import google.auth.exceptions  # noqa: PLC0415
            import google.auth.transport.grpc  # noqa: PLC0415
            import google.auth.transport.requests  # noqa: PLC0415

            try:
                found, _ = google.auth.default(scopes=_SCOPES)
            except google.auth.exceptions.DefaultCredentialsError as error:
                raise ConfigError(
                    "no credentials for Spanner were found",
                    hint="Set GOOGLE_APPLICATION_CREDENTIALS, or SPANNER_EMULATOR_HOST",
                ) from error
            plugin = google.auth.transport.grpc.AuthMetadataPlugin(  # type: ignore[no-untyped-call]
                found, google.auth.transport.requests.Request()
            )
            self._credentials = grpc.composite_channel_credentials(
                grpc.ssl_channel_credentials(), grpc.metadata_call_credentials(plugin)
            )
        return self._credentials

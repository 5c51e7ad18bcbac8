"""Connections to one Spanner database: channels, the session, and the errors they raise.

Calls the service with the generated messages over plain gRPC channels, because the client library
decodes every value several times and its `Client()` sends requests on its own.  Unary calls have a
connection of their own; those of streaming queries are in `stream_channels`.
"""

from __future__ import annotations

import asyncio
import re
import threading
from typing import TYPE_CHECKING, Any

import grpc
from google.cloud.spanner_v1.types import (
    CreateSessionRequest,
    ExecuteSqlRequest,
    ResultSet,
    Session,
)

from tidegate.producer.errors import QueryError, QueryInterrupted, QueryRefused
from tidegate.producer.spanner.stream_channels import StreamChannels
from tidegate.schemas.errors import ConfigError

if TYPE_CHECKING:
    from tidegate.producer.spanner.stream_channels import ResponseStream

__all__ = ["SpannerChannels", "rpc_error"]

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
        self._unary_channel: grpc.Channel | None = None
        self._streams = StreamChannels(lambda: self._open(grpc.aio))
        self._session = ""
        self._lock = threading.Lock()
        self._session_lock = threading.Lock()
        self._session_turn = asyncio.Lock()
        """Of the queries that start together one asks for the session."""

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
        """Begin a streaming query without a deadline, on the running asyncio loop."""
        request.session = session
        return self._streams.call(
            _SERVICE + "ExecuteStreamingSql",
            request.SerializeToString(),
            metadata=self._metadata(session),
        )

    def session(self, *, timeout_s: float = _SESSION_TIMEOUT_S) -> str:
        """Return the session's name; creates it if there is no session.  Raises QueryError."""
        with self._session_lock:
            if not self._session:
                try:
                    self._session = self._unary("CreateSession", CreateSessionRequest, Session)(
                        self._session_request(),
                        timeout=timeout_s,
                        metadata=self._metadata_of_the_database(),
                    ).name
                except grpc.RpcError as error:
                    raise self._no_session(error) from error
            return self._session

    async def stream_session(self) -> str:
        """Return as `session` does, for a query on the running asyncio loop."""
        async with self._session_turn:
            if not self._session:
                try:
                    answer = await self._streams.call_once(
                        _SERVICE + "CreateSession",
                        self._session_request().SerializeToString(),
                        self._metadata_of_the_database(),
                        timeout_s=_SESSION_TIMEOUT_S,
                    )
                except grpc.RpcError as error:
                    raise self._no_session(error) from error
                self._session = Session.pb().FromString(answer).name
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
        """Close all channels; calls that still run end."""
        with self._lock:
            channel, self._unary_channel = self._unary_channel, None
        if channel is not None:
            channel.close()
        self._streams.close()

    def _session_request(self) -> Any:
        template = {"multiplexed": True, "creator_role": self._database_role}
        return CreateSessionRequest.pb()(database=self.database, session=template)

    def _no_session(self, error: grpc.RpcError) -> QueryError:
        return rpc_error(error, what="open a session in Spanner", database=self.database)

    def _metadata_of_the_database(self) -> tuple[tuple[str, str], ...]:
        return (
            ("google-cloud-resource-prefix", self.database),
            ("x-goog-request-params", f"database={self.database}"),
        )

    def _metadata(self, session: str) -> tuple[tuple[str, str], ...]:
        return (
            ("google-cloud-resource-prefix", self.database),
            ("x-goog-request-params", f"session={session}"),
        )

    def _unary(self, method: str, request: Any, response: Any) -> Any:
        with self._lock:
            if self._unary_channel is None:
                self._unary_channel = self._open(grpc)
            channel = self._unary_channel
        return channel.unary_unary(
            _SERVICE + method,
            request_serializer=request.pb().SerializeToString,
            response_deserializer=response.pb().FromString,
        )

    def _open(self, api: Any) -> Any:
        """Return a channel of `grpc` or `grpc.aio` with a connection of its own."""
        options: list[tuple[str, int]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # Channels with equal options would share one connection, and its limit of streams.
            ("grpc.use_local_subchannel_pool", 1),
            # Else a stream's window grows with the speed of the line, to hundreds of megabytes that
            # the reader did not ask for yet.
            ("grpc.http2.bdp_probe", 0),
            # A connection that a network dropped without a word ends the calls on it. Pings go on
            # however long nothing is sent: a query sends its request once and only reads then.
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        if self._emulator_host:
            return api.insecure_channel(self._emulator_host, options=options)
        return api.secure_channel(_ENDPOINT, self._channel_credentials(), options=options)

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

"""Connections to one Spanner database: channels, the session, and the errors they raise.

Calls the service with the generated messages over plain gRPC channels, because the client library
decodes every value several times and its `Client()` sends requests on its own.  Unary calls have a
connection of their own, gRPC's; those of streaming queries are in `stream_channels`.
"""

from __future__ import annotations

import asyncio
import platform
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import grpc

from tidegate.producer.errors import QueryError, QueryInterrupted, QueryRefused
from tidegate.producer.spanner.api_messages import (
    CreateSessionRequest,
    ExecuteSqlRequest,
    PartitionReadRequest,
    PartitionResponse,
    ResultSet,
    Session,
)
from tidegate.producer.spanner.authorization import Authorization
from tidegate.producer.spanner.call import ReadAhead
from tidegate.producer.spanner.connection import Connection
from tidegate.producer.spanner.endpoint import Endpoint
from tidegate.producer.spanner.status_details import (
    asked_pause_us,
    is_lost_session,
    is_rejection,
    is_web_page,
)
from tidegate.producer.spanner.stream_channels import ResponseStream, StreamChannels
from tidegate.producer.spanner.tls import Tls
from tidegate.program.calls import Rejections
from tidegate.version import __version__

ENDPOINT_DEFAULT = "spanner.googleapis.com:443"
_SERVICE = "/google.spanner.v1.Spanner/"
_SESSION_TIMEOUT_S = 20.0
_API_CLIENT = f"tidegate/{__version__} gl-python/{platform.python_version()}"
"""As Google's clients name themselves; their libraries (`gax`, `gapic`) make no call here."""
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
        "Give the worker credentials (GOOGLE_APPLICATION_CREDENTIALS, or the host's own account); "
        "with Spanner Omni a certificate of its user (spanner_client_cert)"
    ),
    grpc.StatusCode.NOT_FOUND: "Check the settings project, instance, database and change_stream",
    grpc.StatusCode.INVALID_ARGUMENT: "Check the setting change_stream and what the message names",
}
_PAGE_HINT = (
    "What answered is not Spanner: check the settings endpoint and SPANNER_EMULATOR_HOST, and the "
    "load balancers and proxies on the way"
)
_REJECTED_PAUSES_S = (0.2, 1.0, 3.0)
"""Before a unary call is repeated that was rejected; a worker repeats its queries for longer."""


def rpc_error(
    error: grpc.RpcError, *, what: str, may_pass: bool = False, **fields: object
) -> QueryError:
    """Return the error for a failed call; `what` is the attempted action.

    It is retriable if its status is, if its session is lost, or if `may_pass`.
    """
    code: grpc.StatusCode = error.code()
    details = str(error.details() or "")
    may_pass = may_pass or code in _RETRIABLE or is_lost_session(error)
    kind = QueryInterrupted if may_pass else QueryRefused
    where: dict[str, Any] = {"code": code.name, "details": details, **fields}
    pause_us = asked_pause_us(error)
    if pause_us:
        where["pause_us"] = pause_us
    hint = _PAGE_HINT if is_web_page(error) else _HINTS.get(code, "")
    return kind(f"could not {what}", hint=hint, **where)


class SpannerChannels:
    """Channels to one database, and the multiplexed session that all its queries share.

    `emulator_host` is `host:port` of an emulator or simulator, reached in plaintext without
    credentials; empty means the service, with the host's default credentials.  One that `tls` says
    is of a deployment of one's own knows no accounts of Google's: calls carry no credentials of
    them, unless `credentials_file` has some.
    """

    def __init__(
        self,
        *,
        database: str,
        emulator_host: str = "",
        database_role: str = "",
        endpoint: str = ENDPOINT_DEFAULT,
        credentials_file: str = "",
        tls: Tls | None = None,
    ) -> None:
        self.database = database
        self._tls = tls or Tls()
        self._is_signed = not emulator_host and (
            bool(credentials_file) or not self._tls.is_of_deployment
        )
        self._emulator_host = emulator_host
        self._database_role = database_role
        self._service = endpoint
        # The audience of the credentials is the service, whatever address it is reached at.
        audience = f"https://{ENDPOINT_DEFAULT.partition(':')[0]}/"
        self._authorization = Authorization(audience, credentials_file=credentials_file)
        self._rejections = Rejections()
        self._unary_channel: grpc.Channel | None = None
        self._ahead = ReadAhead()
        self._streams = StreamChannels(lambda: Connection(self._endpoint(), self._ahead))
        self._endpoint_of_streams: Endpoint | None = None
        self._session = ""
        self._lock = threading.Lock()
        self._session_lock = threading.Lock()
        self._session_turn = asyncio.Lock()
        """One of the queries that start together asks for the session, with one thread."""

    def execute_sql(self, request: Any, *, timeout_s: float) -> Any:
        """Run a query and return its `ResultSet`; raises QueryError."""
        call = self._unary("ExecuteSql", ExecuteSqlRequest, ResultSet)
        return self._ask(call, request, timeout_s=timeout_s, what="query Spanner")

    def partition_read(self, request: Any, *, timeout_s: float) -> Any:
        """Cut a read into shares and return the `PartitionResponse`; raises QueryError."""
        call = self._unary("PartitionRead", PartitionReadRequest, PartitionResponse)
        return self._ask(call, request, timeout_s=timeout_s, what="cut a read into shares")

    def stream(self, method: str, request: Any, session: str) -> ResponseStream:
        """Prepare a streaming call without a deadline, on the running asyncio loop."""
        request.session = session
        return self._streams.call(
            _SERVICE + method,
            request.SerializeToString(),
            lambda: self._signed(self._metadata(session)),
        )

    def session(self, *, timeout_s: float = _SESSION_TIMEOUT_S) -> str:
        """Return the session's name; creates it if there is no session.  Raises QueryError."""
        with self._session_lock:
            if not self._session:
                try:
                    call = self._unary("CreateSession", CreateSessionRequest, Session)
                    self._session = self._repeat_rejected(
                        lambda: call(
                            self._session_request(),
                            timeout=timeout_s,
                            metadata=self._metadata_of_the_database(),
                        )
                    ).name
                except grpc.RpcError as error:
                    raise self._no_session(error) from error
            return self._session

    async def stream_session(self) -> str:
        """Return as `session` does, for a query on the running asyncio loop."""
        async with self._session_turn:
            return self._session or await asyncio.to_thread(self.session)

    def failed(
        self, error: grpc.RpcError, session: str, *, what: str, **fields: object
    ) -> QueryError:
        """Return the error for a failed call; a session that is gone is re-created next time.

        A call that the service rejects, though it accepted others before, is retriable for some
        minutes, with a fresh token.
        """
        may_pass = self._may_pass(error)
        fields["database"] = self.database
        translated = rpc_error(error, what=what, may_pass=may_pass, **fields)
        if is_lost_session(error):
            with self._session_lock:
                if self._session == session:
                    self._session = ""
        return translated

    def accept(self) -> None:
        """Record that the service answered a new call."""
        self._rejections.accept()

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
        may_pass = self._may_pass(error)
        what = "open a session in Spanner"
        return rpc_error(error, what=what, may_pass=may_pass, database=self.database)

    def _repeat_rejected(self, call: Callable[[], Any]) -> Any:
        """Return a unary call's answer; one that is rejected is repeated with a fresh token."""
        for pause_s in _REJECTED_PAUSES_S:
            try:
                answer = call()
            except grpc.RpcError as error:
                if not is_rejection(error):
                    self._leave_silent_connection(error)
                    raise
                self._authorization.renew()
                time.sleep(pause_s)
            else:
                self.accept()
                return answer
        answer = call()
        self.accept()
        return answer

    def _leave_silent_connection(self, error: grpc.RpcError) -> None:
        """Let the next unary call open a connection if this one had no answer in its time.

        A network may have dropped the connection without a word; gRPC finds out two minutes later.
        """
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            return
        with self._lock:
            self._unary_channel = None  # not closed: calls of other threads may run on it

    def _may_pass(self, error: grpc.RpcError) -> bool:
        """Whether a rejected call may be accepted later; asks for a fresh token."""
        if not is_rejection(error):
            return False
        self._authorization.renew()
        return not self._rejections.reject()

    def _metadata_of_the_database(self) -> tuple[tuple[str, str], ...]:
        return self._metadata_for({"database": self.database})

    def _metadata(self, session: str) -> tuple[tuple[str, str], ...]:
        return self._metadata_for({"session": session})

    def _metadata_for(self, routed_by: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        return (
            ("google-cloud-resource-prefix", self.database),
            ("x-goog-request-params", urlencode(routed_by, safe="/")),
            ("x-goog-api-client", _API_CLIENT),
        )

    def _ask(self, call: Any, request: Any, *, timeout_s: float, what: str) -> Any:
        session = self.session(timeout_s=timeout_s)
        request.session = session
        try:
            return self._repeat_rejected(
                lambda: call(request, timeout=timeout_s, metadata=self._metadata(session))
            )
        except grpc.RpcError as error:
            raise self.failed(error, session, what=what) from error

    def _unary(self, method: str, request: Any, response: Any) -> Any:
        with self._lock:
            if self._unary_channel is None:
                self._unary_channel = self._open()
            channel = self._unary_channel
        return channel.unary_unary(
            _SERVICE + method,
            request_serializer=request.pb().SerializeToString,
            response_deserializer=response.pb().FromString,
        )

    def _open(self) -> grpc.Channel:
        """Return the channel for unary calls."""
        options: list[tuple[str, int | str]] = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            # Another channel has another connection: see `_leave_silent_connection`.
            ("grpc.use_local_subchannel_pool", 1),
            # A connection that a network dropped without a word ends the calls on it.
            ("grpc.keepalive_time_ms", _KEEPALIVE_MS),
            ("grpc.http2.max_pings_without_data", 0),
        ]
        # As for streaming queries: gRPC itself reads lower-case variables only, in plaintext too.
        proxy = self._endpoint().proxy
        options.append(("grpc.http_proxy", proxy) if proxy else ("grpc.enable_http_proxy", 0))
        if self._emulator_host:
            return grpc.insecure_channel(self._emulator_host, options=options)
        credentials = self._tls.credentials()
        if self._is_signed:
            credentials = self._authorization.channel_credentials(credentials)
        return grpc.secure_channel(self._service, credentials, options=options)

    def _endpoint(self) -> Endpoint:
        """Return where streaming queries connect to."""
        if self._endpoint_of_streams is None:
            self._endpoint_of_streams = Endpoint(
                self._emulator_host or self._service,
                is_secure=not self._emulator_host,
                tls=self._tls,
            )
        return self._endpoint_of_streams

    async def _signed(self, metadata: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
        """Return a call's metadata with the token of the credentials; raises `grpc.RpcError`."""
        if not self._is_signed:
            return metadata
        return (*metadata, *await self._authorization.headers())

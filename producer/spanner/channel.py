"""Access to one Spanner database: its session, calls, and the errors that they raise.

Unary calls go through Google's client (`transport.service_client`), streaming queries over one of
two transports (`transport.stream_channels`).
"""

from __future__ import annotations

import asyncio
import platform
import threading
from typing import Any
from urllib.parse import urlencode

import grpc
from google.cloud.spanner_v1.types import CreateSessionRequest

from tidegate.producer.errors import QueryError, QueryInterrupted, QueryRefused
from tidegate.producer.spanner.transport import stream_channels
from tidegate.producer.spanner.transport.authorization import Authorization
from tidegate.producer.spanner.transport.call import ReadAhead
from tidegate.producer.spanner.transport.connection import Connection
from tidegate.producer.spanner.transport.endpoint import Tls
from tidegate.producer.spanner.transport.grpc_connection import GrpcConnection
from tidegate.producer.spanner.transport.service_client import ServiceClient
from tidegate.producer.spanner.transport.status import (
    asked_pause_us,
    is_lost_session,
    is_rejection,
    is_web_page,
)
from tidegate.producer.spanner.transport.stream_channels import ResponseStream, StreamChannels
from tidegate.program.calls import Rejections
from tidegate.version import __version__

ENDPOINT_DEFAULT = "spanner.googleapis.com:443"
_SERVICE = "/google.spanner.v1.Spanner/"
_SESSION_TIMEOUT_S = 20.0
_API_CLIENT = f"tidegate/{__version__} gl-python/{platform.python_version()}"
"""In the form of Google's clients; their libraries (`gax`, `gapic`) make no query."""
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
    "What answered is not Spanner: check spanner_endpoint and SPANNER_EMULATOR_HOST, and the load "
    "balancers and proxies on the way"
)


def rpc_error(
    error: grpc.RpcError, *, action: str, may_pass: bool = False, **fields: object
) -> QueryError:
    """Return the error for a failed call; `action` is the attempted action.

    It is retriable if its status is, if its session is lost, or with `may_pass`.
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
    return kind(f"could not {action}", hint=hint, **where)


class SpannerChannels:
    """Connections to one database, and the multiplexed session that all its queries share.

    `emulator_host` is `host:port` of an emulator or simulator, reached in plaintext without
    credentials; empty means the service, with the host's default credentials.  With `tls` of an own
    deployment calls carry no Google credentials, unless `credentials_file` has some.
    `query_transport` is "h2" or "grpc".
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
        query_transport: str = "h2",
    ) -> None:
        self.database = database
        self.query_transport = query_transport
        tls = tls or Tls()
        self._is_signed = not emulator_host and (bool(credentials_file) or not tls.is_of_deployment)
        self._database_role = database_role
        # The audience of the credentials is the service, at whatever address it is reached.
        audience = f"https://{ENDPOINT_DEFAULT.partition(':')[0]}/"
        self._authorization = Authorization(audience, credentials_file=credentials_file)
        self._service = ServiceClient(
            database,
            plaintext_host=emulator_host,
            # Google's client knows the default address, in each universe of Google Cloud.
            endpoint="" if endpoint == ENDPOINT_DEFAULT else endpoint,
            tls=tls,
            authorization=self._authorization,
            is_signed=self._is_signed,
        )
        self._rejections = Rejections()
        self._ahead = ReadAhead()
        self._streams = StreamChannels(self._open_connection)
        self._session = ""
        self._session_lock = threading.Lock()
        self._session_turn = asyncio.Lock()
        """One of the queries that start together creates the session, in one thread."""

    def execute_sql(self, request: Any, *, timeout_s: float) -> Any:
        """Run a query and return its `ResultSet`; raises QueryError."""
        return self._ask("execute_sql", request, timeout_s=timeout_s, action="query Spanner")

    def partition_read(self, request: Any, *, timeout_s: float) -> Any:
        """Cut a read into shares and return the `PartitionResponse`; raises QueryError."""
        action = "cut a read into shares"
        return self._ask("partition_read", request, timeout_s=timeout_s, action=action)

    def stream(self, method: str, request: Any, session: str) -> ResponseStream:
        """Prepare a streaming call without a deadline, on the running asyncio loop."""
        request.session = session
        return self._streams.call(
            _SERVICE + method, request.SerializeToString(), lambda: self._metadata(session)
        )

    def session(self, *, timeout_s: float = _SESSION_TIMEOUT_S) -> str:
        """Return the session's name; creates it if there is no session.  Raises QueryError."""
        with self._session_lock:
            if not self._session:
                template = {"multiplexed": True, "creator_role": self._database_role}
                request = CreateSessionRequest.pb()(database=self.database, session=template)
                try:
                    created = self._service.call("create_session", request, timeout_s=timeout_s)
                except grpc.RpcError as error:
                    raise self._no_session(error) from error
                self.accept()
                self._session = created.name
            return self._session

    async def stream_session(self) -> str:
        """Return as `session` does, for a query on the running asyncio loop."""
        async with self._session_turn:
            return self._session or await asyncio.to_thread(self.session)

    def failed(
        self, error: grpc.RpcError, session: str, *, action: str, **fields: object
    ) -> QueryError:
        """Return the error for a failed call; a lost session is re-created next time.

        If the service rejects a call after it accepted others, the error is retriable for some
        minutes, with a new token.
        """
        may_pass = self._may_pass(error)
        fields["database"] = self.database
        translated = rpc_error(error, action=action, may_pass=may_pass, **fields)
        if is_lost_session(error):
            with self._session_lock:
                if self._session == session:
                    self._session = ""
        return translated

    def accept(self) -> None:
        """Record that the service answered a new call."""
        self._rejections.accept()

    def close(self) -> None:
        """Close all connections; running calls end."""
        self._service.close()
        self._streams.close()

    def _ask(self, method: str, request: Any, *, timeout_s: float, action: str) -> Any:
        session = self.session(timeout_s=timeout_s)
        request.session = session
        try:
            response = self._service.call(method, request, timeout_s=timeout_s)
        except grpc.RpcError as error:
            raise self.failed(error, session, action=action) from error
        self.accept()
        return type(response).pb(response)

    def _no_session(self, error: grpc.RpcError) -> QueryError:
        may_pass = self._may_pass(error)
        action = "open a session in Spanner"
        return rpc_error(error, action=action, may_pass=may_pass, database=self.database)

    def _may_pass(self, error: grpc.RpcError) -> bool:
        """Whether a rejected call may be accepted later; requests a new token."""
        if not is_rejection(error):
            return False
        self._authorization.renew()
        return not self._rejections.reject()

    async def _metadata(self, session: str) -> list[tuple[str, str]]:
        """Return the metadata of a query, with the token of the credentials.

        Raises `grpc.RpcError` if the token cannot be refreshed.
        """
        headers = await self._authorization.headers() if self._is_signed else ()
        return [
            ("google-cloud-resource-prefix", self.database),
            ("x-goog-request-params", urlencode({"session": session}, safe="/")),
            ("x-goog-api-client", _API_CLIENT),
            *headers,
        ]

    def _open_connection(self) -> stream_channels.Connection:
        """Return a connection for queries; the session was created before."""
        endpoint = self._service.endpoint
        if self.query_transport == "grpc":
            return GrpcConnection(endpoint)
        return Connection(endpoint, self._ahead)

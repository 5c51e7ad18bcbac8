"""Unary calls to Spanner, by Google's own client of its API.

Uses the generated client, because `google.cloud.spanner.Client` decodes each value several times,
and sends requests in the background.  Credentials, the universe's domain, client certificates of
the environment, the quota project and retries are Google's.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import replace
from typing import Any

import grpc
from google.api_core.client_options import ClientOptions
from google.api_core.exceptions import GoogleAPIError, ServiceUnavailable
from google.api_core.gapic_v1.client_info import ClientInfo
from google.api_core.retry import Retry
from google.auth.credentials import AnonymousCredentials
from google.auth.exceptions import GoogleAuthError
from google.cloud.spanner_v1.services.spanner import SpannerClient
from google.cloud.spanner_v1.services.spanner.transports import SpannerGrpcTransport
from google.protobuf.message import DecodeError

from tidegate.producer.errors import causes_of
from tidegate.producer.spanner.transport.authorization import Authorization
from tidegate.producer.spanner.transport.endpoint import Endpoint, Tls
from tidegate.producer.spanner.transport.status import asked_pause_us, is_rejection
from tidegate.schemas.errors import ConfigError
from tidegate.version import __version__

_CLIENT_INFO = ClientInfo(user_agent=f"tidegate/{__version__}")  # type: ignore[no-untyped-call]  # it has no types
_CALL_ERRORS = (GoogleAPIError, DecodeError, ValueError)
"""The last two if the details of a status contradict it, or cannot be read."""
_REJECTED_PAUSES_S = (0.2, 1.0, 3.0)
"""Pauses before a rejected call is repeated; a worker repeats its queries for longer."""
_VARIABLES = (
    "GOOGLE_API_USE_CLIENT_CERTIFICATE",
    "GOOGLE_API_USE_MTLS_ENDPOINT",
    "GOOGLE_CLOUD_UNIVERSE_DOMAIN",
)
_RETRIES_S = 2.0
"""For a broken connection: the caller learns early that a service is unavailable."""


class ServiceClient:
    """Google's client for one database, created at the first call; any thread may use it."""

    def __init__(
        self,
        database: str,
        *,
        plaintext_host: str,
        endpoint: str,
        tls: Tls,
        authorization: Authorization,
        is_signed: bool,
    ) -> None:
        """Start with the service's address; empty without `plaintext_host` means Google's own.

        Calls carry credentials if they are to be signed.
        """
        self._metadata = (("google-cloud-resource-prefix", database),)
        self._plaintext_host = plaintext_host
        self._address = plaintext_host or endpoint or None
        self._tls = tls
        self._endpoint: Endpoint | None = None
        self._authorization = authorization
        self._is_signed = is_signed
        self._client: SpannerClient | None = None
        self._lock = threading.Lock()

    @property
    def endpoint(self) -> Endpoint:
        """The endpoint of calls and queries; raises ConfigError without credentials."""
        self._opened()
        assert self._endpoint is not None  # noqa: S101 - the client has a channel
        return self._endpoint

    def call(self, method: str, request: Any, *, timeout_s: float) -> Any:
        """Return the response of a method; raises `grpc.RpcError`.

        A rejected call is repeated with a new token.
        """
        for pause_s in _REJECTED_PAUSES_S:
            try:
                return self._attempt(method, request, timeout_s)
            except grpc.RpcError as error:
                if not is_rejection(error):
                    self._leave_silent_connection(error)
                    raise
                self._authorization.renew()
                time.sleep(pause_s)
        return self._attempt(method, request, timeout_s)

    def close(self) -> None:
        """Close the connection; running calls end."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.transport.close()  # type: ignore[no-untyped-call]  # it has no types

    def _attempt(self, method: str, request: Any, timeout_s: float) -> Any:
        call = getattr(self._opened(), method)
        retry = Retry(_is_broken_connection, initial=0.25, multiplier=1.3, timeout=_RETRIES_S)
        try:
            return call(request, retry=retry, timeout=timeout_s, metadata=self._metadata)
        except _CALL_ERRORS as error:
            failed = _grpc_error(error)
            if failed is None:
                raise
            raise failed from error

    def _leave_silent_connection(self, error: grpc.RpcError) -> None:
        """Let the next call open a connection if this one had no answer in its time.

        A network may have dropped the connection without notice; gRPC detects that two minutes
        later.
        """
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            with self._lock:
                self._client = None  # not closed: calls of other threads may run on it

    def _opened(self) -> SpannerClient:
        with self._lock:
            if self._client is None:
                self._client = self._open()
            return self._client

    def _open(self) -> SpannerClient:
        if self._is_signed:
            credentials = self._authorization.credentials()
        else:
            credentials = AnonymousCredentials()  # type: ignore[no-untyped-call]  # it has no types
        try:
            client = SpannerClient(
                credentials=credentials,
                client_options=ClientOptions(api_endpoint=self._address),
                client_info=_CLIENT_INFO,
                transport=self._transport,
            )
        except (GoogleAuthError, ValueError) as error:
            raise ConfigError(
                "Google's client for Spanner cannot be set up",
                hint=f"Check the variables {', '.join(_VARIABLES)}",
                cause=str(error) or type(error).__name__,
            ) from error
        # The client keeps the warnings of Google's libraries out of the program's log.
        logging.getLogger("google").propagate = True
        return client

    def _transport(self, **arguments: Any) -> SpannerGrpcTransport:
        arguments["metrics_interceptor"] = None
        source = arguments.pop("client_cert_source_for_mtls", None)
        if source is not None:
            certificate, key = source()
            self._tls = replace(self._tls, certificate=certificate, key=key)
        return SpannerGrpcTransport(**arguments, channel=self._channel)

    def _channel(self, host: str, **_: Any) -> grpc.Channel:
        if self._endpoint is None:
            is_secure = not self._plaintext_host
            self._endpoint = Endpoint(host, is_secure=is_secure, tls=self._tls)
        options = self._endpoint.channel_options()
        tls = self._endpoint.channel_credentials()
        if tls is None:
            return grpc.insecure_channel(host, options=options)
        if self._is_signed:
            tls = self._authorization.channel_credentials(tls)
        return grpc.secure_channel(host, tls, options=options)


def _is_broken_connection(error: Exception) -> bool:
    """Whether Google's client repeats a call at once: not if the service asks for a pause."""
    failed = _grpc_error(error)
    return (
        isinstance(error, ServiceUnavailable) and failed is not None and not asked_pause_us(failed)
    )


def _grpc_error(error: BaseException) -> grpc.RpcError | None:
    """Return gRPC's own error, with its trailers, for an error of Google's library."""
    return next((link for link in causes_of(error) if isinstance(link, grpc.RpcError)), None)

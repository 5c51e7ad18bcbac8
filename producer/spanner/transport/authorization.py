"""Credentials from a file or the host, for gRPC's channels and as headers of a call."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from typing import Any

import grpc

from tidegate.producer.spanner.transport.status import CallError
from tidegate.schemas.errors import ConfigError

_RENEW_EVERY_S = 10.0
"""Least time between two renewals: many calls may be rejected for one token."""
_CONTENT_ERRORS = (AttributeError, LookupError, OSError, TypeError, ValueError)
"""Errors of the library for a file that is JSON of another kind."""
_SCOPES = ("https://www.googleapis.com/auth/spanner.data",)


class Authorization:
    """Credentials for one service, `https://host/`; loaded at their first use.

    From a JSON file or, without one, the host's default credentials.
    """

    def __init__(self, url: str, *, credentials_file: str = "") -> None:
        self._url = url
        self._file = credentials_file
        self._default_login: tuple[Any, Any] | None = None
        self._lock = threading.Lock()
        self._renewed_s = -_RENEW_EVERY_S
        self._turn = asyncio.Lock()
        """One of the calls that start together refreshes the token."""

    def credentials(self) -> Any:
        """Return the credentials for Google's clients; raises ConfigError if there are none."""
        return self._default()[0]

    def channel_credentials(self, tls: grpc.ChannelCredentials) -> grpc.ChannelCredentials:
        """Return TLS with the credentials; raises ConfigError if there are none."""
        # Only where credentials are used: these modules access the network and the disk.
        import google.auth.transport.grpc  # noqa: PLC0415 - see above

        plugin = google.auth.transport.grpc.AuthMetadataPlugin(*self._default())  # type: ignore[no-untyped-call]  # it has no types
        return grpc.composite_channel_credentials(tls, grpc.metadata_call_credentials(plugin))

    async def headers(self) -> Sequence[tuple[str, str]]:
        """Return a call's headers; refreshes the token in a thread.

        Raises ConfigError without credentials, and CallError if the token cannot be refreshed.
        """
        async with self._turn:
            if self._default_login is not None and self._default_login[0].valid:
                return self._signed()
            return await asyncio.to_thread(self._signed)

    def renew(self) -> None:
        """Refresh the token before the next call, if the present one is older than some seconds."""
        with self._lock:
            now_s = time.monotonic()
            if self._default_login is not None and now_s - self._renewed_s >= _RENEW_EVERY_S:
                self._renewed_s = now_s
                self._default_login[0].token = None

    def _signed(self) -> Sequence[tuple[str, str]]:
        import google.auth.exceptions  # noqa: PLC0415 - as in `channel_credentials`

        credentials, request = self._default()
        headers: dict[str, str] = {}
        try:
            credentials.before_request(request, "POST", self._url, headers)
        except google.auth.exceptions.GoogleAuthError as error:
            raise CallError(
                grpc.StatusCode.UNAVAILABLE,
                f"the credentials' token could not be refreshed: {error}",
            ) from error
        return [(name.lower(), value) for name, value in headers.items()]

    def _default(self) -> tuple[Any, Any]:
        """Return the default credentials and the request that refreshes them."""
        import google.auth  # noqa: PLC0415 - as in `channel_credentials`
        import google.auth.exceptions  # noqa: PLC0415 - as in `channel_credentials`
        import google.auth.transport.requests  # noqa: PLC0415 - as in `channel_credentials`

        with self._lock:
            if self._default_login is None:
                try:
                    if self._file:
                        credentials, _ = google.auth.load_credentials_from_file(  # type: ignore[no-untyped-call]  # it has no types
                            self._file, scopes=_SCOPES
                        )
                    else:
                        credentials, _ = google.auth.default(scopes=_SCOPES)
                except (google.auth.exceptions.GoogleAuthError, *_CONTENT_ERRORS) as error:
                    raise self._missing(error) from error
                request = google.auth.transport.requests.Request()
                self._default_login = credentials, request
            return self._default_login

    def _missing(self, error: Exception) -> ConfigError:
        if self._file:
            message = "credentials_file: it holds no credentials that can be used"
            hint = "Give a service account's key, or a file made by gcloud auth application-default"
            return ConfigError(message, hint=hint, file=self._file, cause=type(error).__name__)
        return ConfigError(
            "no credentials for Spanner were found",
            cause=type(error).__name__,
            hint="Set credentials_file, GOOGLE_APPLICATION_CREDENTIALS, or SPANNER_EMULATOR_HOST",
        )

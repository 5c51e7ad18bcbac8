"""What connections with TLS trust, and the certificate that they show; for both kinds of calls.

Streaming calls have a connection of our own, unary ones gRPC's: both get the same files.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import certifi
import grpc

from tidegate.schemas.errors import ConfigError

_ROOTS_VARIABLE = "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH"
"""As gRPC reads it, so that both kinds of connection trust the same."""
_NO_PASSWORD = b""
"""Instead of a question at the terminal."""


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of files in PEM; empty: the authorities of the host, and no certificate of ours."""

    ca_file: str = ""
    client_cert: str = ""
    client_key: str = ""

    @property
    def is_of_deployment(self) -> bool:
        """Whether it is that of a deployment of one's own, which has no accounts of Google's."""
        return bool(self.ca_file or self.client_cert)

    def context(self) -> ssl.SSLContext:
        """Return TLS for a connection of our own, which speaks HTTP/2.

        Trusts `ca_file`, or the host's certificates and certifi's, or those that gRPC is given.
        Raises ConfigError for a file that cannot be read or is not what it is named for.
        """
        roots = self.ca_file or os.environ.get(_ROOTS_VARIABLE)
        try:
            context = ssl.create_default_context(cafile=roots or None)
        except OSError as error:
            name = "spanner_ca_file" if self.ca_file else _ROOTS_VARIABLE
            raise _unreadable(
                f"{name}: the certificates cannot be read",
                "Name a file of certificates in PEM, or leave it out",
                str(roots),
                error,
            ) from error
        if not roots:
            context.load_verify_locations(certifi.where())
        if self.ca_file:
            # From Python 3.13 on the default asks for extensions that gRPC does without.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if self.client_cert:
            self._show_certificate(context)
        context.set_alpn_protocols(["h2"])
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """Return TLS for gRPC's connections; raises ConfigError as `context` does."""
        self.context()  # gRPC itself names no file, and tries again and again
        return grpc.ssl_channel_credentials(
            root_certificates=_content(self.ca_file),
            private_key=_content(self.client_key),
            certificate_chain=_content(self.client_cert),
        )

    def _show_certificate(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self.client_cert, self.client_key, password=_NO_PASSWORD)
        except (OSError, ValueError) as error:
            raise _unreadable(
                "spanner_client_cert: the certificate cannot be used with its key",
                "Name a certificate and, in spanner_client_key, its private key, both in PEM and "
                "readable; the key without a password",
                f"{self.client_cert}, {self.client_key}",
                error,
            ) from error


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None


def _unreadable(message: str, hint: str, path: str, error: Exception) -> ConfigError:
    return ConfigError(message, hint=hint, path=path, cause=str(error) or type(error).__name__)

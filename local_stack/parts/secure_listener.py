"""A second listener of the broker, with TLS and a login: SASL_SSL with SCRAM-SHA-512.

Its certificate is for 127.0.0.1, of an authority of its own; both are made when the folder is new
and kept.  There is one user, with a password that is made for this folder.
"""

from __future__ import annotations

import ipaddress
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tidegate.local_stack.parts.ports import HOST

_USER = "tidegate"
_ITERATIONS = 4_096
_DAYS = 3_650
_ANSWER_S = 30.0

_SETTINGS = """
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secure.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.secure.ssl.keystore.type=PEM
listener.name.secure.ssl.keystore.location={keystore}
"""


@dataclass(frozen=True, slots=True)
class SecureListener:
    """The listener on a port, with its files in a folder."""

    port: int
    folder: Path

    @property
    def bootstrap_servers(self) -> str:
        """The address for `bootstrap.servers`."""
        return f"{HOST}:{self.port}"

    def settings(self) -> str:
        """Return the broker's settings for it; makes the files that are missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self._keystore.exists():
            self._make_certificates()
        return _SETTINGS.format(keystore=self._keystore)

    def client_options(self) -> dict[str, str]:
        """Return what a Kafka client needs to use it, by librdkafka's names."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": _USER,
            "sasl.password": self._password(),
            "ssl.ca.location": str(self._authority),
        }

    def create_user(self, bootstrap_servers: str) -> None:
        """Create the user, or set the password again, by a listener without a login.

        Raises KafkaException.
        """
        admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
        change = UserScramCredentialUpsertion(
            _USER,
            ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS),
            self._password().encode(),
        )
        for answer in admin.alter_user_scram_credentials([change]).values():
            answer.result(_ANSWER_S)

    @property
    def _authority(self) -> Path:
        return self.folder / "ca.pem"

    @property
    def _keystore(self) -> Path:
        return self.folder / "broker.pem"

    def _password(self) -> str:
        path = self.folder / "password"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            path.write_text(secrets.token_urlsafe(24))
        return path.read_text()

    def _make_certificates(self) -> None:
        authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        authority = _certificate("Tidegate local stack", authority_key.public_key())
        authority = authority.issuer_name(_name("Tidegate local stack"))
        authority = authority.add_extension(
            x509.BasicConstraints(ca=True, path_length=0), critical=True
        )
        signed_authority = authority.sign(authority_key, hashes.SHA256())
        own = _certificate(HOST, key.public_key()).issuer_name(signed_authority.subject)
        address = x509.IPAddress(ipaddress.ip_address(HOST))
        own = own.add_extension(x509.SubjectAlternativeName([address]), critical=False)
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        pem = serialization.Encoding.PEM
        self._authority.write_bytes(signed_authority.public_bytes(pem))
        self._keystore.touch(mode=0o600)
        self._keystore.write_bytes(
            private + own.sign(authority_key, hashes.SHA256()).public_bytes(pem)
        )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(subject: str, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    # From yesterday, since clocks differ.
    begin = datetime.now(UTC) - timedelta(days=1)
    return (
        x509.CertificateBuilder()
        .subject_name(_name(subject))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=_DAYS))
    )

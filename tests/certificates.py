"""Certificates of servers and clients on this machine, made by a test."""

from __future__ import annotations

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Issued:
    """A file with a key and a certificate of 127.0.0.1, signed by another one or by itself."""

    def __init__(self, path, name="a test", *, issuer=None, is_authority=False, password=b""):
        self.path = path
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        now = datetime.datetime.now(datetime.UTC)
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        signs = issuer or self
        built = (
            x509.CertificateBuilder()
            .subject_name(self.name)
            .issuer_name(signs.name)
            .public_key(self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(names, critical=False)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .sign(signs._key, hashes.SHA256())
        )
        hidden = serialization.BestAvailableEncryption(password) if password else None
        key = self._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            hidden or serialization.NoEncryption(),
        )
        path.write_bytes(key + built.public_bytes(serialization.Encoding.PEM))

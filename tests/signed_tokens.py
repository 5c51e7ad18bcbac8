"""Signed tokens for a broker, from a function or by OIDC; and the listener that asks for them.

The key is in a folder, so that a program's own function finds it: `kafka_login` is
`tests.signed_tokens:fetch`, and the folder is in the environment.
"""

from __future__ import annotations

import base64
import json
import os
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from tidegate.local_stack.parts.kafka_broker import SecureListener

FUNCTION = "tests.signed_tokens:fetch"
FOLDER, SECONDS = "TEST_TOKENS_FOLDER", "TEST_TOKENS_SECONDS"
CLIENT, CLIENT_SECRET = "fleet", "oidc-secret-4711"
PRINCIPAL = "tidegate"
_PATH = "org.apache.kafka.common.security.oauthbearer"
_SETTINGS = """
sasl.enabled.mechanisms=SCRAM-SHA-512,OAUTHBEARER
listener.name.secure.oauthbearer.sasl.jaas.config={path}.OAuthBearerLoginModule required;
listener.name.secure.oauthbearer.sasl.server.callback.handler.class=\
{path}.OAuthBearerValidatorCallbackHandler
listener.name.secure.oauthbearer.sasl.oauthbearer.jwks.endpoint.url={keys}
listener.name.secure.oauthbearer.connections.max.reauth.ms=3600000
"""


class TokenListener(SecureListener):
    """The stack's second listener; it takes passwords, and tokens that were signed here."""

    def settings(self):
        """Return the broker's settings; makes the key."""
        return super().settings() + _SETTINGS.format(path=_PATH, keys=make_key(self.folder))

    def tls_options(self):
        """Return a client's options without a login."""
        options = SecureListener.client_options(self)
        return {name: options[name] for name in ("security.protocol", "ssl.ca.location")}


def java_tool_options(folder):
    """Return what lets a JVM of Kafka 4 read the file of keys."""
    url = (folder / "keys.json").as_uri()
    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={url}"


def make_key(folder):
    """Make the key that signs, if there is none; return the URL of the file for who verifies."""
    file = folder / "keys.json"
    if not file.exists():
        key = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
        (folder / "key.pem").write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        public = key.public_key().public_numbers()
        numbers = {"n": _encoded(_bytes(public.n)), "e": _encoded(_bytes(public.e))}
        one = {"kty": "RSA", "kid": "k", "alg": "RS256", "use": "sig", **numbers}
        file.write_text(json.dumps({"keys": [one]}))
    return file.as_uri()


def signed(folder, seconds, *, principal=PRINCIPAL):
    """Return a token and its time of expiry in Unix seconds."""
    now_s = time.time()
    claims = {"sub": principal, "iat": int(now_s), "exp": int(now_s + seconds), "scope": "kafka"}
    parts = ({"alg": "RS256", "kid": "k", "typ": "JWT"}, claims)
    text = ".".join(_encoded(json.dumps(part).encode()) for part in parts)
    key = serialization.load_pem_private_key((folder / "key.pem").read_bytes(), None)
    return f"{text}.{_encoded(key.sign(text.encode(), padding.PKCS1v15(), hashes.SHA256()))}", int(
        now_s + seconds
    )


def fetch():
    """Return a token as a program's own function does; each leaves a line in a file."""
    folder = Path(os.environ[FOLDER])
    if (folder / "down").exists():
        raise OSError("the tokens' service is down")
    token, expires_at_s = signed(folder, float(os.environ[SECONDS]))
    with (folder / "fetched").open("a") as file:
        file.write(f"{os.getpid()}\n")
    return token, expires_at_s, PRINCIPAL


class _Endpoint(BaseHTTPRequestHandler):
    def log_message(self, *_):
        """Print nothing."""

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        login = base64.b64encode(f"{CLIENT}:{CLIENT_SECRET}".encode()).decode()
        server = self.server
        if self.headers.get("Authorization") != f"Basic {login}":
            status, answer = 401, {"error": "invalid_client"}
        else:
            server.issued += 1
            token, _ = signed(server.folder, server.seconds)
            status = 200
            answer = {"access_token": token, "token_type": "Bearer", "expires_in": server.seconds}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def token_endpoint(folder, seconds):
    """Yield a server of tokens as OIDC has one, with `url` and the number of those `issued`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Endpoint)
    server.daemon_threads = True
    server.folder, server.seconds, server.issued = folder, seconds, 0
    server.url = f"http://127.0.0.1:{server.server_port}/token"
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _encoded(content):
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def _bytes(number):
    return number.to_bytes((number.bit_length() + 7) // 8, "big")

"""A broker behind a gate that logs in as managed Kafka does: Google's and AWS's tokens.

No server of either cloud is at hand.  The gate answers the SASL requests of Kafka's protocol itself
and passes every other one to a listener of the real broker, which advertises the gate.  It checks
each token, says for how long a session lasts, and ends a connection that goes on for longer.
"""

from __future__ import annotations

import base64
import json
import socket
import struct
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import parse_qs, urlsplit

from tests.fake_clouds import ACCESS_TOKEN, ACCOUNT, KEY_ID
from tidegate.local_stack.parts.kafka_broker import SecureListener
from tidegate.local_stack.parts.process import HOST, choose_ports

_HANDSHAKE, _AUTHENTICATE, _VERSIONS = 17, 36, 18
_FAILED = 58
_QUIET_S = 10.0
_SETTINGS = """
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://{host}:{port},SECURE://{gate}
"""


class Gate:
    """The gate to one listener; `logins` counts the sessions and the rejections."""

    def __init__(self, behind, *, session_s):
        """Listen; `behind` is the port of the broker's listener."""
        self._behind = behind
        self._session_s = session_s
        self._server = socket.create_server((HOST, 0))
        self.address = f"{HOST}:{self._server.getsockname()[1]}"
        self.logins = Counter()
        self.is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.is_open = False
        self._server.close()

    def _accept(self):
        with suppress(OSError):
            while self.is_open:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with (
            suppress(OSError, EOFError),
            client,
            socket.create_connection((HOST, self._behind)) as broker,
        ):
            _Connection(self, client, broker).run()

    def expiry_of(self, mechanism, sent):
        """Return when a session ends, in Unix seconds; raises ValueError for a bad token."""
        if mechanism == "AWS_MSK_IAM":
            _require_signed(json.loads(sent))
            return time.time() + self._session_s
        token = sent.split(b"\x01auth=Bearer ")[1].split(b"\x01")[0].decode()
        if token.count(".") != 2:
            query = parse_qs(urlsplit(_decoded(token).decode()).query)
            _require_signed({name: one[0] for name, one in query.items()})
            return time.time() + self._session_s
        header, claims, access_token = map(_decoded, token.split("."))
        found = json.loads(claims)
        is_google = json.loads(header)["alg"] == "GOOG_OAUTH2_TOKEN" and found["sub"] == ACCOUNT
        if not is_google or not access_token.decode().startswith(ACCESS_TOKEN):
            raise ValueError("not a token of Google's")
        if found["exp"] <= time.time():
            raise ValueError("the token has expired")
        return found["exp"]


class _Connection:
    """One client's requests, in order."""

    def __init__(self, gate, client, broker):
        self._gate, self._client, self._broker = gate, client, broker
        self._ends_at_s = 0.0
        self._mechanism = ""
        self._open = 0
        self._changed = threading.Condition()

    def run(self):
        threading.Thread(target=self._answer, daemon=True).start()
        try:
            while True:
                frame = _frame(self._client)
                kind, version, number = struct.unpack_from(">hhi", frame)
                if kind in (_HANDSHAKE, _AUTHENTICATE):
                    self._wait_for_answers()
                    answer = (
                        self._handshake(frame)
                        if kind == _HANDSHAKE
                        else self._login(frame, version)
                    )
                    head = struct.pack(">i", number)
                    self._client.sendall(struct.pack(">i", len(head + answer)) + head + answer)
                    continue
                if kind != _VERSIONS and time.time() > self._ends_at_s + 1:
                    self._gate.logins["expired" if self._ends_at_s else "without a login"] += 1
                    return
                with self._changed:
                    self._open += 1
                self._broker.sendall(struct.pack(">i", len(frame)) + frame)
        finally:
            self._broker.shutdown(socket.SHUT_RDWR)

    def _answer(self):
        with suppress(OSError, EOFError):
            while True:
                frame = _frame(self._broker)
                self._client.sendall(struct.pack(">i", len(frame)) + frame)
                with self._changed:
                    self._open -= 1
                    self._changed.notify()
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)

    def _wait_for_answers(self):
        """Kafka answers a connection's requests in their order."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout=_QUIET_S)

    def _handshake(self, frame):
        body = _body(frame, flexible=False)
        (size,) = struct.unpack_from(">h", body)
        self._mechanism = body[2 : 2 + size].decode()
        names = ("OAUTHBEARER", "AWS_MSK_IAM")
        known = 0 if self._mechanism in names else 33
        listed = b"".join(struct.pack(">h", len(name)) + name.encode() for name in names)
        return struct.pack(">hi", known, len(names)) + listed

    def _login(self, frame, version):
        flexible = version >= 2
        body = _body(frame, flexible=flexible)
        sent = _compact(body) if flexible else body[4:]
        try:
            self._ends_at_s = self._gate.expiry_of(self._mechanism, sent)
        except (ValueError, KeyError, IndexError) as error:
            self._gate.logins["rejected"] += 1
            return _authenticated(version, code=_FAILED, text=str(error), sent=b"", left_ms=0)
        self._gate.logins["accepted"] += 1
        is_aws = self._mechanism == "AWS_MSK_IAM"
        reply = b'{"version":"2020_10_22","request-id":"0"}' if is_aws else b""
        left_ms = max(1, int((self._ends_at_s - time.time()) * 1_000))
        return _authenticated(version, code=0, text=None, sent=reply, left_ms=left_ms)


class CloudListener(SecureListener):
    """The stack's second listener, behind a gate; make one for each test."""

    session_s = 20

    def settings(self):
        """Return the broker's settings."""
        self.folder.mkdir(parents=True, exist_ok=True)
        gates[self.port] = Gate(self.port, session_s=self.session_s)
        return _SETTINGS.format(host=HOST, port=ports["PLAINTEXT"], gate=self.bootstrap_servers)

    @property
    def bootstrap_servers(self):
        """The address of the gate, once there is one; before that, that of the listener."""
        gate = gates.get(self.port)
        return f"{HOST}:{self.port}" if gate is None else gate.address

    def client_options(self):
        """Return what a client needs besides its login."""
        return {"security.protocol": "SASL_PLAINTEXT"}

    def create_user(self, bootstrap_servers):
        """Create nobody: names come with tokens."""


gates = {}
ports = {}


def fixed_kafka_port():
    """Return a free port for the broker, which the advertised addresses have to name."""
    ports["PLAINTEXT"] = choose_ports({"kafka_port": 0})["kafka_port"]
    return ports["PLAINTEXT"]


def _require_signed(found):
    """Raise ValueError unless a request to MSK is signed by the credentials of now."""
    names = {name.lower(): value for name, value in found.items()}
    if not names["x-amz-credential"].startswith(KEY_ID):
        raise ValueError("unknown credentials")
    signed_at = datetime.strptime(names["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if time.time() - signed_at.timestamp() > float(names["x-amz-expires"]):
        raise ValueError("the signature has expired")


def _decoded(part):
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def _frame(connection):
    (size,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, size)


def _read(connection, size):
    content = b""
    while len(content) < size:
        more = connection.recv(size - len(content))
        if not more:
            raise EOFError
        content += more
    return content


def _body(frame, *, flexible):
    """Return a request without its header: kind, version, number, client's name, tags."""
    (size,) = struct.unpack_from(">h", frame, 8)
    at = 10 + max(size, 0)
    return frame[at + 1 :] if flexible else frame[at:]


def _compact(body):
    """Return bytes with a length of variable size before them, one more than it is."""
    size = shift = at = 0
    while True:
        size |= (body[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if body[at - 1] < 0x80:
            return body[at : at + size - 1]


def _varint(number):
    found = b""
    while number >= 0x80:
        found, number = found + bytes([number & 0x7F | 0x80]), number >> 7
    return found + bytes([number])


def _authenticated(version, *, code, text, sent, left_ms):
    if version >= 2:
        message = b"\x00" if text is None else _varint(len(text) + 1) + text.encode()
        content = message + _varint(len(sent) + 1) + sent
        return b"\x00" + struct.pack(">h", code) + content + struct.pack(">q", left_ms) + b"\x00"
    message = (
        struct.pack(">h", -1) if text is None else struct.pack(">h", len(text)) + text.encode()
    )
    content = struct.pack(">h", code) + message + struct.pack(">i", len(sent)) + sent
    return content + (struct.pack(">q", left_ms) if version >= 1 else b"")

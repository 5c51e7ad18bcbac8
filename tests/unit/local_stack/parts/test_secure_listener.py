"""The files of the secure listener: made once, private where they have to be, and fit for TLS."""

from __future__ import annotations

import socket
import ssl
import threading

import pytest

from tidegate.local_stack.parts.secure_listener import SecureListener


@pytest.fixture
def listener(tmp_path):
    return SecureListener(9093, tmp_path / "secure")


def test_a_client_that_trusts_the_authority_is_served(listener):
    listener.settings()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(listener.folder / "broker.pem")
    client = ssl.create_default_context(cafile=listener.client_options()["ssl.ca.location"])
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            connection, _ = listening.accept()
            with server.wrap_socket(connection, server_side=True) as secured:
                secured.sendall(b"hello")

        thread = threading.Thread(target=serve)
        thread.start()
        with (
            socket.create_connection(listening.getsockname()) as plain,
            client.wrap_socket(plain, server_hostname="127.0.0.1") as secured,
        ):
            assert secured.recv(5) == b"hello"
        thread.join()


def test_everything_is_kept_for_the_next_start(listener):
    settings, options = listener.settings(), listener.client_options()
    kept = {path.name: path.read_bytes() for path in listener.folder.iterdir()}
    again = SecureListener(9093, listener.folder)

    assert (again.settings(), again.client_options()) == (settings, options)
    assert {path.name: path.read_bytes() for path in listener.folder.iterdir()} == kept
    assert str(listener.folder / "broker.pem") in settings


def test_secrets_are_readable_for_their_owner_only(listener):
    listener.settings()
    password = listener.client_options()["sasl.password"]
    assert password not in listener.settings()
    for name in ("password", "broker.pem"):
        assert (listener.folder / name).stat().st_mode & 0o077 == 0

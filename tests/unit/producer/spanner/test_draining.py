"""A GOAWAY ends no stream that the server finishes."""

import asyncio

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, StreamEnded
from h2.exceptions import ProtocolError
from hyperframe.frame import GoAwayFrame, PingFrame

from tests.grpc_server import PATIENCE_S, read, run
from tidegate.producer.spanner.draining import DrainingConnection

REQUEST = [(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "a")]


def opened(kind):
    """A client with one stream, and its server."""
    client = kind(H2Configuration(client_side=True))
    server = H2Connection(H2Configuration(client_side=False))
    client.initiate_connection()
    server.initiate_connection()
    client.send_headers(1, REQUEST, end_stream=True)
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", "200")])
    client.receive_data(server.data_to_send())
    client.data_to_send()
    return client, server


def left(client, server):
    """What the client takes from a server that leaves, in one piece."""
    server.send_data(1, b"rest", end_stream=True)
    ping = PingFrame(0, b"before..").serialize()
    leaves = GoAwayFrame(0, last_stream_id=1).serialize()
    return client.receive_data(ping + leaves + server.data_to_send())


def test_a_stream_is_finished_and_answers_are_sent_after_a_goaway():
    client, server = opened(DrainingConnection)
    kinds = [type(event) for event in left(client, server)]
    assert kinds[1:] == [ConnectionTerminated, DataReceived, StreamEnded]
    assert client.data_to_send() == PingFrame(0, b"before..", flags=["ACK"]).serialize()


def test_why_it_is_needed():
    """Without it `h2` refuses what comes after a GOAWAY; when that changes it can be deleted."""
    client, server = opened(H2Connection)
    with pytest.raises(ProtocolError):
        left(client, server)


def test_a_server_that_replaces_old_connections_breaks_no_query():
    """It sends a GOAWAY, finishes what the connection carries, and new calls go elsewhere."""

    async def respond(request, _context):
        if request == b"last":
            yield b"new"
            return
        while True:
            yield b"m"
            await asyncio.sleep(0.01)

    async def use(server):
        streams = [server.call() for _ in range(3)]
        while not server.opened or server.opened[0].is_usable:
            for one in streams:
                assert await read(one, 1) == [b"m"]
        assert await read(server.call(b"last")) == [b"new"]
        for one in streams:
            assert await read(one, 5) == [b"m"] * 5
            one.close()
        return len(server.opened)

    options = [
        ("grpc.max_connection_age_ms", 300),
        ("grpc.max_connection_age_grace_ms", PATIENCE_S * 1_000),
    ]
    assert run(use, respond, options=options) >= 2

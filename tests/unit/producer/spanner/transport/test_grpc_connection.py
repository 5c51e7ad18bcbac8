"""gRPC's own client for queries: one message at a time, and how calls and connections end."""

import asyncio

import grpc
import pytest

from tests.grpc_server import read, run, sizes
from tidegate.producer.spanner.transport import grpc_connection

CODES = grpc.StatusCode


async def silent(_request, _context):
    yield b"first"
    await asyncio.Event().wait()


def test_messages_of_any_size(certificate, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(certificate))
    lengths = [0, 1, 70_000, 5_000_000]

    async def use(server):
        stream = server.call(",".join(map(str, lengths)).encode())
        assert [len(message) for message in await read(stream)] == lengths
        assert server.metadata[0]["name"] == "value"

    for options in ({}, {"certificate": certificate}):
        run(use, sizes, over_grpc=True, **options)


def test_a_message_waits_until_it_is_asked_for():
    sent = []

    async def respond(_request, _context):
        for number in range(50):
            sent.append(number)
            yield bytes(1_000_000)

    async def use(server):
        stream = server.call()
        assert await stream.next_size() == 1_000_000
        assert await stream.next_size() == 1_000_000
        await asyncio.sleep(0.2)
        assert len(sent) < 10
        assert len(await read(stream)) == 50

    run(use, respond, over_grpc=True)


def test_a_call_ends_when_it_or_its_connection_is_closed():
    async def use(server):
        streams = [server.call() for _ in range(3)]
        for stream in streams:
            await read(stream, 1)
        waiting = [asyncio.ensure_future(stream.next_size()) for stream in streams]
        await asyncio.sleep(0)
        streams[0].close()
        (connection,) = server.opened
        connection.close()
        connection.close()
        for end in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(end, grpc.RpcError)
            assert end.code() is CODES.CANCELLED
        assert not connection.is_usable

    run(use, silent, over_grpc=True)


def test_a_reader_that_is_cancelled_ends_its_call():
    async def use(server):
        stream = server.call()
        await read(stream, 1)
        waiting = asyncio.ensure_future(stream.next_size())
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    run(use, silent, over_grpc=True)


@pytest.mark.parametrize("is_silent", [True, False])
def test_a_connection_that_was_silent_when_a_call_was_given_up_gets_no_new_ones(
    monkeypatch, is_silent
):
    monkeypatch.setattr(grpc_connection, "_SILENT_S", 0.0 if is_silent else 60.0)

    async def use(server):
        streams = [server.call(), server.call()]
        for stream in streams:
            await read(stream, 1)
        streams[0].close()
        (connection,) = server.opened
        assert connection.is_usable is not is_silent
        connection.heard()
        assert connection.is_usable

    run(use, silent, over_grpc=True)


def test_more_queries_than_one_connection_takes_have_others():
    async def use(server):
        streams = [server.call() for _ in range(200)]
        for stream in streams:
            await read(stream, 1)
        assert len(server.opened) == 3
        for stream in streams:
            stream.close()

    run(use, silent, over_grpc=True)

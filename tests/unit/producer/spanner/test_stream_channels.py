"""Connections for streaming queries: opened when all are full, closed when others have room."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tests import grpc_server
from tidegate.producer.spanner import connection, stream_channels
from tidegate.producer.spanner.connection import NotSentError
from tidegate.producer.spanner.endpoint import Endpoint
from tidegate.producer.spanner.stream_channels import STREAMS_PER_CHANNEL_MAX, StreamChannels


class Call:
    def __init__(self, messages):
        self.messages = list(messages)
        self.cancelled = 0

    async def next_size(self):
        await asyncio.sleep(0)
        return len(self.messages[0]) if self.messages else None

    async def read(self, *, pause_s):
        return self.messages.pop(0)

    def cancel(self):
        self.cancelled += 1


class Connection:
    """Notes its calls and its end."""

    streams_max = 1 << 31
    is_usable = True

    def __init__(self, messages):
        self.calls = []
        self.is_closed = False
        self._messages = messages

    async def call(self, _path, _request, metadata):
        assert metadata == [("name", "value")]
        if not self.is_usable:
            raise NotSentError(grpc.StatusCode.UNAVAILABLE, "no more calls")
        self.calls.append(Call(self._messages))
        return self.calls[-1]

    def close(self):
        self.is_closed = True


async def metadata():
    return [("name", "value")]


async def read(stream):
    found = []
    while await stream.next_size() is not None:
        found.append(await stream.read())
    return found


@pytest.fixture
def opened():
    return []


@pytest.fixture
def channels(opened):
    def open_connection():
        opened.append(Connection([b"one", b""]))
        return opened[-1]

    return StreamChannels(open_connection)


def begin(channels, count):
    return [channels.call("m", b"", metadata) for _ in range(count)]


def streams_of(channels):
    return [place.streams for place in channels._places]


def run(tasks, act):
    """Run a function on the tasks' loop, and what it starts."""

    async def whole():
        found = act()
        for _ in range(3):
            await asyncio.sleep(0)
        return found

    return tasks.run(whole)


def test_a_connection_is_opened_when_all_are_full(tasks, channels, opened):
    run(tasks, lambda: begin(channels, STREAMS_PER_CHANNEL_MAX))
    assert len(opened) == 1
    run(tasks, lambda: begin(channels, 1))
    assert streams_of(channels) == [STREAMS_PER_CHANNEL_MAX, 1]


def test_a_thousand_streams_take_a_dozen_connections_and_all_but_one_are_closed(
    tasks, channels, opened
):
    streams = run(tasks, lambda: begin(channels, 1_000))
    assert len(opened) == 12

    run(tasks, lambda: [stream.close() for stream in streams])
    assert [channel.is_closed for channel in opened].count(False) == 1


def test_streams_gather_on_the_fullest_connection_so_that_others_empty(tasks, channels, opened):
    streams = run(tasks, lambda: begin(channels, STREAMS_PER_CHANNEL_MAX + 40))
    run(tasks, lambda: [stream.close() for stream in streams[:20]])
    run(tasks, lambda: begin(channels, 20))
    assert streams_of(channels) == [STREAMS_PER_CHANNEL_MAX, 40]


def test_an_empty_connection_stays_while_the_others_are_nearly_full(tasks, channels, opened):
    *streams, last = run(tasks, lambda: begin(channels, STREAMS_PER_CHANNEL_MAX + 1))
    run(tasks, last.close)
    assert not opened[1].is_closed
    run(tasks, lambda: [stream.close() for stream in streams[: stream_channels._SPARE_PLACES - 1]])
    assert not opened[1].is_closed
    run(tasks, streams[-1].close)
    assert opened[1].is_closed
    assert not opened[0].is_closed


def test_a_stream_leaves_its_connection_once(tasks, channels, opened):
    first, second = run(tasks, lambda: begin(channels, 2))
    run(tasks, first.close)
    first.cancel()
    run(tasks, first.close)
    assert channels._places[0].streams == 1
    run(tasks, second.close)
    assert channels._places[0].streams == 0


def test_an_empty_message_is_not_the_end(tasks, channels):
    (stream,) = run(tasks, lambda: begin(channels, 1))
    assert tasks.run(lambda: read(stream)) == [b"one", b""]


def test_closing_ends_every_connection(tasks, channels, opened):
    channels.close()  # before there is one
    run(tasks, lambda: begin(channels, STREAMS_PER_CHANNEL_MAX + 1))
    channels.close()
    assert [channel.is_closed for channel in opened] == [True, True]
    channels.close()


def test_the_memory_of_large_messages_is_returned_every_four_mebibytes(tasks, monkeypatch):
    """Over all streams; small messages are read as fast as before."""
    returned = []
    monkeypatch.setattr(stream_channels, "return_freed_memory", lambda: returned.append(1))

    async def read_twice(messages):
        channels = StreamChannels(lambda: Connection([bytes(size) for size in messages]))
        for _ in range(2):  # streams
            found = await read(channels.call("method", b"", metadata))
            assert [len(message) for message in found] == messages

    mebi = 1 << 20
    tasks.run(lambda: read_twice([mebi // 4 - 1] * 50))
    assert returned == []
    tasks.run(lambda: read_twice([mebi] * 2))
    assert returned == [1]
    tasks.run(lambda: read_twice([2 * mebi, 100, 2 * mebi]))
    assert returned == [1] * 3


def test_a_connection_that_takes_no_calls_is_left_and_closed_with_its_last_stream(
    tasks, channels, opened
):
    streams = run(tasks, lambda: begin(channels, 2))
    opened[0].is_usable = False
    run(tasks, lambda: begin(channels, 1))
    assert streams_of(channels) == [2, 1]
    run(tasks, streams[0].close)
    assert not opened[0].is_closed
    run(tasks, streams[1].close)
    assert opened[0].is_closed
    assert streams_of(channels) == [1]


def test_a_connection_takes_no_more_than_its_server_does(tasks, channels, opened):
    run(tasks, lambda: begin(channels, 3))
    opened[0].streams_max = 3
    run(tasks, lambda: begin(channels, 1))
    assert streams_of(channels) == [3, 1]


@pytest.mark.parametrize("steps", [0, 1])
def test_a_stream_that_is_closed_before_it_began_ends_its_call(
    tasks, channels, opened, monkeypatch, steps
):
    """Before it asks for its metadata, and while the connection takes the request."""
    (stream,) = run(tasks, lambda: begin(channels, 1))
    connect = Connection.call

    async def slowly(self, *request):
        await asyncio.sleep(0)
        return await connect(self, *request)

    monkeypatch.setattr(Connection, "call", slowly)

    async def close_meanwhile():
        beginning = asyncio.create_task(stream.next_size())
        for _ in range(steps):
            await asyncio.sleep(0)
        stream.close()
        with pytest.raises(grpc.RpcError) as caught:
            await beginning
        assert caught.value.code() is grpc.StatusCode.CANCELLED

    tasks.run(close_meanwhile)
    assert [call.cancelled for call in opened[0].calls] == [1] * steps
    assert streams_of(channels) == [0]


def test_a_call_that_a_connection_takes_no_more_goes_to_another(tasks, channels, opened):
    """The server may have begun to leave since the place was taken, or said how many it takes."""
    (stream,) = run(tasks, lambda: begin(channels, 1))
    opened[0].is_usable = False
    assert tasks.run(lambda: read(stream)) == [b"one", b""]
    assert [len(one.calls) for one in opened] == [0, 1]
    assert opened[0].is_closed
    assert streams_of(channels) == [1]


def test_a_server_that_takes_no_calls_is_not_connected_to_without_end(
    tasks, channels, opened, monkeypatch
):
    monkeypatch.setattr(Connection, "is_usable", False)
    (stream,) = run(tasks, lambda: begin(channels, 1))
    with pytest.raises(grpc.RpcError) as caught:
        tasks.run(stream.next_size)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    assert len(opened) < 6
    run(tasks, stream.close)
    assert all(one.is_closed for one in opened)


def test_more_calls_than_the_server_takes_on_one_connection():
    """What was not sent goes to another connection, as soon as the limit is known."""

    async def respond(_request, _context):
        yield b"m"
        await asyncio.Event().wait()

    async def use(server):
        streams = [server.call() for _ in range(25)]
        found = await asyncio.gather(*[grpc_server.read(one, 1) for one in streams])
        for one in streams:
            one.close()
        return found, len(server.opened)

    found, connections = grpc_server.run(
        use, respond, options=[("grpc.max_concurrent_streams", 10)]
    )
    assert found == [[b"m"]] * 25
    assert connections == 3


class Relay:
    """Passes bytes on between a client and a server; drops them silently if `is_dropping`."""

    def __init__(self, port):
        self.port, self.is_dropping, self.tasks = port, False, []

    async def __aenter__(self):
        self.server = await asyncio.start_server(self.accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for one in self.tasks:
            one.cancel()

    async def accept(self, reader, writer):
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.port)
        for source, target in ((reader, far_writer), (far_reader, writer)):
            self.tasks.append(asyncio.create_task(self.pass_on(source, target)))

    async def pass_on(self, source, target):
        is_first = self.tasks.index(asyncio.current_task()) < 2
        while piece := await source.read(1 << 16):
            if not (is_first and self.is_dropping):
                target.write(piece)


def test_a_connection_that_was_dropped_silently_does_not_get_the_retry(monkeypatch):
    monkeypatch.setattr(connection, "_SILENT_S", 0.0)

    async def respond(_request, _context):
        yield b"m"
        await asyncio.Event().wait()

    async def use(server):
        port = int(server.endpoint.address.rpartition(":")[2])
        async with Relay(port) as relay:
            address = f"127.0.0.1:{relay.server.sockets[0].getsockname()[1]}"
            server.endpoint = Endpoint(address, is_secure=False)
            stalled, other = server.call(), server.call()
            for one in (stalled, other):
                assert await grpc_server.read(one, 1) == [b"m"]
            relay.is_dropping = True
            stalled.close()
            retried = server.call()
            assert await grpc_server.read(retried, 1) == [b"m"]
            for one in (other, retried):
                one.close()
            return len(server.opened)

    assert grpc_server.run(use, respond) == 2

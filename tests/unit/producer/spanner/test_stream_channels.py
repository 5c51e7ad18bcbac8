"""Connections for streaming queries: opened when all are full, closed when others have room."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from tidegate.producer.spanner import stream_channels
from tidegate.producer.spanner.stream_channels import STREAMS_PER_CHANNEL_MAX, StreamChannels


class Call:
    def __init__(self, messages):
        self.messages = [*messages, grpc.aio.EOF]
        self.cancelled = 0

    def __await__(self):
        yield from asyncio.sleep(0).__await__()
        return self.messages[0]

    async def read(self):
        return self.messages.pop(0)

    def cancel(self):
        self.cancelled += 1


class Channel:
    """Notes its calls and its end."""

    def __init__(self, messages):
        self.calls = []
        self.is_closed = False
        self._messages = messages

    def unary_stream(self, _method, **_serializers):
        return self._begin

    unary_unary = unary_stream

    def _begin(self, _request, **_options):
        self.calls.append(Call(self._messages))
        return self.calls[-1]

    async def close(self, _grace):
        self.is_closed = True


@pytest.fixture
def opened():
    return []


@pytest.fixture
def channels(opened):
    def open_channel():
        opened.append(Channel([b"one", b""]))
        return opened[-1]

    return StreamChannels(open_channel)


def begin(channels, count):
    return [channels.call("m", b"", ()) for _ in range(count)]


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
    assert [len(channel.calls) for channel in opened] == [STREAMS_PER_CHANNEL_MAX, 1]


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
    assert [len(channel.calls) for channel in opened] == [STREAMS_PER_CHANNEL_MAX + 20, 40]


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
    assert [tasks.run(stream.read) for _ in range(3)] == [b"one", b"", None]


def test_a_unary_call_takes_a_place_while_it_runs(tasks, channels):
    found = tasks.run(lambda: channels.call_once("m", b"", (), timeout_s=1))
    assert found == b"one"
    assert [place.streams for place in channels._places] == [0]


def test_closing_ends_every_connection(tasks, channels, opened):
    channels.close()  # before there is one
    run(tasks, lambda: begin(channels, STREAMS_PER_CHANNEL_MAX + 1))
    channels.close()
    assert [channel.is_closed for channel in opened] == [True, True]
    channels.close()


def test_the_memory_of_large_messages_is_returned_every_eight_mebibytes(tasks, monkeypatch):
    """Over all streams; small messages are read as fast as before."""
    returned = []
    monkeypatch.setattr(stream_channels, "return_freed_memory", lambda: returned.append(1))

    async def read(messages):
        channels = StreamChannels(lambda: Channel([bytes(size) for size in messages]))
        found = []
        for _ in range(2):  # streams
            stream = channels.call("method", b"", ())
            while (message := await stream.read()) is not None:
                found.append(len(message))
        assert found == messages * 2

    mebi = 1 << 20
    tasks.run(lambda: read([mebi // 4 - 1] * 50))
    assert returned == []
    tasks.run(lambda: read([2 * mebi] * 2))
    assert returned == [1]
    tasks.run(lambda: read([4 * mebi, 100, 4 * mebi]))
    assert returned == [1] * 3

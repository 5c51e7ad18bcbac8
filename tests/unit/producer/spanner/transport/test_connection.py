"""A connection against a server of gRPC, and against one that sends what a test scripts."""

import asyncio
import socket

import grpc
import pytest
from h2.errors import ErrorCodes
from hpack import Decoder, Encoder
from hyperframe.frame import (
    AltSvcFrame,
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PushPromiseFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)

from tests import grpc_server
from tidegate.producer.spanner.transport import call as calls
from tidegate.producer.spanner.transport import connection as connections
from tidegate.producer.spanner.transport.call import (
    AHEAD_BYTES,
    WAITING,
    ReadAhead,
    framed,
)
from tidegate.producer.spanner.transport.connection import Connection, NotSentError
from tidegate.producer.spanner.transport.endpoint import Endpoint
from tidegate.producer.spanner.transport.status import CallError

PATIENCE_S = 30
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
BEGUN = [(":status", "200"), ("content-type", "application/grpc")]
OK = [("grpc-status", "0")]


def data(stream, content, *, is_last=False, padding=None):
    flags = [*(["END_STREAM"] if is_last else []), *(["PADDED"] if padding is not None else [])]
    return DataFrame(stream, content, pad_length=padding or 0, flags=flags)


def goaway(last, *, code=0, said=b""):
    return GoAwayFrame(0, last_stream_id=last, error_code=code, additional_data=said)


class Raw:
    """Bytes that are no frame of hyperframe's."""

    def __init__(self, content):
        self.content = content

    def serialize(self):
        return self.content


class Peer:
    """One accepted connection: what the client sent, and what the test answers."""

    def __init__(self, reader, writer, settings):
        self.reader, self.writer = reader, writer
        self.settings = settings
        self.received = b""
        self.decoder, self.encoder = Decoder(), Encoder()

    async def start(self):
        assert await self.reader.readexactly(len(PREFACE)) == PREFACE
        self.send(SettingsFrame(0, settings=self.settings))

    def send(self, *frames):
        self.writer.write(b"".join(frame.serialize() for frame in frames))

    async def leave(self):
        await self.writer.drain()
        self.writer.close()

    def headers(self, headers, stream=1, *, is_last=False):
        flags = ["END_HEADERS", *(["END_STREAM"] if is_last else [])]
        return HeadersFrame(stream, self.encoder.encode(headers), flags=flags)

    def begin(self, stream=1):
        return self.headers(BEGUN, stream)

    def end(self, stream=1, headers=OK):
        return self.headers(headers, stream, is_last=True)

    def whole(self, *messages, stream=1):
        """An answer of messages that fit into what may be sent ahead."""
        parts = [data(stream, framed(message)) for message in messages]
        return [self.begin(stream), *parts, self.end(stream)]

    async def widened(self, stream=1):
        """Return by how much the client widens a call's window."""
        while (wider := await self.next(WindowUpdateFrame)).stream_id != stream:
            pass
        return wider.window_increment

    async def next(self, kind):
        """Return the next frame of a kind; others, and what acknowledges, are passed over."""
        while True:
            while len(self.received) >= 9:
                frame, size = Frame.parse_frame_header(memoryview(self.received[:9]))
                if len(self.received) < 9 + size:
                    break
                frame.parse_body(memoryview(self.received[9 : 9 + size]))
                self.received = self.received[9 + size :]
                if type(frame) is kind and (kind is PingFrame or "ACK" not in frame.flags):
                    return frame
            piece = await self.reader.read(1 << 16)
            assert piece, "the client ended the connection"
            self.received += piece

    async def closed(self):
        while await self.reader.read(1 << 16):
            pass


@pytest.fixture
def against():
    """Run a client's coroutine function against a scripted peer."""

    def run(script, use, *, settings=None):
        async def whole():
            done = asyncio.get_running_loop().create_future()

            async def serve(reader, writer):
                try:
                    peer = Peer(reader, writer, settings or {})
                    await peer.start()
                    await script(peer)
                    done.set_result(None)
                    await peer.closed()
                except Exception as error:  # noqa: BLE001 - raised in the test
                    if not done.done():
                        done.set_exception(error)
                finally:
                    writer.close()

            server = await asyncio.start_server(serve, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            client = Connection(Endpoint(f"127.0.0.1:{port}", is_secure=False), ReadAhead())
            try:
                async with asyncio.timeout(PATIENCE_S):
                    result = await use(client)
                    client.close()
                    await done
                    return result
            finally:
                client.close()
                server.close()

        return asyncio.run(whole())

    return run


async def call(client, message=b"request"):
    return await client.call("/service/method", message, [("name", "value")])


async def rest_of(stream_call):
    messages = []
    while (size := await stream_call.next_size()) is not None:
        if size != WAITING:
            messages.append(await stream_call.read())
    return messages


async def all_of(client):
    return await rest_of(await call(client))


async def fails(stream_call):
    with pytest.raises(CallError) as caught:
        await rest_of(stream_call)
    return caught.value.code().name


async def outcome(client):
    """The messages of a call, and its status if it failed."""
    stream_call, messages = await call(client), []
    try:
        while (size := await stream_call.next_size()) is not None:
            if size != WAITING:
                messages.append(await stream_call.read())
    except CallError as error:
        return messages, error.code().name
    return messages, None


def test_a_request_and_its_response(against):
    sent = {}

    async def script(peer):
        sent["settings"] = (await peer.next(SettingsFrame)).settings
        sent["headers"] = dict(peer.decoder.decode((await peer.next(HeadersFrame)).data))
        sent["body"] = await peer.next(DataFrame)
        peer.send(
            AltSvcFrame(0, origin=b"x", field=b"clear"), peer.begin(),
            Raw(b"\0\0\4\x63\0\0\0\0\1some"),  # a frame of an unknown kind
            data(1, framed(b"one"), padding=2), data(1, b""), data(1, framed(b"two")), peer.end(),
        )  # fmt: skip

    assert against(script, all_of) == [b"one", b"two"]
    assert sent["settings"][SettingsFrame.INITIAL_WINDOW_SIZE] == AHEAD_BYTES
    assert sent["settings"][SettingsFrame.ENABLE_PUSH] == 0
    assert sent["headers"][":path"] == "/service/method"
    assert (sent["headers"]["te"], sent["headers"]["name"]) == ("trailers", "value")
    assert sent["headers"]["user-agent"].startswith("grpc-")
    assert sent["body"].data == framed(b"request")
    assert "END_STREAM" in sent["body"].flags


def in_pieces(peer):
    block = peer.encoder.encode([*BEGUN, *OK])
    return [
        HeadersFrame(1, block[:3], flags=["END_STREAM"]), ContinuationFrame(1, block[3:5]),
        ContinuationFrame(1, block[5:], flags=["END_HEADERS"]),
    ]  # fmt: skip


def begun_and(*frames):
    return lambda peer: [peer.begin(), *frames]


@pytest.mark.parametrize(
    ("frames_of", "messages", "status"),
    [
        (lambda peer: peer.whole(b"", b"", b"x", b""), [b"", b"", b"x", b""], None),
        (lambda peer: [peer.headers([(":status", "103"), ("link", "x")]), *peer.whole(b"m")],
         [b"m"], None),
        (in_pieces, [], None),
        (lambda peer: [peer.end(headers=[*BEGUN, ("grpc-status", "7"), ("grpc-message", "no")])],
         [], "PERMISSION_DENIED"),
        (begun_and(data(1, framed(b"m"), is_last=True)), [b"m"], "UNKNOWN"),
        (lambda _: [RstStreamFrame(1, error_code=ErrorCodes.REFUSED_STREAM)], [], "UNAVAILABLE"),
        (begun_and(data(1, framed(b"whole") + framed(b"cut")[:6]),
                   RstStreamFrame(1, error_code=ErrorCodes.INTERNAL_ERROR)),
         [b"whole"], "INTERNAL"),
        (begun_and(data(1, framed(b"whole") + b"\0\0"), None), [b"whole"], "UNAVAILABLE"),
    ],
)  # fmt: skip
def test_an_answer_is_its_messages_and_how_it_ended(against, frames_of, messages, status):
    async def script(peer):
        await peer.next(DataFrame)
        for frame in frames_of(peer):
            if frame is None:
                await peer.leave()
            else:
                peer.send(frame)

    assert against(script, outcome) == (messages, status)


def test_a_connection_itself_holds_nothing_back(against):
    """Else calls that nobody reads would keep the others waiting."""

    async def script(peer):
        assert (await peer.next(WindowUpdateFrame)).window_increment > 10 << 20
        await peer.next(DataFrame)
        peer.send(peer.begin())
        received = 0
        while received < connections._WINDOW_BYTES // 2:
            message = framed(bytes(4_000))
            received += len(message)
            peer.send(data(1, message))
            await peer.next(WindowUpdateFrame)
        while (await peer.next(WindowUpdateFrame)).stream_id:
            peer.send(data(1, framed(bytes(4_000))))
        peer.send(peer.end())

    assert len(against(script, all_of)) > 2_000


def test_a_request_waits_for_the_servers_windows(against):
    body = framed(bytes(50_000))

    async def script(peer):
        await peer.next(HeadersFrame)
        got = b""
        while len(got) < len(body):
            peer.send(WindowUpdateFrame(1, window_increment=20_000))
            part = await peer.next(DataFrame)
            assert len(part.data) <= 20_010
            got += part.data
        assert got == body
        assert "END_STREAM" in part.flags
        peer.send(*peer.whole())

    async def use(client):
        return await rest_of(await call(client, bytes(50_000)))

    assert against(script, use, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 10}) == []


def test_a_server_that_answers_before_it_has_the_request(against):
    """The request's rest is not wanted: the stream is reset, and the connection goes on."""

    async def script(peer):
        await peer.next(DataFrame)
        peer.send(peer.end(headers=[*BEGUN, ("grpc-status", "8")]))
        assert (await peer.next(RstStreamFrame)).stream_id == 1
        await peer.next(HeadersFrame)
        peer.send(WindowUpdateFrame(3, window_increment=100))
        await peer.next(DataFrame)
        peer.send(*peer.whole(b"next", stream=3))

    async def use(client):
        return await fails(await call(client, bytes(50_000))), await all_of(client)

    settings = {SettingsFrame.INITIAL_WINDOW_SIZE: 10}
    assert against(script, use, settings=settings) == ("RESOURCE_EXHAUSTED", [b"next"])


def test_a_server_that_leaves_finishes_the_calls_it_took(against):
    async def script(peer):
        for _ in range(2):
            await peer.next(DataFrame)
        # What the client prepares because of what came before is sent, and so is what comes later.
        peer.send(PingFrame(0, b"before.."), goaway((1 << 31) - 1), goaway(1, said=b"bye"),
                  PingFrame(0, b"after..."))  # fmt: skip
        for said in (b"before..", b"after..."):
            assert (await peer.next(PingFrame)).opaque_data == said
        whole = framed(bytes(10_000))
        peer.send(peer.begin(), data(1, whole[:AHEAD_BYTES]))
        assert await peer.widened() == len(whole) - AHEAD_BYTES
        peer.send(data(1, whole[AHEAD_BYTES:]), peer.end())

    async def use(client):
        first, second = await call(client), await call(client)
        refused = await fails(second)
        assert not client.is_usable
        with pytest.raises(NotSentError):
            await call(client)
        return refused, await rest_of(first)

    assert against(script, use) == ("UNAVAILABLE", [bytes(10_000)])


@pytest.mark.parametrize("ends_by", ["reset", "loss"])
def test_what_a_server_said_when_it_left_is_in_the_errors_of_calls_that_went_on(against, ends_by):
    async def script(peer):
        await peer.next(DataFrame)
        said = b"too_many_pings" + b"!" * 10_000
        peer.send(goaway(1, code=ErrorCodes.ENHANCE_YOUR_CALM, said=said))
        peer.send(peer.begin(), data(1, framed(b"m")))
        if ends_by == "reset":
            peer.send(RstStreamFrame(1, int(ErrorCodes.INTERNAL_ERROR)))
        else:
            await peer.leave()

    async def use(client):
        with pytest.raises(CallError) as caught:
            await all_of(client)
        return caught.value.details()

    details = against(script, use)
    assert "after the server takes no more calls (ENHANCE_YOUR_CALM) too_many_pings" in details
    assert len(details) < 1_000


def test_a_socket_closes_whatever_the_peer_reads(against, monkeypatch):
    monkeypatch.setattr(connections, "_CLOSE_PATIENCE_S", 0.0)
    ended = asyncio.Event()

    async def script(peer):
        await peer.next(DataFrame)
        peer.send(peer.begin(), data(1, framed(b"m")))
        await ended.wait()  # and reads nothing

    async def use(client):
        assert await (await call(client)).next_size() == 1
        client._transport.write(bytes(50_000_000))
        assert client._transport.get_write_buffer_size()
        client.close()
        for _ in range(1_000):
            if client._transport.get_extra_info("socket").fileno() < 0:
                break
            await asyncio.sleep(0.01)
        assert client._transport.get_extra_info("socket").fileno() < 0
        ended.set()

    against(script, use)


def test_no_more_calls_than_the_server_accepts_or_numbers_there_are(against):
    async def script(peer):
        await peer.next(DataFrame)
        peer.send(*peer.whole())

    async def use(client):
        stream_call = await call(client)
        assert client.streams_max == 1
        with pytest.raises(NotSentError, match="no more calls"):
            await call(client)
        assert await rest_of(stream_call) == []
        client._http2.highest_outbound_stream_id = (1 << 31) - 1
        with pytest.raises(NotSentError):
            await call(client)
        assert not client.is_usable

    against(script, use, settings={SettingsFrame.MAX_CONCURRENT_STREAMS: 1})


def test_a_cancelled_call_is_reset_and_what_still_comes_is_dropped(against):
    async def script(peer):
        await peer.next(DataFrame)
        reset = await peer.next(RstStreamFrame)
        assert (reset.stream_id, reset.error_code) == (1, ErrorCodes.CANCEL)
        peer.send(peer.begin(), data(1, framed(b"late")))
        await peer.next(DataFrame)
        # The decoder has read the headers of the first: these refer to them.
        peer.send(*peer.whole(stream=3))

    async def use(client):
        (await call(client)).cancel()
        return await all_of(client)

    assert against(script, use) == []


def test_a_server_that_pings_and_reads_no_answer_is_read_no_further(against):
    """Else the answers would fill the memory."""

    async def script(peer):
        await peer.next(DataFrame)
        peer.send(PingFrame(0, b"12345678"))
        answer = await peer.next(PingFrame)
        assert (answer.opaque_data, answer.flags) == (b"12345678", {"ACK"})
        for transport in (peer.writer.transport, peer.client._transport):
            for size in (socket.SO_SNDBUF, socket.SO_RCVBUF):  # by itself the system lets them grow
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, size, 1 << 16)
        peer.writer.transport.pause_reading()
        flood = PingFrame(0, bytes(8)).serialize() * 5_000
        client, sent = peer.client, 0
        while not client.is_held_back:
            peer.writer.write(flood)
            sent += len(flood)
            await asyncio.sleep(0)
        assert client._transport.get_write_buffer_size() < 1 << 20
        peer.writer.transport.resume_reading()
        for _ in range(sent // 17):
            await peer.next(PingFrame)
        peer.send(*peer.whole())

    async def use(client):
        holding = client.pause_writing

        def note():
            client.is_held_back = True
            holding()

        client.is_held_back = False
        client.pause_writing = note
        Peer.client = client
        return await all_of(client)

    assert against(script, use) == []


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_server_that_answers_no_ping_is_given_up(against, monkeypatch, is_answered):
    monkeypatch.setattr(connections, "_KEEPALIVE_S", 0.0)
    monkeypatch.setattr(connections, "_KEEPALIVE_TIMEOUT_S", 0.2 if is_answered else 0.01)

    async def script(peer):
        await peer.next(PingFrame)
        if is_answered:
            for _ in range(3):
                peer.send(PingFrame(0, bytes(8), flags=["ACK"]))
                await peer.next(PingFrame)
            peer.send(*peer.whole())

    assert against(script, outcome) == ([], None if is_answered else "UNAVAILABLE")


def test_a_server_that_sends_something_is_not_pinged(against, monkeypatch):
    """Servers end connections that ping often: only a silence needs one."""
    monkeypatch.setattr(connections, "_KEEPALIVE_S", 3_600.0)

    async def use(client):
        assert await (await call(client)).next_size() == 1
        asked = []
        client._http2.ping = asked.append
        client._keep_alive()
        assert not asked
        client._received_at -= 3_601
        client._keep_alive()
        assert asked == [bytes(8)]

    async def script(peer):
        await peer.next(DataFrame)
        peer.send(peer.begin(), data(1, framed(b"m")))

    against(script, use)


@pytest.mark.parametrize("is_busy", [True, False])
def test_calls_that_wait_hear_that_others_keep_the_connection_busy(against, monkeypatch, is_busy):
    monkeypatch.setattr(calls, "_BEHIND_OTHERS_S", (0.0, 120.0))
    monkeypatch.setattr(connections, "_LOOK_EVERY_S", 0.0)
    monkeypatch.setattr(connections, "_BUSY_BYTES_PER_S", 0 if is_busy else 1 << 60)
    waits = asyncio.Event()

    async def script(peer):
        for _ in range(2):
            await peer.next(DataFrame)
        peer.send(peer.begin(), peer.begin(3), data(1, framed(b"m")), peer.end())
        await waits.wait()
        peer.send(data(3, framed(b"n")), peer.end(3))

    async def use(client):
        busy, waiting = await call(client), await call(client)
        first = asyncio.create_task(waiting.next_size())
        assert await rest_of(busy) == [b"m"]
        if is_busy:
            assert await first == WAITING
            first = asyncio.create_task(waiting.next_size())
        waits.set()
        while (size := await first) == WAITING:
            first = asyncio.create_task(waiting.next_size())
        assert size == 1

    against(script, use)


def test_a_connection_that_was_silent_when_a_call_was_given_up_gets_no_new_ones(against):
    answers = asyncio.Event()

    async def use(client):
        first_call, other = await call(client), await call(client)
        assert await first_call.next_size() == 1
        other.cancel()
        assert client.is_usable  # it was heard just now
        other = await call(client)
        client._received_at -= connections._SILENT_S
        other.cancel()
        assert not client.is_usable
        answers.set()
        assert await first_call.read() == b"m"
        assert await first_call.next_size() == 1
        assert client.is_usable

    async def script(peer):
        await peer.next(DataFrame)
        peer.send(peer.begin(), data(1, framed(b"m")))
        await answers.wait()
        peer.send(data(1, framed(b"m")))

    against(script, use)


@pytest.mark.parametrize(
    "broken",
    [
        [data(1, bytes(AHEAD_BYTES + 1))],
        [HeadersFrame(1, b"\xff\xff\xff\xff\xff\xff", flags=["END_HEADERS"])],
        [HeadersFrame(1, bytes(10)), *[ContinuationFrame(1, bytes(10))] * 100],  # without an end
        [PushPromiseFrame(1, promised_stream_id=2, flags=["END_HEADERS"])],
        [Raw(b"\0\0\1\4\0\0\0\0\0x")],  # SETTINGS of one byte
        [Raw(b"\1\0\0\0\0\0\0\0\1" + bytes(1 << 16))],  # DATA of 64 KiB
        [Raw(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(5_000_000))],
    ],
)
def test_a_server_that_breaks_the_rules_is_left(against, broken):
    async def script(peer):
        await peer.next(DataFrame)
        peer.send(peer.begin(), *broken)
        await peer.next(GoAwayFrame)

    async def use(client):
        ended = await outcome(client)
        assert not client.is_usable
        return ended

    assert against(script, use) == ([], "INTERNAL")


def test_nobody_listens_or_answers_and_all_who_wait_hear_it(monkeypatch):
    monkeypatch.setattr(connections, "_CONNECT_TIMEOUT_S", 0.1)

    async def run():
        async def serve(reader, writer):
            await reader.read()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        for port in (1, server.sockets[0].getsockname()[1]):
            client = Connection(Endpoint(f"127.0.0.1:{port}", is_secure=False), ReadAhead())
            errors = await asyncio.gather(*[call(client) for _ in range(3)], return_exceptions=True)
            assert not client.is_usable
            assert {error.code() for error in errors} == {grpc.StatusCode.UNAVAILABLE}
        server.close()

    asyncio.run(run())


def test_a_secret_is_kept_out_of_the_header_table_and_bad_metadata_fails_its_call(against):
    async def script(peer):
        tables = []
        for _ in range(2):
            request = await peer.next(HeadersFrame)
            headers = dict(peer.decoder.decode(request.data))
            assert headers["authorization"] == "Bearer secret"
            tables.append([name for name, _ in peer.decoder.header_table.dynamic_entries])
        assert b":path" in tables[1]
        assert b"authorization" not in tables[1]

    async def use(client):
        for _ in range(2):
            await client.call("/path", b"", [("authorization", "Bearer secret")])
        with pytest.raises(CallError, match="metadata") as caught:
            await client.call("/path", b"", [(":unknown", "x")])
        return caught.value.code()

    assert against(script, use) is grpc.StatusCode.INTERNAL


def test_a_server_that_replaces_old_connections_breaks_no_query():
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
            for stream in streams:
                assert await grpc_server.read(stream, 1) == [b"m"]
        assert await grpc_server.read(server.call(b"last")) == [b"new"]
        for stream in streams:
            assert await grpc_server.read(stream, 5) == [b"m"] * 5
            stream.close()
        return len(server.opened)

    ages = {"max_connection_age_ms": 300, "max_connection_age_grace_ms": PATIENCE_S * 2_000}
    options = [(f"grpc.{name}", value) for name, value in ages.items()]
    assert grpc_server.run(use, respond, options=options) >= 2

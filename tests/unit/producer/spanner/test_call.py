"""A call's messages, its end, and the rule that nothing large comes before it is asked for."""

import asyncio

import grpc
import pytest
from h2.errors import ErrorCodes
from hypothesis import given
from hypothesis import strategies as st

from tests.grpc_server import read, run, sizes
from tidegate.producer.spanner import call as calls
from tidegate.producer.spanner.call import (
    AHEAD_BYTES,
    WAITING,
    Call,
    CallError,
    ReadAhead,
    framed,
    of_error_code,
)
from tidegate.producer.spanner.status_details import asked_pause_us


class Server:
    """Sends what a call's window lets through, in pieces."""

    def __init__(self, messages, *, ahead=None, piece=1 << 20):
        self.unsent = b"".join(framed(message) for message in messages)
        self.window = AHEAD_BYTES
        self.piece = piece
        self.cancelled = 0
        self.trailers = {"grpc-status": "0"}
        self.call = Call(widen=self.widen, cancel=self.cancel, ahead=ahead or ReadAhead(0))
        self.call.begin({":status": "200", "content-type": "application/grpc"})

    def widen(self, size):
        assert size > 0
        self.window += size

    def cancel(self):
        self.cancelled += 1

    def send(self):
        """Send as much as it may; then the status, if that was all."""
        while self.unsent and self.window:
            size = min(self.window, self.piece)
            part, self.unsent = self.unsent[:size], self.unsent[size:]
            self.window -= len(part)
            self.call.add(part, len(part))
        if not self.unsent:
            self.call.end(self.trailers)

    async def keep_sending(self):
        while self.unsent:
            self.send()
            await asyncio.sleep(0)

    async def read_all(self):
        found, sending = [], asyncio.create_task(self.keep_sending())
        self.send()
        while await self.call.next_size() is not None:
            found.append(await self.call.read())
        await sending
        return found


@given(
    st.lists(st.binary(max_size=3) | st.integers(0, 3 * AHEAD_BYTES).map(bytes), max_size=12),
    st.integers(1, 5_000),
    st.integers(0, 100_000),
)
def test_messages_come_back_however_they_are_cut(messages, piece, ahead):
    allowance = ReadAhead(ahead)
    server = Server(messages, ahead=allowance, piece=piece)
    assert asyncio.run(server.read_all()) == messages
    assert allowance.left == ahead


def test_a_large_message_comes_only_once_it_is_asked_for():
    async def run():
        server = Server([bytes(1_000_000)] * 2)
        server.send()
        assert await server.call.next_size() == 1_000_000
        server.send()
        assert len(server.call._received) == AHEAD_BYTES

        reading = asyncio.create_task(server.call.read())
        await asyncio.sleep(0)
        server.send()
        assert len(await reading) == 1_000_000
        server.send()
        assert len(server.call._received) <= AHEAD_BYTES

    asyncio.run(run())


@given(
    st.lists(st.integers(0, 3 * AHEAD_BYTES), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), max_size=80),
)
def test_all_calls_hold_what_was_asked_for_and_what_they_may_have_ahead(sizes, readers):
    """However many small and large messages come on how many calls, in any order."""
    allowance = 2 * AHEAD_BYTES

    async def run():
        ahead = ReadAhead(allowance)
        servers = [Server([bytes(size) for size in sizes], ahead=ahead) for _ in range(6)]
        for place in readers:
            for server in servers:
                server.send()
            held = sum(len(server.call._received) for server in servers)
            assert held <= len(servers) * AHEAD_BYTES + allowance
            call = servers[place].call
            if await call.next_size() is not None:
                reading = asyncio.create_task(call.read())
                await asyncio.sleep(0)
                servers[place].send()
                await reading

    asyncio.run(run())


def test_a_call_that_is_busy_may_have_more_ahead_and_gives_it_back_when_it_is_quiet():
    async def run():
        ahead = ReadAhead(1 << 20)
        server = Server([bytes(100)] * 2_000, ahead=ahead)
        for _ in range(300):
            server.send()
            await server.call.next_size()
            await server.call.read()
        assert (1 << 20) - ahead.left == calls._BUSY_AHEAD_BYTES - AHEAD_BYTES

        for _ in range(1_650):  # a message now and then
            if len(server.call._received) < 105:
                part, server.unsent = server.unsent[:105], server.unsent[105:]
                server.window -= len(part)
                server.call.add(part, len(part))
            await server.call.next_size()
            await server.call.read()
        assert ahead.left == 1 << 20

    asyncio.run(run())


def fails(server, *, after=()):
    async def run():
        for message in after:
            assert await server.call.next_size() == len(message)
            assert await server.call.read() == message
        if await server.call.next_size() is not None:
            await server.call.read()

    with pytest.raises(CallError) as caught:
        asyncio.run(run())
    return caught.value


def test_a_message_that_takes_long_is_read_in_parts():
    async def run():
        message, parts = bytes(range(256)) * 1_000, 0
        server = Server([message, b"next"])

        async def send_slowly():
            while server.unsent:
                size = min(1_000, server.window)
                part, server.unsent = server.unsent[:size], server.unsent[size:]
                server.window -= size
                server.call.add(part, size)
                await asyncio.sleep(0)

        sending = asyncio.create_task(send_slowly())
        assert await server.call.next_size() == len(message)
        while (found := await server.call.read(pause_s=0.0)) is None:
            parts += 1
        assert found == message
        assert parts > 10
        assert await server.call.next_size() == 4
        assert await server.call.read(pause_s=0.0) == b"next"  # it came ahead
        await sending

    asyncio.run(run())


def test_a_call_waits_behind_others_for_a_time_and_says_so():
    async def run():
        server = Server([bytes(1_000_000)])
        call, loop = server.call, asyncio.get_running_loop()
        for wait, done in (
            (call.next_size, lambda found: found == WAITING),
            (call.read, lambda found: found is None),
        ):
            waiting = asyncio.create_task(wait())
            await asyncio.sleep(0)
            now = loop.time()
            for age_s in (0, 1, 121, 3_600):
                call.yield_to_others(now + age_s)
                await asyncio.sleep(0)
                assert not waiting.done(), age_s
            for age_s in (3, 119):
                call.yield_to_others(now + age_s)
                for _ in range(3):
                    await asyncio.sleep(0)
                assert waiting.done(), age_s
                assert done(waiting.result())
                waiting = asyncio.create_task(wait())
                await asyncio.sleep(0)
            if wait == call.next_size:
                server.send()
                assert await waiting == 1_000_000
            else:
                sending = asyncio.create_task(server.keep_sending())
                assert len(await waiting) == 1_000_000
                await sending
        call.yield_to_others(loop.time() + 60)  # nothing waits
        assert await call.next_size() is None

    asyncio.run(run())


def test_a_silent_message_is_not_a_part():
    async def run():
        server = Server([bytes(1_000_000)])
        server.send()
        assert await server.call.next_size() == 1_000_000
        reading = asyncio.create_task(server.call.read(pause_s=0.0))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not reading.done()
        server.call.cancel()
        with pytest.raises(CallError):
            await reading

    asyncio.run(run())


def test_a_message_that_comes_byte_by_byte_is_silence(monkeypatch):
    async def run():
        server = Server([bytes(1_000_000)], piece=1)
        server.window = 5
        server.send()
        assert await server.call.next_size() == 1_000_000
        now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        reading = asyncio.create_task(server.call.read(pause_s=1.0))
        for _ in range(100):
            await asyncio.sleep(0)
            now += 1.0
            server.call.add(b"x", 1)
        assert not reading.done()
        server.call.add(bytes(200_000), 200_000)
        assert await reading is None

    asyncio.run(run())


def test_messages_before_an_error_come_first():
    server = Server([b"one", b""])
    server.trailers = {"grpc-status": "14", "grpc-message": "gone%3A away"}
    server.send()
    error = fails(server, after=[b"one", b""])
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert error.details() == "gone: away"


@pytest.mark.parametrize("trailers", [{}, {"grpc-status": "x"}, {"grpc-status": "99"}])
def test_an_end_without_a_known_status_is_no_good_end(trailers):
    server = Server([])
    server.trailers = trailers
    server.send()
    assert fails(server).code() is grpc.StatusCode.UNKNOWN


@pytest.mark.parametrize("cut", [1, 4, 5, 7])
def test_an_end_within_a_message_is_no_good_end(cut):
    server = Server([b"abcdef"])
    server.unsent = server.unsent[:cut]
    server.send()
    assert fails(server).code() is grpc.StatusCode.INTERNAL


def test_a_cancelled_call_ends_at_once_and_once():
    async def run():
        server = Server([b"unread", bytes(1_000_000)])
        server.send()
        for _ in range(2):
            assert await server.call.next_size() is not None
            waiting = asyncio.create_task(server.call.read())
            await asyncio.sleep(0)
        server.call.cancel()
        server.call.cancel()
        with pytest.raises(CallError) as caught:
            await waiting
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        assert server.cancelled == 1
        with pytest.raises(CallError):
            await server.call.next_size()

    asyncio.run(run())


def test_a_call_that_is_cancelled_before_its_message_is_asked_for_fails():
    async def run():
        server = Server([bytes(1_000_000)])
        server.send()
        assert await server.call.next_size() == 1_000_000
        server.call.cancel()
        with pytest.raises(CallError):
            await server.call.read()

    asyncio.run(run())


def test_padding_takes_nothing_of_what_the_server_may_send():
    """Else a message would not come whole, or its size would never come."""

    async def run():
        server = Server([bytes(3 * AHEAD_BYTES)])
        while server.window > 256 and len(server.call._received) < 4:
            part, server.unsent = server.unsent[:1], server.unsent[1:]
            server.window -= 256
            server.call.add(part, 256)
        assert server.window >= AHEAD_BYTES - 4
        server.send()
        assert await server.call.next_size() == 3 * AHEAD_BYTES
        reading = asyncio.create_task(server.call.read())
        while server.unsent:
            await asyncio.sleep(0)
            assert server.window, "the server may send no more"
            size = min(1_000, server.window)
            padding = min(255, server.window - size)
            part, server.unsent = server.unsent[:size], server.unsent[size:]
            server.window -= len(part) + padding
            server.call.add(part, len(part) + padding)
        assert len(await reading) == 3 * AHEAD_BYTES

    asyncio.run(run())


def test_a_compressed_message_is_refused():
    server = Server([])
    server.unsent = b"\1\0\0\0\1x"
    server.send()
    assert fails(server).code() is grpc.StatusCode.INTERNAL


@pytest.mark.parametrize("body", [b"", b"<h1>Not\n here</h1>" + b"x" * 5_000])
@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({":status": "503", "retry-after": "7"}, "UNAVAILABLE"),
        ({":status": "403", "server": "envoy"}, "PERMISSION_DENIED"),
        ({":status": "401", "via": "1.1 google"}, "UNAUTHENTICATED"),
        ({":status": "404"}, "UNIMPLEMENTED"),
        ({":status": "418"}, "UNKNOWN"),
        ({":status": "200", "content-type": "text/html"}, "UNKNOWN"),
        ({}, "UNKNOWN"),
    ],
)
def test_an_answer_that_is_not_grpcs_says_what_answered(headers, code, body):
    server = Server([])
    server.call = Call(widen=server.widen, cancel=server.cancel, ahead=ReadAhead())
    server.call.begin(headers)
    if body:
        server.call.add(body[:AHEAD_BYTES], AHEAD_BYTES)
    else:
        server.call.end({})
    error = fails(server)
    assert error.code() is grpc.StatusCode[code]
    assert error.is_web_page
    for name in (":status", "server", "via", "content-type"):
        assert headers.get(name, "") in error.details()
    assert ("<h1>Not here</h1>" in error.details()) == bool(body)
    assert len(error.details()) < 800
    assert server.cancelled == bool(body)
    assert asked_pause_us(error) == (7_000_000 if "retry-after" in headers else 0)


def test_a_status_of_grpc_counts_whatever_came_before_it():
    server = Server([])
    server.call = Call(widen=server.widen, cancel=server.cancel, ahead=ReadAhead())
    server.call.begin({":status": "403", "content-type": "application/grpc"})
    server.call.end({"grpc-status": "7", "grpc-message": "no", "grpc-status-details-bin": "CAc"})
    error = fails(server)
    assert error.code() is grpc.StatusCode.PERMISSION_DENIED
    assert not error.is_web_page
    assert dict(error.trailing_metadata())["grpc-status-details-bin"] == "CAc"


@pytest.mark.parametrize(
    ("code", "status"),
    [(ErrorCodes.CANCEL, "CANCELLED"), (ErrorCodes.REFUSED_STREAM, "UNAVAILABLE"),
     (ErrorCodes.ENHANCE_YOUR_CALM, "RESOURCE_EXHAUSTED"), (ErrorCodes.PROTOCOL_ERROR, "INTERNAL"),
     (ErrorCodes.NO_ERROR, "INTERNAL")],
)  # fmt: skip
def test_how_a_stream_ended_is_a_status(code, status):
    assert of_error_code(code, "the call ended").code() is grpc.StatusCode[status]


@pytest.mark.parametrize("has_tls", [False, True])
def test_messages_of_any_size(certificate, monkeypatch, has_tls):
    monkeypatch.setenv("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", str(certificate))
    asked = [0, 1, 5_000, 0, 4_091, 4_092, 300_000, 7, 20_000_000, 0]

    async def use(server):
        found = await read(server.call(",".join(map(str, asked)).encode()))
        assert server.metadata[0]["name"] == "value"
        return [len(one) for one in found]

    options = [("grpc.max_send_message_length", -1)]
    certificates = {"certificate": certificate} if has_tls else {}
    assert run(use, sizes, options=options, **certificates) == asked


@pytest.mark.parametrize("after", [0, 2])
@pytest.mark.parametrize("code", [code for code in grpc.StatusCode if code.value[0]])
def test_every_status_and_its_text(code, after):
    async def respond(_request, context):
        for _ in range(after):
            yield b"m"
        await context.abort(code, "what happened: 100 %, and \u00e9")

    async def use(server):
        stream = server.call()
        assert await read(stream, after) == [b"m"] * after
        with pytest.raises(CallError) as caught:
            await stream.next_size()
        return caught.value.code(), caught.value.details()

    assert run(use, respond) == (code, "what happened: 100 %, and \u00e9")


def test_messages_that_nobody_reads_hold_up_no_other_call():
    """Forty calls that receive 1 MB each, and one that is read."""

    async def use(server):
        silent = [server.call(b"1000000,1000000") for _ in range(40)]
        for one in silent:
            assert await one.next_size() == 1_000_000
        assert len(await read(server.call(b"9," * 5_000 + b"9"))) == 5_001
        held = sum(len(call._received) for call in server.opened[0]._calls.values())
        assert held <= 40 * 4_096
        return [len(one) for stream in silent for one in await read(stream)]

    assert run(use, sizes) == [1_000_000] * 80

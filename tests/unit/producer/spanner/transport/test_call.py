"""A call's messages, its end, and the rule that nothing large comes before it is asked for."""

import asyncio
import itertools

import grpc
import pytest
from h2.errors import ErrorCodes
from hypothesis import given
from hypothesis import strategies as st

from tests.grpc_server import read, run, sizes
from tidegate.producer.spanner.transport import call as calls
from tidegate.producer.spanner.transport.call import (
    AHEAD_BYTES,
    RATE_MIN_BYTES_PER_S,
    WAITING,
    ByteProgress,
    Call,
    ReadAhead,
    framed,
)
from tidegate.producer.spanner.transport.status import CallError, asked_pause_us

RATE = RATE_MIN_BYTES_PER_S


class Server:
    """Sends what a call's window lets through, in pieces."""

    def __init__(self, messages=(), *, ahead=None, piece=1 << 20, headers=None, trailers=None):
        self.unsent = b"".join(framed(message) for message in messages)
        self.window = AHEAD_BYTES
        self.piece = piece
        self.cancelled = 0
        self.trailers = {"grpc-status": "0"} if trailers is None else trailers
        self.call = Call(widen=self.widen, cancel=self.cancel, ahead=ahead or ReadAhead(0))
        self.call.begin(headers or {":status": "200", "content-type": "application/grpc"})

    def widen(self, size):
        assert size > 0
        self.window += size

    def cancel(self):
        self.cancelled += 1

    def send_part(self, size, padding=0):
        """Send some bytes, and padding, that a window of the client lets through."""
        part, self.unsent = self.unsent[:size], self.unsent[size:]
        self.window -= len(part) + padding
        self.call.add(part, len(part) + padding)

    def send(self):
        """Send as much as it may; then the status, if that was all."""
        while self.unsent and self.window:
            self.send_part(min(self.window, self.piece))
        if not self.unsent:
            self.call.end(self.trailers)
        return self

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


def on_a_loop(test):
    """Run a test that is a coroutine function."""

    def whole():
        asyncio.run(test())

    whole.__name__, whole.__doc__ = test.__name__, test.__doc__
    return whole


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


@on_a_loop
async def test_a_call_that_is_busy_may_have_more_ahead_and_gives_it_back_when_it_is_quiet():
    ahead = ReadAhead(1 << 20)
    server = Server([bytes(100)] * 2_000, ahead=ahead)
    for _ in range(300):
        server.send()
        await server.call.next_size()
        await server.call.read()
    assert (1 << 20) - ahead.left == calls._BUSY_AHEAD_BYTES - AHEAD_BYTES
    for _ in range(1_650):  # a message now and then
        if len(server.call._received) < 105:
            server.send_part(105)
        await server.call.next_size()
        await server.call.read()
    assert ahead.left == 1 << 20


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


@on_a_loop
async def test_a_call_waits_behind_others_for_a_time_and_says_so():
    server = Server([bytes(1_000_000)])
    call, loop = server.call, asyncio.get_running_loop()
    for wait, said in ((call.next_size, WAITING), (call.read, None)):
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
            assert waiting.result() == said
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


@pytest.mark.parametrize("is_trickling", [False, True])
def test_a_message_that_comes_byte_by_byte_is_silence(monkeypatch, is_trickling):
    async def run():
        server = Server([bytes(1_000_000)], piece=1)
        server.window = 5
        assert await server.send().call.next_size() == 1_000_000
        now = asyncio.get_running_loop().time()
        monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
        reading = asyncio.create_task(server.call.read(pause_s=1.0))
        for _ in range(100):
            await asyncio.sleep(0)
            now += 1.0
            if is_trickling:
                server.call.add(b"x", 1)
        assert not reading.done()
        if is_trickling:
            server.call.add(bytes(200_000), 200_000)
            assert await reading is None
        else:
            server.call.cancel()
            with pytest.raises(CallError):
                await reading

    asyncio.run(run())


def test_an_end_without_a_known_status_or_within_a_message_is_no_good_end():
    for trailers in ({}, {"grpc-status": "x"}, {"grpc-status": "99"}):
        assert fails(Server(trailers=trailers).send()).code() is grpc.StatusCode.UNKNOWN
    compressed = b"\1\0\0\0\1x"
    for unsent in (*(framed(b"abcdef")[:cut] for cut in (1, 4, 5, 7)), compressed):
        server = Server()
        server.unsent = unsent
        assert fails(server.send()).code() is grpc.StatusCode.INTERNAL


@on_a_loop
async def test_a_cancelled_call_ends_at_once_and_once():
    server = Server([b"unread", bytes(1_000_000)]).send()
    for _ in range(2):
        assert await server.call.next_size() is not None
        waiting = asyncio.create_task(server.call.read())
        await asyncio.sleep(0)
    for _ in range(2):
        server.call.cancel()
    with pytest.raises(CallError) as caught:
        await waiting
    assert caught.value.code() is grpc.StatusCode.CANCELLED
    assert server.cancelled == 1
    with pytest.raises(CallError):
        await server.call.next_size()
    # Also one that is cancelled before its message is asked for.
    server = Server([bytes(1_000_000)]).send()
    assert await server.call.next_size() == 1_000_000
    server.call.cancel()
    with pytest.raises(CallError):
        await server.call.read()


@on_a_loop
async def test_padding_takes_nothing_of_what_the_server_may_send():
    """Else a message would not come whole, or its size would never come."""
    server = Server([bytes(3 * AHEAD_BYTES)])
    while server.window > 256 and len(server.call._received) < 4:
        server.send_part(1, 255)
    assert server.window >= AHEAD_BYTES - 4
    assert await server.send().call.next_size() == 3 * AHEAD_BYTES
    reading = asyncio.create_task(server.call.read())
    while server.unsent:
        await asyncio.sleep(0)
        assert server.window, "the server may send no more"
        size = min(1_000, server.window)
        server.send_part(size, min(255, server.window - size))
    assert len(await reading) == 3 * AHEAD_BYTES


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
        ({"x": "y"}, "UNKNOWN"),
    ],
)
def test_an_answer_that_is_not_grpcs_says_what_answered(headers, code, body):
    server = Server(headers=headers)
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
    server = Server(headers={":status": "403", "content-type": "application/grpc"})
    server.call.end(
        {"grpc-status": "7", "grpc-message": "gone%3A", "grpc-status-details-bin": "CAc"}
    )
    error = fails(server)
    assert (error.code(), error.details()) == (grpc.StatusCode.PERMISSION_DENIED, "gone:")
    assert not error.is_web_page
    assert dict(error.trailing_metadata())["grpc-status-details-bin"] == "CAc"


def test_how_a_stream_ended_is_a_status():
    for code, status in (
        ("CANCEL", "CANCELLED"), ("REFUSED_STREAM", "UNAVAILABLE"), ("PROTOCOL_ERROR", "INTERNAL"),
        ("ENHANCE_YOUR_CALM", "RESOURCE_EXHAUSTED"), ("NO_ERROR", "INTERNAL"),
    ):  # fmt: skip
        error = CallError.reset(ErrorCodes[code], "the call ended")
        assert error.code() is grpc.StatusCode[status]


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


def signs(arrivals, *, until_s, every_s=1.0):
    """Return when a message says that it is not silent, of (second, bytes) that come of it."""
    progress, left, found = ByteProgress(), sorted(arrivals), []
    progress.wait(0.0, in_message=True)
    now = 0.0
    while now < until_s:
        now += every_s
        while left and left[0][0] <= now:
            progress.add(left.pop(0)[1])
        progress.wait(now, in_message=True)
        if progress.is_coming(now):
            found.append(now)
    return found


def test_a_slow_link_or_one_in_bursts_is_no_silence_but_one_below_the_least_rate_is():
    for bytes_per_s in (1, RATE - 1):
        assert signs([(n, bytes_per_s) for n in range(1, 3_001)], until_s=3_000) == []
    for bytes_per_s in (RATE, 5 * RATE, 600_000):
        drops = [(second, bytes_per_s) for second in range(1, 61)]
        assert signs(drops, until_s=60) == [float(second) for second in range(1, 61)]
    # 16 KiB of each of 80 calls in turns, over a link of 4.8 Mbit/s: one in two seconds.
    found = signs([(second, 16_384) for second in range(2, 60, 2)], until_s=60)
    assert max(b - a for a, b in itertools.pairwise(found)) <= 2
    # What came fast pays for no silence after it; else a last byte could hold a query for hours.
    drops = [(1, 10_000_000), *((second, 1) for second in range(2, 600))]
    assert signs(drops, until_s=600) == [1.0]


def test_each_message_begins_again():
    progress = ByteProgress()
    progress.wait(0.0, in_message=True)
    progress.add(1)
    progress.end_message()
    assert not progress.is_coming(1.0)  # nothing is waited for
    progress.wait(500.0, in_message=True)
    progress.add(2 * RATE)
    assert progress.is_coming(501.0)


def behind(progress, *seconds):
    return [second for second in seconds if progress.is_behind(second)]


def test_a_call_is_behind_others_for_a_time():
    progress = ByteProgress()
    assert behind(progress, 60) == []
    progress.wait(0.0, in_message=False)
    assert behind(progress, 0, 1, 2, 60, 120, 121, 3_600) == [2, 60, 120]
    progress.add(16_384)
    assert behind(progress, 60) == []
    progress.wait(100.0, in_message=True)
    assert behind(progress, 101, 102, 220, 221) == [102, 220]
    progress.end_message()
    progress.wait(300.0, in_message=False)
    assert behind(progress, 301, 302) == [302]


def test_single_bytes_do_not_let_a_call_be_behind_others_for_good():
    progress, found = ByteProgress(), []
    for second in range(0, 1_000, 3):
        progress.wait(float(second), in_message=True)
        found += behind(progress, second)
        progress.add(1)
    assert max(found) == 120

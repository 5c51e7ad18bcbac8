"""What a bare channel sees: statuses, trailers, and calls that end before they are answered."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from spanner_simulator import Simulator, SimulatorConfig
from spanner_simulator.server.host import Host
from spanner_simulator.server.transport.grpc_server import start_grpc_server


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator(SimulatorConfig()) as running:
        yield running


@pytest.fixture(scope="module")
def database(simulator: Simulator) -> str:
    return str(simulator.create_database("calls")["name"])


@pytest.fixture
def channel(simulator: Simulator) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(simulator.grpc_address) as opened:
        yield opened


def call(channel: grpc.Channel, method: str, request: bytes, **options) -> bytes:
    return channel.unary_unary(f"/google.spanner.v1.Spanner/{method}")(
        request, timeout=20, **options
    )


def failure(channel: grpc.Channel, method: str, request: bytes, **options) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, method, request, **options)
    return caught.value


def test_bytes_that_are_no_request_are_an_invalid_argument(channel: grpc.Channel) -> None:
    error = failure(channel, "Commit", b"\xff\xff\xff")
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "cannot be parsed" in (error.details() or "")


@pytest.mark.parametrize(
    "method",
    ["google.spanner.v1.Spanner/FetchCacheUpdate", "google.spanner.v1.Spanner/Nope", "a.B/C"],
)
def test_an_unknown_method_is_refused_by_name(channel: grpc.Channel, method: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/{method}")(b"", timeout=20)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == f"The simulator does not support: the method {method}"


def test_a_bug_is_internal_and_the_server_goes_on(channel: grpc.Channel, monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patched:
        patched.setattr(Host, "session", broken)
        error = failure(channel, "GetSession", b"")
    assert error.code() is grpc.StatusCode.INTERNAL
    assert failure(channel, "GetSession", b"").code() is grpc.StatusCode.INVALID_ARGUMENT


def test_a_query_that_is_cancelled_or_late_frees_its_reader(rig) -> None:
    session = rig.session()
    token = rig.database.streams.state("Bank").partitions.live[0].token
    request = rig.change_query(session, token, heartbeat="300000").SerializeToString()
    hosted = rig.host.databases["projects/p/instances/inst/databases/bank"]

    async def act() -> None:
        server, port = await start_grpc_server(rig.host, "127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                stream = channel.unary_stream("/google.spanner.v1.Spanner/ExecuteStreamingSql")
                for timeout_s in (None, 0.2):
                    running = stream(request, timeout=timeout_s)
                    await rig.until(lambda: hosted.readers)
                    if timeout_s is None:
                        running.cancel()
                    await rig.until(lambda: not hosted.readers)
        finally:
            await server.stop(grace=None)

    rig.run(act())
    assert hosted.readers == {}

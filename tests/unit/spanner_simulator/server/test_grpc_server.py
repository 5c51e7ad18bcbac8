"""The statuses and trailers that a bare channel sees."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import grpc
import pytest
from google.cloud.spanner_v1 import types as spanner
from google.rpc import error_details_pb2, status_pb2

from tidegate.spanner_simulator import Simulator, SimulatorConfig
from tidegate.spanner_simulator.core.database import DatabaseSettings
from tidegate.spanner_simulator.errors import Code, SpannerError
from tidegate.spanner_simulator.server import spanner_service
from tidegate.spanner_simulator.server.grpc_server import PortTakenError, start_grpc_server
from tidegate.spanner_simulator.server.host import Host


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    with (
        Simulator(SimulatorConfig()) as simulator,
        grpc.insecure_channel(simulator.grpc_address) as opened,
    ):
        yield opened


def call(channel: grpc.Channel, method: str, request: object, reply: type) -> object:
    stub = channel.unary_unary(
        f"/google.spanner.v1.Spanner/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=reply.pb().FromString,
    )
    return stub(request, timeout=20)


def test_a_lost_session_has_the_detail_that_clients_look_for(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "GetSession", spanner.GetSessionRequest.pb()(name="s"), spanner.Session)
    trailers = dict(caught.value.trailing_metadata())
    info = error_details_pb2.ResourceInfo.FromString(trailers["google.rpc.resourceinfo-bin"])

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert caught.value.details() == "Session not found: s"
    assert info.resource_name == "s"


def test_an_aborted_call_says_when_to_retry(channel: grpc.Channel, monkeypatch) -> None:
    async def aborted(*_: object, **__: object) -> None:
        raise SpannerError(Code.ABORTED, "again", retry_delay_ms=3)

    monkeypatch.setattr(spanner_service, "begin_transaction", aborted)
    monkeypatch.setattr(Host, "session", lambda *_: None)
    request = spanner.BeginTransactionRequest.pb()(session="s")
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "BeginTransaction", request, spanner.Transaction)
    trailers = dict(caught.value.trailing_metadata())
    retry = error_details_pb2.RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"])
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])

    assert caught.value.code() is grpc.StatusCode.ABORTED
    assert retry.retry_delay.nanos == 3_000_000
    assert status.code == Code.ABORTED.value


def test_an_unknown_method_is_unimplemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, "PartitionQuery", spanner.PartitionQueryRequest.pb()(), spanner.Session)

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_a_taken_port_is_an_error() -> None:
    async def start(port: int) -> None:
        host = Host(seed=0, settings=DatabaseSettings())
        await start_grpc_server(host, f"127.0.0.1:{port}")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortTakenError):
            asyncio.run(start(taken.getsockname()[1]))

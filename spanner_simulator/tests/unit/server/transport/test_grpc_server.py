from __future__ import annotations

import asyncio
import socket

import pytest

from spanner_simulator.core.database import DatabaseSettings
from spanner_simulator.server.host import Host
from spanner_simulator.server.transport.grpc_server import (
    PortTakenError,
    start_grpc_server,
)


def test_a_taken_port_is_an_error() -> None:
    async def start(port: int) -> None:
        host = Host(seed=0, settings=DatabaseSettings())
        await start_grpc_server(host, f"127.0.0.1:{port}")

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortTakenError):
            asyncio.run(start(taken.getsockname()[1]))

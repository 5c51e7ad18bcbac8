from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import pytest

from spanner_simulator.server.connections import _connections, _peer, cut_connection
from spanner_simulator.server.transport.grpc_server import start_grpc_server


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[socket.socket, socket.socket]]:
    with socket.socket(request.param) as listener:
        try:
            listener.bind(("localhost" if request.param == socket.AF_INET else "::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
        listener.listen()
        with socket.create_connection(listener.getsockname()[:2], timeout=20) as client:
            accepted, _ = listener.accept()
            with accepted:
                yield client, accepted


def peer_of(accepted: socket.socket) -> str:
    port = accepted.getsockname()[1]
    (found,) = [_peer(one) for one in _connections() if one.getsockname()[1] == port]
    return found


def test_both_sides_see_a_cut(pair: tuple[socket.socket, socket.socket]) -> None:
    client, accepted = pair
    assert cut_connection(peer_of(accepted).replace("[", "%5B").replace("]", "%5D"))
    assert client.recv(1) == b""
    assert accepted.recv(1) == b""


def test_the_server_s_own_peers_are_found(rig) -> None:
    """Whatever kind of socket gRPC has opened for the address."""
    found = []

    async def act() -> None:
        server, port = await start_grpc_server(rig.host, "127.0.0.1:0")
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=20) as client:
                name = f"ipv4:127.0.0.1:{client.getsockname()[1]}"
                await rig.until(lambda: cut_connection(name))
                found.append(name)
        finally:
            await server.stop(grace=None)

    rig.run(asyncio.wait_for(act(), 30))
    assert found


def test_files_and_other_sockets_are_left_alone() -> None:
    left, right = socket.socketpair()
    with left, right:
        assert not cut_connection("ipv4::0")
        left.sendall(b"x")
        assert right.recv(1) == b"x"

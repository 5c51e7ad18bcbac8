from __future__ import annotations

import socket
import urllib.request

import pytest

from tidegate.spanner_simulator import PortTakenError, Simulator, SimulatorConfig


def taken_port() -> socket.socket:
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    return taken


def test_it_serves_on_free_ports_and_frees_them_at_the_end() -> None:
    with Simulator() as simulator:
        with urllib.request.urlopen(f"http://{simulator.control_address}/health") as reply:
            assert reply.status == 200
        ports = [
            int(address.rpartition(":")[2])
            for address in (simulator.grpc_address, simulator.control_address)
        ]
    for port in ports:
        with socket.socket() as probe:
            assert probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize("which", ["port", "control_port"])
def test_a_taken_port_is_reported_to_the_starter(which: str) -> None:
    with taken_port() as taken:
        config = SimulatorConfig(**{which: taken.getsockname()[1]})
        with pytest.raises(PortTakenError), Simulator(config):
            pass


def test_verbs_need_a_running_simulator() -> None:
    with pytest.raises(RuntimeError, match="with statement"):
        Simulator().split("d", "s")


def test_two_at_a_time() -> None:
    with Simulator() as first, Simulator() as second:
        assert first.grpc_address != second.grpc_address

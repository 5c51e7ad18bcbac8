"""Free ports, and taken ones."""

from __future__ import annotations

import socket

import pytest

from tidegate.local_stack.errors import PortTakenError
from tidegate.local_stack.parts import ports as ports_module
from tidegate.local_stack.parts.ports import HOST, accepts, choose_ports


@pytest.fixture
def listener():
    with socket.create_server((HOST, 0)) as server:
        yield server


def test_free_ports_are_different_and_usable():
    ports = choose_ports({f"p{number}": 0 for number in range(20)})

    assert 20 == len(set(ports.values()))
    with socket.create_server((HOST, ports["p0"])):
        assert accepts(ports["p0"])


def test_free_ports_lie_below_those_of_connections():
    first, last = 32_768, 60_999
    ports = choose_ports({f"p{number}": 0 for number in range(20)}).values()
    assert not [port for port in ports if first <= port <= last]


def test_where_no_such_port_is_free_the_system_chooses(listener, monkeypatch):
    monkeypatch.setattr(ports_module, "_LISTENING", [listener.getsockname()[1]])
    assert choose_ports({"x": 0})["x"] != listener.getsockname()[1]


def test_a_port_that_was_asked_for_is_kept(listener):
    wanted = choose_ports({"x": 0})["x"]

    assert {"free": wanted} == {"free": choose_ports({"other": 0, "free": wanted})["free"]}


def test_a_taken_port_names_its_setting(listener):
    taken = listener.getsockname()[1]

    with pytest.raises(PortTakenError, match=f"kafka_port {taken}") as caught:
        choose_ports({"registry_port": 0, "kafka_port": taken})

    assert 2 == caught.value.exit_code


def test_the_same_port_twice_is_taken():
    wanted = choose_ports({"x": 0})["x"]

    with pytest.raises(PortTakenError):
        choose_ports({"a": wanted, "b": wanted})


def test_accepts_is_false_where_nobody_listens():
    assert not accepts(choose_ports({"x": 0})["x"])

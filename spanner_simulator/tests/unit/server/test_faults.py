from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.connections import _connections, _peer, cut_connection
from spanner_simulator.server.faults import Fault, FaultRule, Faults, Holds
from spanner_simulator.server.transport.grpc_server import start_grpc_server

UNAVAILABLE = Fault()


class TestFaults:
    def test_a_rule_fires_as_often_as_it_says(self) -> None:
        faults = Faults()
        rule = faults.add(FaultRule(fault=UNAVAILABLE, method="Commit", count=2))
        assert [faults.plan("Commit") for _ in range(3)] == [UNAVAILABLE, UNAVAILABLE, None]
        assert (rule.number, rule.fired) == (1, 2)

    @pytest.mark.parametrize(
        ("rule", "meets", "spares"),
        [
            ({}, [{}], []),
            ({"method": "commit"}, [{}], []),
            ({"method": "Read"}, [], [{}]),
            ({"stream": "S"}, [{"stream": "s"}], [{}, {"stream": "t"}]),
            ({"token": "a"}, [{"token": "a"}], [{}, {"token": "A"}]),
            ({"database": "d"}, [{"database": "d"}], [{"database": "e"}]),
        ],
    )
    def test_which_calls_it_meets(self, rule: dict[str, str], meets: Any, spares: Any) -> None:
        faults = Faults()
        faults.add(FaultRule(fault=UNAVAILABLE, count=None, **rule))
        assert all(faults.plan("Commit", **call) is not None for call in meets)
        assert all(faults.plan("Commit", **call) is None for call in spares)

    def test_of_several_the_oldest_that_has_something_left_wins(self) -> None:
        faults = Faults()
        first, second = Fault(code=Code.ABORTED), Fault(code=Code.INTERNAL)
        faults.add(FaultRule(fault=first))
        faults.add(FaultRule(fault=second))
        assert [faults.plan("Read"), faults.plan("Read")] == [first, second]

    def test_a_share_of_the_calls_is_drawn_from_a_seed(self) -> None:
        def history(seed: int) -> list[bool]:
            faults = Faults()
            faults.add(FaultRule(fault=UNAVAILABLE, count=None, probability=0.5, seed=seed))
            return [faults.plan("Read") is not None for _ in range(200)]

        assert history(1) == history(1) != history(2)
        assert 50 < sum(history(1)) < 150

    def test_clearing_ends_rules_and_releases_what_they_stall(self) -> None:
        faults = Faults()
        stalled = [faults.add(FaultRule(fault=Fault(kind="stall"))) for _ in range(3)]
        assert faults.clear(2) == 1
        assert [rule.number for rule in faults.rules] == [1, 3]
        assert [rule.fault.released.is_set() for rule in stalled] == [False, True, False]
        with pytest.raises(SpannerError, match="Fault not found: 2"):
            faults.clear(2)
        assert faults.clear() == 2
        assert faults.rules == ()
        assert all(rule.fault.released.is_set() for rule in stalled)

    @pytest.mark.parametrize(
        ("rule", "message"),
        [
            (FaultRule(fault=Fault(kind="odd")), "kind must be one of"),  # type: ignore[arg-type]
            (FaultRule(fault=Fault(when="never")), "when must be"),  # type: ignore[arg-type]
            (FaultRule(fault=Fault(when="after_rows", after_rows=-1)), "after_rows"),
            (FaultRule(fault=Fault(after_rows=1)), "after_rows needs"),
            (FaultRule(fault=Fault(kind="slow")), "delay_ms"),
            (FaultRule(fault=Fault(delay_ms=1)), "delay_ms"),
            (FaultRule(fault=Fault(), count=0), "count"),
            (FaultRule(fault=Fault(), probability=0.0), "probability"),
            (FaultRule(fault=Fault(), probability=1.5), "probability"),
        ],
    )
    def test_a_rule_without_sense_is_refused(self, rule: FaultRule, message: str) -> None:
        with pytest.raises(SpannerError, match=message) as refused:
            Faults().add(rule)
        assert refused.value.code is Code.INVALID_ARGUMENT

    def test_rules_are_bounded(self) -> None:
        faults = Faults()
        for _ in range(10_000):
            faults.add(FaultRule(fault=UNAVAILABLE))
        with pytest.raises(SpannerError, match="clear some first"):
            faults.add(FaultRule(fault=UNAVAILABLE))


def test_held_until_released_and_the_listener_hears_of_it() -> None:
    heard: list[str] = []
    holds = Holds(heard.extend)
    holds.hold(["b", "a"])
    assert ("a" in holds, "c" in holds, list(holds)) == (True, False, ["a", "b"])
    assert holds.release(["a", "c"]) == 1
    assert heard == ["a"]
    assert holds.release() == 1
    assert list(holds) == []


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

from __future__ import annotations

import pytest

from spanner_simulator import Simulator
from spanner_simulator.errors import Code, SpannerError
from unit.control.conftest import DDL, insert

NAME = "projects/test-project/instances/test-instance/databases/bank"


def test_what_the_api_refuses_is_refused(simulator: Simulator) -> None:
    for name, ddl, code in (
        ("bank", [], Code.ALREADY_EXISTS),
        ("NO WAY", [], Code.INVALID_ARGUMENT),
        ("new", ["CREATE TABLE T"], Code.INVALID_ARGUMENT),
    ):
        with pytest.raises(SpannerError) as refused:
            simulator.create_database(name, ddl=ddl)
        assert refused.value.code is code
    assert simulator.health()["databases"] == [NAME]


def test_after_a_reset_history_repeats_itself() -> None:
    with Simulator(seed=5, frozen_at="2026-01-01T00:00:00Z") as simulator:
        histories = []
        for _ in range(2):
            simulator.create_database("bank", ddl=DDL)
            simulator.add_fault()
            simulator.hold("bank", "Bank")
            insert(simulator, 1)
            simulator.advance(5)
            simulator.split("bank", "Bank")
            insert(simulator, 2)
            histories.append(
                (
                    simulator.commit_log("bank", "Bank"),
                    simulator.stream_partitions("bank", "Bank", ended=True),
                    simulator.faults(),
                    simulator.clock(),
                )
            )
            simulator.reset()
            assert simulator.health()["databases"] == []

    assert histories[0] == histories[1]


def test_the_simulators_own_loop_and_a_stopped_one_are_told_so(simulator: Simulator) -> None:
    with pytest.raises(RuntimeError, match="its own event loop cannot call it"):
        simulator._run(lambda _host: simulator.health())
    simulator.stop()
    with pytest.raises(RuntimeError, match="with statement"):
        simulator.health()

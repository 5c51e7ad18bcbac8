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


def test_a_database_is_dropped(simulator: Simulator) -> None:
    assert simulator.drop_database("bank") == {"dropped": NAME}
    assert simulator.health()["databases"] == []
    with pytest.raises(SpannerError, match="Database not found: bank"):
        simulator.drop_database("bank")


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

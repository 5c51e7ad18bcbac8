from __future__ import annotations

import pytest
from google.cloud import spanner

from spanner_simulator import Simulator
from unit.control.conftest import insert


def test_rules_are_added_listed_and_cleared(simulator: Simulator) -> None:
    first = simulator.add_fault(method="Commit", database="bank", code="ABORTED", count=None)
    second = simulator.add_fault(stream="Bank", kind="slow", delay_ms=5, probability=0.5, seed=3)

    assert first == {
        "number": 1,
        "method": "Commit",
        "database": "projects/test-project/instances/test-instance/databases/bank",
        "stream": None,
        "token": None,
        "kind": "status",
        "when": "open",
        "after_rows": 0,
        "code": "ABORTED",
        "message": "Injected fault",
        "delay_ms": 0,
        "count": None,
        "probability": 1.0,
        "seed": 0,
        "fired": 0,
    }
    assert (second["number"], second["kind"], second["delay_ms"]) == (2, "slow", 5)
    assert simulator.faults() == [first, second]
    assert simulator.clear_faults(number=1) == {"cleared": 1}
    assert simulator.clear_faults() == {"cleared": 1}
    assert simulator.faults() == []


@pytest.mark.parametrize("kind", ["status", "drop"])
def test_the_official_client_resumes_a_read_that_breaks(simulator: Simulator, kind: str) -> None:
    database = simulator.client().instance("test-instance").database("bank")
    insert(simulator, *range(100, 600))
    simulator.add_fault(
        method="StreamingRead",
        kind=kind,  # type: ignore[arg-type]
        when="after_rows",
        after_rows=3,
        count=2,
    )
    with database.snapshot() as snapshot:
        rows = [row[0] for row in snapshot.read("A", ["K"], spanner.KeySet(all_=True))]

    assert rows == [5, 7, *range(100, 600)]
    assert simulator.faults()[0]["fired"] == 2

from __future__ import annotations

import json
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from google.cloud import spanner

from spanner_simulator import Simulator


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


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stream_partitions": 0}, "stream_partitions must lie in"),
        ({"equal_timestamps": 1.5}, "equal_timestamps must lie in"),
        ({"frozen_at": "1969-12-31T23:59:59Z"}, "frozen_at must lie in"),
        ({"frozen_at": "noon"}, "frozen_at must be an RFC 3339 time: Invalid timestamp: 'noon'"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Simulator(**settings)


def test_one_that_runs_is_not_started_again() -> None:
    with Simulator() as simulator:
        address = simulator.grpc_address
        with pytest.raises(RuntimeError, match="runs already"):
            simulator.start()
        assert simulator.grpc_address == address
        assert simulator.health()["status"] == "ok"


SCHEMA = ["CREATE TABLE A (K INT64) PRIMARY KEY (K)", "CREATE CHANGE STREAM Feed FOR A"]


def history(seed: int) -> str:
    """What a few clients' calls, turns, churn and jumps leave behind."""
    with Simulator(seed=seed, frozen_at="2026-01-01T00:00:00Z", stream_partitions=4) as simulator:
        simulator.create_database("bank", ddl=SCHEMA)
        database = simulator.client().instance("test-instance").database("bank")
        simulator.churn("bank", "Feed", mean_life_ms=500, seed=seed)

        def put(transaction: Any, key: int) -> None:
            list(transaction.read("A", ["K"], spanner.KeySet(keys=[[key]])))
            transaction.insert("A", ["K"], [[key]])

        for step in range(12):
            database.run_in_transaction(put, step * 10**17)
            simulator.advance(250)
            if step % 4 == 3:
                simulator.split("bank", "Feed")
        partitions = simulator.stream_partitions("bank", "Feed", ended=True)
        return json.dumps([simulator.commit_log("bank", "Feed"), partitions])


def test_one_seed_gives_one_history() -> None:
    assert history(1) == history(1)
    assert history(1) != history(2)


def test_churn_from_the_start_over_a_restart(tmp_path: Path) -> None:
    """A database that was kept churns again, and what its churn did before is there."""
    settings = {"data_directory": tmp_path / "data", "frozen_at": "2026-01-01T00:00:00Z"}
    churn = {"churn_mean_life_ms": 1000, "churn_live_max": 4}

    def tokens(simulator: Simulator) -> list[str]:
        simulator.advance(20_000)
        return [one["token"] for one in simulator.stream_partitions("bank", "Feed", ended=True)]

    with Simulator(**churn, **settings) as simulator:
        simulator.create_database("bank", ddl=SCHEMA)
        before = tokens(simulator)
    with Simulator(**churn, **settings) as simulator:
        after = tokens(simulator)
    with Simulator(**settings) as simulator:
        without = tokens(simulator)
    assert len(before) > 20
    assert after[: len(before)] == before
    assert len(after) > len(before) + 20
    assert without == after

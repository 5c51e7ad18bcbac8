from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from google.api_core.exceptions import GoogleAPICallError
from google.cloud.spanner_v1 import param_types

from spanner_simulator import Simulator
from spanner_simulator.core.timestamps import format_us
from spanner_simulator.errors import SpannerError
from unit.control.conftest import DDL, insert


def test_a_clock_that_begins_frozen_moves_on_command() -> None:
    with Simulator(frozen_at="2026-01-01T00:00:00Z") as simulator:
        assert simulator.clock() == {
            "now": "2026-01-01T00:00:00Z",
            "now_timestamp_us": 1_767_225_600_000_000,
            "is_frozen": True,
        }
        assert simulator.advance(90_000)["now"] == "2026-01-01T00:01:30Z"
        assert not simulator.thaw()["is_frozen"]
        assert simulator.freeze()["now"] > "2026-01-01T00:01:30"


DAY_MS = 86_400_000
DUE_DDL = [
    (
        "CREATE TABLE Notes (K INT64 NOT NULL, Due TIMESTAMP) PRIMARY KEY (K), "
        "ROW DELETION POLICY (OLDER_THAN(Due, INTERVAL 1 DAY))"
    ),
    "CREATE CHANGE STREAM S FOR Notes OPTIONS (retention_period = '3d')",
]


@pytest.fixture
def notes() -> Iterator[Simulator]:
    """Two notes: one is due after a day, one after two."""
    with Simulator(frozen_at="2026-01-01T00:00:00Z") as simulator:
        simulator.create_database("notes", ddl=DUE_DDL)
        database = simulator.client().instance("test-instance").database("notes")
        with database.batch() as batch:
            rows = [[1, "2026-01-01T00:00:00Z"], [2, "2026-01-02T00:00:00Z"]]
            batch.insert("Notes", ["K", "Due"], rows)
        yield simulator


def tags(simulator: Simulator) -> list[str]:
    return [one["tag"] for one in simulator.commit_log("notes", "S")]


def test_row_deletion_policies_run_by_themselves(notes: Simulator) -> None:
    notes.advance(DAY_MS - 1)
    assert tags(notes) == [""]
    notes.advance(2 * 3_600_000)
    assert tags(notes) == ["", "RowDeletionPolicy"]
    notes.advance(DAY_MS)
    assert tags(notes) == ["", "RowDeletionPolicy", "RowDeletionPolicy"]
    (_, first, _) = notes.commit_log("notes", "S")
    assert [change["keys"] for change in first["changes"]] == [{"K": "1"}]
    assert first["commit_timestamp"] < "2026-01-02T01:30:00"


def test_retention_expires_on_command(notes: Simulator) -> None:
    expired = notes.expire_retention("notes", "S")
    assert expired["now"] >= "2026-01-04T00:00:00"
    # The rows that fell due on the way are news, and stay.
    assert tags(notes) == ["RowDeletionPolicy"] * 2
    assert sum(one["records"] for one in notes.stream_partitions("notes", "S")) == 2


class Reading:
    """Queries of stream partitions by the official client, each in a thread of its own."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator = simulator
        self._found: queue.Queue[tuple[str, str]] = queue.Queue()

    def start(self, one: dict[str, Any]) -> None:
        threading.Thread(target=self._read, args=(one,), daemon=True).start()

    def _read(self, one: dict[str, Any]) -> None:
        database = self._simulator.client().instance("test-instance").database("bank")
        with database.snapshot() as snapshot, suppress(GoogleAPICallError):
            rows = snapshot.execute_sql(
                "SELECT ChangeRecord FROM READ_Bank(@start, NULL, @token, 1000)",
                params={"start": format_us(one["start_timestamp_us"]), "token": one["token"]},
                param_types={"start": param_types.TIMESTAMP, "token": param_types.STRING},
            )
            for data, heartbeats, children in (record for (records,) in rows for record in records):
                kind = "data" if data else "heartbeat" if heartbeats else "children"
                moment = (data or heartbeats or children)[0][0]
                self._found.put((kind, moment.rfc3339()))

    def next(self) -> tuple[str, str]:
        return self._found.get(timeout=60)

    def is_quiet(self) -> bool:
        return self._found.empty()


def test_readers_live_in_the_simulators_time() -> None:
    with Simulator(frozen_at="2026-01-01T00:00:00Z", stream_partitions=1) as simulator:
        simulator.create_database("bank", ddl=DDL)
        reading = Reading(simulator)
        (only,) = simulator.stream_partitions("bank", "Bank")
        reading.start(only)
        insert(simulator, 1)
        assert reading.next() == ("data", "2026-01-01T00:00:00.000002Z")
        simulator.advance(1500)
        assert reading.next() == ("heartbeat", "2026-01-01T00:00:01.500002Z")
        insert(simulator, 2)
        assert reading.next() == ("data", "2026-01-01T00:00:01.500003Z")
        split = simulator.split("bank", "Bank", table="A", key=["2"])
        assert reading.next() == ("children", "2026-01-01T00:00:01.500004Z")
        for child in split["children"]:
            reading.start(child)
        insert(simulator, 0, 5)
        assert {reading.next()[0], reading.next()[0]} == {"data"}
        simulator.hold("bank", "Bank")
        simulator.advance(5000)
        # Many turns of the event loop, in which a query that is not held would have spoken.
        for _ in range(50):
            simulator.health()
        assert reading.is_quiet()
        simulator.release("bank", "Bank")
        assert [reading.next()[0], reading.next()[0]] == ["heartbeat", "heartbeat"]


@pytest.mark.parametrize("by_ms", [-1, 10**15])
def test_a_jump_that_is_none(simulator: Simulator, by_ms: int) -> None:
    with pytest.raises(SpannerError, match="by_ms must lie in"):
        simulator.advance(by_ms)

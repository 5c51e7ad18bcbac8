"""What a dropped database leaves in the simulator's memory: nothing."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import NotFound
from google.cloud import spanner

from spanner_simulator import Simulator
from spanner_simulator.core.database import Database
from spanner_simulator.core.rows.table_rules import TableRules
from spanner_simulator.server.host import HostedDatabase

TABLE = """CREATE TABLE Users (
    Id INT64,
    Name STRING(MAX),
    Size INT64 AS (LENGTH(Name)) STORED,
    Made TIMESTAMP DEFAULT (CURRENT_TIMESTAMP()),
) PRIMARY KEY (Id)"""
DDL = [TABLE, "CREATE INDEX ByName ON Users (Name)", "CREATE CHANGE STREAM Feed FOR Users"]
QUERY = "SELECT ChangeRecord FROM READ_Feed(@start, NULL, @token, 1000)"
DEADLINE_S = 60


def left_of_databases() -> list[object]:
    """Databases in memory, and what is made for each of them alone."""
    gc.collect()
    kinds = (Database, HostedDatabase, TableRules)
    return [one for one in gc.get_objects() if isinstance(one, kinds)]


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def read_feed(database: Any, token: str) -> None:
    """Read a stream partition until the query ends."""
    types = {"start": spanner.param_types.TIMESTAMP, "token": spanner.param_types.STRING}
    parameters = {"start": datetime.now(UTC), "token": token}
    with suppress(NotFound), database.snapshot() as snapshot:
        list(snapshot.execute_sql(QUERY, params=parameters, param_types=types))


@pytest.mark.parametrize("is_kept", [False, True], ids=["in memory", "in a folder"])
def test_nothing_holds_a_dropped_database(tmp_path: Path, is_kept: bool) -> None:
    """No cache, timer, open query, transaction, hold or journal."""
    before = len(left_of_databases())
    folder = tmp_path / "data" if is_kept else None
    with Simulator(data_directory=folder, churn_mean_life_ms=10**12) as simulator:
        simulator.create_database("shop", ddl=DDL)
        database = simulator.client().instance("test-instance").database("shop")
        with database.batch() as batch:
            batch.insert("Users", ["Id", "Name"], [[number, "name" * 100] for number in range(100)])
        database.run_in_transaction(
            lambda one: one.execute_update("UPDATE Users SET Name = 'Ada' WHERE Id < 10")
        )
        with database.snapshot() as snapshot:
            assert list(snapshot.execute_sql("SELECT COUNT(*) FROM Users WHERE Size = 3")) == [[10]]
        left_open = database.session()
        left_open.create()
        left_open.transaction().begin()
        simulator.split("shop", "Feed")
        token = simulator.stream_partitions("shop", "Feed")[0]["token"]
        simulator.hold("shop", "Feed", token=token)
        readers = [
            threading.Thread(target=read_feed, args=(database, token)),
            threading.Thread(target=lambda: list(simulator.follow_commit_log("shop", "Feed"))),
        ]
        for reader in readers:
            reader.start()
        until(lambda: simulator.stream_partitions("shop", "Feed")[0]["readers"])
        assert len(left_of_databases()) > before
        simulator.drop_database("shop")
        for reader in readers:
            reader.join(DEADLINE_S)
        # The server's coroutines of the calls end after their clients have the answer.
        until(lambda: len(left_of_databases()) == before)

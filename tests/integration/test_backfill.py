"""The rows that were there before the stream, then its changes: one output, at each watermark."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime

import deltalake
import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.commands import run_producer
from tidegate.local_stack.config import load_config
from tidegate.local_stack.demo.bank_database import commit_time_us, create_database
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.local_stack.parts.programs import Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.spanner.table_rows import BACKFILL_TAG

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]

DDL = [
    """CREATE TABLE Orders (
        Region STRING(9), Id INT64, Note STRING(MAX), Tags ARRAY<STRING(9)>, Weight FLOAT64
    ) PRIMARY KEY (Region, Id DESC)""",
    "CREATE TABLE Empty (Id INT64) PRIMARY KEY (Id)",
    "CREATE TABLE Other (Id INT64, Note STRING(9)) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
COLUMNS = ("Region", "Id", "Note", "Tags", "Weight")
ROWS = 25_000
PATIENCE_S = 400


def region(number):
    return None if number % 5 == 0 else f"r{number % 3}"


def rows_of(first, count):
    return [
        (region(n), n, f"note {n}", ["a", None], float("inf") if n % 7 == 0 else n / 4)
        for n in range(first, first + count)
    ]


def change(database, number):
    """Update some rows, delete one and insert one."""
    with database.batch() as batch:
        batch.update(
            "Orders", ("Region", "Id", "Note"),
            [(region(n), n, f"changed {number}") for n in range(number, number + 30) if n % 5],
        )  # fmt: skip
        batch.delete("Orders", KeySet(keys=[[None, 5 * number]]))
        batch.insert("Orders", COLUMNS, rows_of(ROWS + number, 1))


def test_rows_then_changes(tmp_path):
    with LocalStack(load_config(data_dir=tmp_path / "stack", seed=11)) as stack:
        name = DatabaseName(address=stack.spanner_address)
        database = create_database(name, DDL)
        for first in range(0, ROWS, 2_500):
            with database.batch() as batch:
                batch.insert("Orders", COLUMNS, rows_of(first, 2_500))
        with database.batch() as batch:
            batch.insert("Other", ("Id", "Note"), [(1, "before")])
        programs = Programs(
            folder=tmp_path,
            bootstrap_servers=stack.bootstrap_servers,
            registry_url=stack.registry_url,
            spanner_address=stack.spanner_address,
            database=name,
            stream="Feed",
            prefix="filled",
            more={"TIDEGATE_PRODUCER_BACKFILL": "Orders,Empty"},
        )
        unknown = run_producer(programs, "check", TIDEGATE_PRODUCER_BACKFILL="Orders,None")
        assert unknown.returncode == 2
        assert "backfill: the stream does not publish the table None" in unknown.stderr
        pipeline = Pipeline(programs)
        is_done = threading.Event()
        times = []

        def write():
            while not is_done.wait(0.05):
                with database.snapshot() as snapshot:
                    ((now,),) = snapshot.execute_sql("SELECT CURRENT_TIMESTAMP()")
                times.append(now)
                change(database, len(times))

        try:
            pipeline.start_workers(2, start=datetime.now(UTC).isoformat().replace("+00:00", "Z"))
            writer = threading.Thread(target=write)
            writer.start()
            pipeline.start_consumer()
            pipeline.wait(
                lambda: any((tmp_path / "output").glob("_releases/*")),
                what="the first release", deadline_s=PATIENCE_S,
            )  # fmt: skip
            is_done.set()
            writer.join()
            with database.batch() as last:
                last.insert("Other", ("Id", "Note"), [(2, "after")])
            pipeline.wait_released(commit_time_us(last.committed), deadline_s=PATIENCE_S)
        finally:
            is_done.set()
            faults = pipeline.stop()
        assert faults == []
        later = run_producer(programs, "status", "--json")
        assert json.loads(later.stdout)["state"] in {"Running", "Paused"}
        releases = [
            json.loads(path.read_text()) for path in (tmp_path / "output/_releases").glob("*.json")
        ]
        begin = datetime.fromtimestamp(min(one["through_us"] for one in releases) / 1e6, UTC)
        asked = [at for at in times if at > begin]
        tables = {}
        for at in (asked[0], asked[len(asked) // 2], asked[-1]):
            with database.snapshot(read_timestamp=at) as snapshot:
                tables[at] = keyed(snapshot.read("Orders", COLUMNS, KeySet(all_=True)))
        with database.snapshot() as snapshot:
            final = keyed(snapshot.read("Orders", COLUMNS, KeySet(all_=True)))
    changes = rows_in(tmp_path, "changelog/Orders")
    for at, table in tables.items():
        assert folded(changes, at) == table
    assert tables[asked[0]] != tables[asked[-1]]
    mirror = rows_in(tmp_path, "mirror/Orders")
    assert keyed([row[name] for name in COLUMNS] for row in mirror) == final
    assert [row["Id"] for row in rows_in(tmp_path, "mirror/Other")] == [2]
    filled = [row for row in changes if row["server_transaction_id"].startswith(BACKFILL_TAG)]
    assert len(filled) == ROWS  # each transaction deletes one row and inserts one
    assert {row["mod_type"] for row in filled} == {"INSERT"}
    (began,) = {row["commit_timestamp"] for row in filled}
    assert began == min(row["commit_timestamp"] for row in changes)


def rows_in(tmp_path, table):
    return deltalake.DeltaTable(tmp_path / "output" / table).to_pyarrow_table().to_pylist()


def keyed(rows):
    return {(row[0], row[1]): list(row[2:]) for row in map(list, rows)}


def folded(changes, at):
    """The rows of the table at a time, as its changes up to then leave them."""
    rows = {}
    for one in sorted(changes, key=lambda row: (row["release"], row["ordinal"])):
        if one["commit_timestamp"] > at:
            continue
        key = (one["key"]["Region"], one["key"]["Id"])
        if one["mod_type"] == "DELETE":
            rows.pop(key, None)
        else:
            rows[key] = [one["new_values"][name] for name in COLUMNS[2:]]
    return rows

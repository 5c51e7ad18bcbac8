"""`tidegate-consumer audit` after a real fleet: markers on Kafka prove the changelogs."""

from __future__ import annotations

import json

import deltalake
import pytest

from tests.integration.commands import run_consumer
from tests.integration.shared_stack import now
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.churn import SimulatorControl
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "Feed"
DDL = [
    "CREATE TABLE Seen (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    "CREATE TABLE Heard (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    f"CREATE CHANGE STREAM {STREAM} FOR Seen, Heard",
]
KEYS = range(20)
ROUNDS = 4
DEADLINE_S = 240


@pytest.mark.timeout(900)
def test_markers_on_kafka_prove_the_changelogs_and_name_what_is_missing(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs(STREAM)
    path = shared_stack.database_name.path
    control = SimulatorControl(shared_stack.control_address, path, STREAM)
    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(1, start=now())
        for version in range(ROUNDS):
            with database.batch() as batch:
                for table in ("Seen", "Heard"):
                    rows = [(key, version) for key in KEYS]
                    batch.insert_or_update(table, ("Id", "V"), rows)
            turn = control.split if version % 2 == 0 else control.merge
            turn()
        with database.batch() as batch:
            batch.insert_or_update("Seen", ("Id", "V"), [(0, ROUNDS)])
        pipeline.start_consumer()
        pipeline.wait_released(commit_time_us(batch.committed), deadline_s=DEADLINE_S)
    finally:
        faults = pipeline.stop()
    assert faults == []

    def audit():
        done = run_consumer(programs, "audit", "--json")
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    code, report = audit()
    assert (code, report["mismatches"]) == (0, [])
    assert report["changes"] == ROUNDS * 2 * len(KEYS) + 1
    # A split finishes one stream partition and a merge two.
    assert report["stream_partitions"]["proved"] == (ROUNDS // 2) * 3
    assert report["stream_partitions"]["open"] > 0
    assert report["transactions"] == {"proved": ROUNDS + 1, "mismatched": 0}
    assert (report["without_checksum"], report["without_value_bytes"]) == (0, 0)

    table = deltalake.DeltaTable(tmp_path / "output" / "changelog" / "Heard")
    first = min(table.to_pyarrow_table().to_pylist(), key=lambda row: row["order_key"])
    place = "topic_partition = {topic_partition} AND offset = {offset}".format(**first)
    assert table.delete(place)["num_deleted_rows"] == 1
    code, report = audit()
    assert code == 1
    (pair,) = [one for one in report["mismatches"] if one["what"] == "stream partition"]
    assert (pair["topic"], pair["fault"]) == (shared_stack.topic("Heard"), "changes are missing")
    assert pair["found"]["mods"] == pair["expected"]["mods"] - 1

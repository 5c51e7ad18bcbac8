"""Workers of today and of before the header `origin` write one topic in turns, on a real broker.

Every reader sees the same stream partition for the messages of both: a plain one in the header or
in the value, and the Spark consumer in the column `origin` of its changelog.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import deltalake
import pytest

from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_published
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.judge.log import fetch_commit_log, origin_number
from tidegate.local_stack.parts.programs import Program

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "Feed"
DDL = [
    "CREATE TABLE Seen (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    f"CREATE CHANGE STREAM {STREAM} FOR Seen",
]
KEYS = range(5)
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 240


def older(worker: Program) -> Program:
    """Return the same worker as a program from before the header."""
    command = [sys.executable, "-m", "tests.integration.older_worker", "run"]
    environ = {**(worker.spec.environ or {}), "PYTHONPATH": str(ROOT)}
    return Program(replace(worker.spec, command=command, environ=environ))


@pytest.mark.timeout(600)
def test_both_forms_of_one_stream_partition_are_read_alike(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs(STREAM)
    pipeline = Pipeline(programs)
    topic = shared_stack.topic("Seen")
    of_today = programs.worker("w1", start=now())
    try:
        for version, worker in enumerate((of_today, older(of_today), of_today)):
            pipeline.workers = [worker]
            worker.start()
            with database.batch() as batch:
                batch.insert_or_update("Seen", ("Id", "V"), [(key, version) for key in KEYS])
            count = (version + 1) * len(KEYS)
            messages = read_published(shared_stack, pipeline, topic, count=count)
            if version < 2:
                assert worker.stop() == 0
        pipeline.start_consumer()
        pipeline.wait_released(commit_time_us(batch.committed), deadline_s=DEADLINE_S)
    finally:
        faults = pipeline.stop()
    log = fetch_commit_log(
        shared_stack.control_address, database=shared_stack.database_name.path, stream=STREAM
    )
    assert faults == []

    of_transaction = {}
    for one in log:
        (of_transaction[one.server_transaction_id],) = one.stream_partition_tokens
    forms = set()
    for message in messages:
        source, headers = message.value()["source"], dict(message.headers())
        token = of_transaction[source["server_transaction_id"]]
        written = headers.get("origin"), source["partition_token"]
        header = origin_number(token).to_bytes(8, "big", signed=True)
        assert written in ((header, ""), (None, token))
        forms.add((token, bool(source["partition_token"])))
    assert {is_older for _, is_older in forms} == {True, False}
    assert len(forms) > len({token for token, _ in forms}), "no stream partition has both forms"

    changelog = deltalake.DeltaTable(tmp_path / "output" / "changelog" / "Seen").to_pyarrow_table()
    rows = changelog.to_pylist()
    assert len(rows) == len(messages) == 3 * len(KEYS)
    for row in rows:
        assert row["origin"] == origin_number(of_transaction[row["server_transaction_id"]])
    assert {bool(row["source"]["partition_token"]) for row in rows} == {True, False}

"""What a fleet leaves out is in no topic, moves the watermark, and is known to the gate."""

from __future__ import annotations

import json

import deltalake
import pytest
from confluent_kafka.admin import AdminClient
from google.cloud.spanner_v1 import KeySet

from tests.integration.commands import run_producer
from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    "CREATE TABLE Orders (Id INT64, Email STRING(40), Amount INT64) PRIMARY KEY (Id)",
    "CREATE TABLE Audit (Id INT64, Note STRING(40)) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
SETTINGS = {
    "TIDEGATE_PRODUCER_TABLES_LEFT_OUT": "Aud*",
    "TIDEGATE_PRODUCER_COLUMNS_LEFT_OUT": "*.Email",
    "TIDEGATE_PRODUCER_MOD_TYPES": "insert,update",
    "TIDEGATE_PRODUCER_TAGS_LEFT_OUT": "app=backfill*",
    "TIDEGATE_CONSUMER_MIRROR_ACCEPTS": "exclude_delete,exclude_transactions",
}
PATIENCE_S = 240


def insert(batch, key):
    batch.insert("Orders", ("Id", "Email", "Amount"), [(key, f"{key}@example", key)])


def test_it_is_left_out_everywhere(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs("Feed", **SETTINGS)

    def status():
        done = run_producer(programs, "status", "--json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def is_published():
        # The DELETE is in no topic: the watermark alone shows that it was read.
        return (status().get("watermark_us") or 0) >= commit_time_us(last.committed)

    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(1, start=now())
        with database.batch() as batch:
            insert(batch, 1)
            batch.insert("Audit", ("Id", "Note"), [(1, "who")])
        with database.batch(request_options={"transaction_tag": "app=backfill,job=7"}) as batch:
            insert(batch, 2)
            insert(batch, 3)
        with database.batch() as batch:
            batch.update("Orders", ("Id", "Amount"), [(1, 10)])
        with database.batch() as last:
            last.delete("Orders", KeySet(keys=[[1]]))
        pipeline.wait(is_published, what="the last commit", deadline_s=PATIENCE_S)
        found = read_everything(shared_stack, shared_stack.topic("Orders"), count=2)
        topics = topics_of(shared_stack)
        pipeline.start_consumer()
        pipeline.wait_released(commit_time_us(last.committed), deadline_s=PATIENCE_S)
    finally:
        faults = pipeline.stop()
    assert faults == []
    changed = {**SETTINGS, "TIDEGATE_PRODUCER_TABLES_LEFT_OUT": ""}
    other = refused(programs, changed)

    assert [message.value()["mod_type"] for message in found] == ["INSERT", "UPDATE"]
    assert [message.value()["new_values"] for message in found] == [
        {"Id": 1, "Amount": 1},
        {"Id": 1, "Amount": 10},
    ]
    assert topics == {shared_stack.topic("Orders")}
    mirror = deltalake.DeltaTable(tmp_path / "output" / "mirror" / "Orders").to_pyarrow_table()
    assert mirror.to_pylist() == [{"Id": 1, "Amount": 10}]
    assert "recorded tables_left_out=Aud*, now without it" in other


def topics_of(stack):
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    topics = client.list_topics(timeout=30).topics
    return {one for one in topics if one.startswith(f"{stack.prefix}.")}


def refused(programs, changed):
    """Return what a worker says that would leave out something else."""
    done = run_producer(programs, "check", **changed)
    assert done.returncode == 2, done.stderr
    return done.stderr

"""Flat values on a real Kafka and registry, read by confluent-kafka's own deserializer."""

from __future__ import annotations

import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.commands import run_consumer, run_producer
from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    "CREATE TABLE Orders (Id INT64, Note STRING(40), Amount INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL",
]
LATER = "ALTER TABLE Orders ADD COLUMN Place STRING(40)"
SETTING = {"TIDEGATE_PRODUCER_ENVELOPE": "flat"}
PATIENCE_S = 240
COLUMNS = ("Id", "Note", "Amount", "Place")
CONSUMER_REFUSES = "the stream's values have the envelope 'flat', and the Spark consumer cannot"


def test_a_plain_deserializer_reads_rows_and_the_gate_refuses_them(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs("Feed", **SETTING)
    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(1, start=now())
        with database.batch() as batch:
            batch.insert("Orders", ("Id", "Note", "Amount"), [(1, None, 10), (2, "b", 20)])
        with database.batch(request_options={"transaction_tag": "app=reprice"}) as batch:
            batch.update("Orders", ("Id", "Amount"), [(1, 11)])
        with database.batch() as batch:
            batch.update("Orders", ("Id", "Note"), [(2, None)])
        database.update_ddl([LATER]).result(PATIENCE_S)
        with database.batch() as batch:
            batch.insert("Orders", COLUMNS, [(3, "c", 30, "here")])
        with database.batch() as batch:
            batch.delete("Orders", KeySet(keys=[[2]]))
        found = read_everything(shared_stack, shared_stack.topic("Orders"), count=6)
    finally:
        faults = pipeline.stop()
    assert faults == []
    refused = run_consumer(programs, "run")
    other = run_producer(programs, "check", TIDEGATE_PRODUCER_ENVELOPE="tidegate")
    shown = run_producer(programs, "schemas", "show", "Orders")

    values = sorted((one.value() for one in found), key=place)
    rows = [
        {column: value.get(column) for column in COLUMNS} | {"of": value["__columns"]}
        for value in values
    ]
    assert rows == [
        row(1, None, 10, None, of=["Id", "Note", "Amount"]),
        row(2, "b", 20, None, of=["Id", "Note", "Amount"]),
        row(1, None, 11, None, of=["Id", "Amount"]),  # Note is absent
        row(2, None, None, None, of=["Id", "Note"]),  # Note is NULL
        row(3, "c", 30, "here", of=["Id", "Note", "Amount", "Place"]),
        row(2, None, 20, None, of=["Id", "Note", "Amount", "Place"]),  # what was deleted
    ]
    assert [value["__op"] for value in values] == ["c", "c", "u", "u", "c", "d"]
    assert [value["__deleted"] for value in values] == ["false"] * 5 + ["true"]
    assert values[2]["__transaction_tag"] == "app=reprice"
    assert {value["__value_capture_type"] for value in values} == {"OLD_AND_NEW_VALUES"}
    assert {header[0] for one in found for header in one.headers()} == {"order", "mod", "origin"}
    assert refused.returncode == 2
    assert CONSUMER_REFUSES in refused.stdout + refused.stderr
    assert not (tmp_path / "output" / "changelog").exists()
    assert not (tmp_path / "output" / "mirror").exists()
    assert other.returncode == 2
    assert "envelope: recorded 'flat', now 'tidegate'" in other.stderr
    assert '"name": "FlatChange"' in shown.stdout


def row(key, note, amount, where, *, of):
    return {"Id": key, "Note": note, "Amount": amount, "Place": where, "of": of}


def place(value):
    return (
        value["__commit_timestamp"],
        value["__server_transaction_id"],
        int(value["__record_sequence"]),
        value["__mod_number"],
    )

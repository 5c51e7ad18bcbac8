"""A transaction that is not whole, on real parts: the run stops by name, or records it."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import fastavro
import pytest
from confluent_kafka import Consumer, Producer

from tests.integration.commands import run_consumer
from tests.integration.shared_stack import now
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.program.registry_http import HttpSchemaRegistry
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.topics import HEADER_ORDER
from tidegate.schemas.wire_format import frame, unframe

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "Feed"
DDL = [
    "CREATE TABLE Seen (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    "CREATE TABLE Heard (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    f"CREATE CHANGE STREAM {STREAM} FOR Seen, Heard",
]
TABLES = ["Seen", "Heard"]
RECORDS = 3 * len(TABLES)
DEADLINE_S = 240


def published(bootstrap_servers, topics):
    """Return the records of all topics, as soon as all are committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"{topics[0]}-looks",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
        }
    )
    consumer.subscribe(topics)
    found = []
    try:
        while len(found) < RECORDS:
            message = consumer.poll(DEADLINE_S)
            assert message is not None, f"{len(found)} of {RECORDS} records were published"
            if message.error() is None:
                found.append(message)
    finally:
        consumer.close()
    return found


def order_key(message):
    return dict(message.headers())[HEADER_ORDER]


def publish_a_part_of_a_transaction(message, *, bootstrap_servers, registry_url):
    """Write a copy of a record that belongs to a transaction of two records, and is alone."""
    schema_id, body = unframe(message.value())
    registry = HttpSchemaRegistry(registry_url, options={})
    schema = fastavro.parse_schema(dict(registry.schema(schema_id)))
    change = fastavro.schemaless_reader(io.BytesIO(body), schema, None)
    headers = dict(message.headers())
    key = OrderKey.decode(headers[HEADER_ORDER])
    other = replace(key, server_transaction_id=f"{key.server_transaction_id}-other")
    change["source"]["server_transaction_id"] = other.server_transaction_id
    change["source"]["number_of_records_in_transaction"] = 2
    value = io.BytesIO()
    fastavro.schemaless_writer(value, schema, change)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(
        message.topic(),
        frame(schema_id, value.getvalue()),
        message.key(),
        partition=message.partition(),
        headers=[*{**headers, HEADER_ORDER: other.encode()}.items()],
    )
    assert producer.flush(DEADLINE_S) == 0
    return other


@pytest.mark.rule("spanner-record-count", "P6")
@pytest.mark.timeout(900)
def test_a_transaction_that_lacks_a_record_stops_the_run_and_is_recorded_on_demand(
    shared_stack, tmp_path
):
    database = shared_stack.create_database(DDL)
    topics = [shared_stack.topic(table) for table in TABLES]
    programs = shared_stack.programs(STREAM)
    pipeline = Pipeline(programs)
    until = {"TIDEGATE_CONSUMER_UNTIL": "caught-up"}

    try:
        pipeline.start_workers(1, start=now())
        for version in range(3):
            with database.batch() as batch:
                for table in TABLES:
                    batch.insert_or_update(table, ("Id", "V"), [(1, version)])
        last = max(published(shared_stack.bootstrap_servers, topics), key=order_key)
        other = publish_a_part_of_a_transaction(
            last,
            bootstrap_servers=shared_stack.bootstrap_servers,
            registry_url=shared_stack.registry_url,
        )

        stopped = run_consumer(programs, "run", **until)
        assert stopped.returncode == 1
        assert "fewer records than they state" in stopped.stderr
        assert other.server_transaction_id in stopped.stderr
        assert not list((tmp_path / "output" / "_releases").glob("0*.json"))

        recorded = run_consumer(programs, "run", **until, TIDEGATE_CONSUMER_ON_MISMATCH="record")
        assert recorded.returncode == 0, recorded.stderr
    finally:
        faults = pipeline.stop()
    assert faults == []
    found = [
        json.loads(path.read_bytes())
        for path in sorted((tmp_path / "output" / "_releases").glob("0*.json"))
    ]
    assert sum(one["rows"] for one in found) == RECORDS + 1
    (manifest,) = [one for one in found if "mismatches" in one]
    assert manifest["mismatches"] == 1
    (listed,) = manifest["first_mismatches"]
    assert listed["server_transaction_id"] == other.server_transaction_id
    assert (listed["expected"], listed["found"]) == (
        {"records": 2},
        {"records": 1, "topics": [last.topic()]},
    )
    assert "mismatch recorded" in recorded.stderr
    status = run_consumer(programs, "status", "--checkpoint", str(programs.checkpoint), "--json")
    assert status.returncode == 0, status.stderr
    assert json.loads(status.stdout)["mismatches"] == 1

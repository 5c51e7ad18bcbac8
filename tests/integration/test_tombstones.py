"""With `tombstones`, who keeps the newest value of each key forgets the rows that were deleted."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import pairwise

import deltalake
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from google.cloud.spanner_v1 import KeySet

from tests.integration.commands import run_consumer, run_producer
from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    "CREATE TABLE Orders (Id INT64, Amount INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
SETTING = {"TIDEGATE_PRODUCER_TOMBSTONES": "true"}
PATIENCE_S = 240


def change(database, rows=(), *, gone=()):
    """Write rows and delete others, in one transaction."""
    with database.batch() as batch:
        batch.insert_or_update("Orders", ("Id", "Amount"), rows)
        if gone:
            batch.delete("Orders", KeySet(keys=[[key] for key in gone]))
    return batch


def create_compacted(stack, topic):
    """Create the table's topic as somebody who keeps the newest value of each key would."""
    client = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    config = {"cleanup.policy": "compact", "min.compaction.lag.ms": "86400000"}
    client.create_topics([NewTopic(topic, 2, 1, config=config)])[topic].result()


@pytest.mark.rule("P3")
def test_the_newest_values_are_the_rows_and_the_gate_counts_changes_only(shared_stack, tmp_path):
    topic = shared_stack.topic("Orders")
    create_compacted(shared_stack, topic)
    database = shared_stack.create_database(DDL)
    programs = shared_stack.programs("Feed", **SETTING)
    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(2, start=now())
        change(database, [(key, key) for key in range(20)])
        change(database, [(key, -key) for key in range(10)], gone=range(10, 15))
        change(database, [(12, 120)], gone=[0, 1, 19])
        last = change(database, [(99, 99)])
        pipeline.start_consumer()
        pipeline.wait_released(commit_time_us(last.committed), deadline_s=PATIENCE_S)
        found = read_everything(shared_stack, topic, count=20 + 15 + 4 + 1 + 8)
    finally:
        faults = pipeline.stop()
    assert faults == []
    audited = audit(programs)
    refused = run_producer(programs, "check", TIDEGATE_PRODUCER_TOMBSTONES="false")

    newest = {message.key()["Id"]: message.value() for message in found}
    rows = {key: value["new_values"]["Amount"] for key, value in newest.items() if value}
    expected = {key: -key for key in range(2, 10)} | {key: key for key in range(15, 19)}
    assert rows == expected | {12: 120, 99: 99}
    assert {key for key, value in newest.items() if value is None} == {0, 1, 10, 11, 13, 14, 19}
    require_behind_deletes(found)
    mirror = deltalake.DeltaTable(tmp_path / "output" / "mirror" / "Orders").to_pyarrow_table()
    assert {row["Id"]: row["Amount"] for row in mirror.to_pylist()} == rows
    changelog = deltalake.DeltaTable(tmp_path / "output" / "changelog" / "Orders")
    assert changelog.to_pyarrow_table().num_rows == 40
    assert audited["mismatches"] == []
    assert audited["transactions"] == {"proved": 4, "mismatched": 0}
    assert refused.returncode == 2
    assert "tombstones: recorded 'true', now 'false'" in refused.stderr


def audit(programs):
    """Return what `tidegate-consumer audit` finds."""
    done = run_consumer(programs, "audit", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def require_behind_deletes(messages):
    """A key's next record behind each DELETE, and behind nothing else, is its tombstone."""
    by_key = defaultdict(list)
    for message in sorted(messages, key=lambda one: (one.partition(), one.offset())):
        by_key[message.key()["Id"]].append(message)
    for of_key in by_key.values():
        assert of_key[0].value() is not None
        for one, following in pairwise([*of_key, None]):
            is_delete = one.value() is not None and one.value()["mod_type"] == "DELETE"
            has_tombstone = following is not None and following.value() is None
            assert is_delete == has_tombstone
            if has_tombstone:
                assert following.partition() == one.partition()
                assert not following.headers()

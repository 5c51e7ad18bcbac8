"""A query goes on with more sinks than it began with: each is exact from where it begins."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow.parquet
import pytest
from confluent_kafka import Consumer, TopicPartition
from google.cloud.spanner_v1 import KeySet

from tests.integration.shared_stack import now
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.file_tree import all_files
from tidegate.schemas.topics import HEADER_ORDER
from tidegate.spark_consumer.commands.status import status

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    "CREATE TABLE Orders (Id INT64, Amount INT64) PRIMARY KEY (Id)",
    "CREATE TABLE Lines (Id INT64, Text STRING(MAX)) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_VALUES')",
]
ALL = "changelog,mirror,history,parquet,topic,transactions,parquet_transactions,datastream_files"
SETTING = "TIDEGATE_CONSUMER_"
PATIENCE_S = 240


def change(database, rows=(), *, gone=(), lines=()):
    with database.batch() as batch:
        batch.insert_or_update("Orders", ("Id", "Amount"), rows)
        if lines:
            batch.insert("Lines", ("Id", "Text"), lines)
        if gone:
            batch.delete("Orders", KeySet(keys=[[key] for key in gone]))
    return commit_time_us(batch.committed)


def rows_of(folder, table):
    return deltalake.DeltaTable(folder / table).to_pyarrow_table().to_pylist()


def published(stack, topic):
    """Return order key and release of every record of the ordered topic."""
    consumer = Consumer({
        "bootstrap.servers": stack.bootstrap_servers, "group.id": "reader",
        "enable.auto.commit": False, "enable.partition.eof": True,
    })  # fmt: skip
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    try:
        while (message := consumer.poll(PATIENCE_S)) is not None and message.error() is None:
            headers = dict(message.headers())
            topic = headers["topic"].decode()
            found.append((headers[HEADER_ORDER], int(headers["release"]), topic))
    finally:
        consumer.close()
    return found


@pytest.mark.rule("sink-joins-by-release")
def test_each_sink_is_exact_from_the_release_on_with_which_it_joins(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    in_order = f"{shared_stack.prefix}-in-order"

    def programs(more):
        return shared_stack.programs("Feed", **more)

    faults = []
    producing = Pipeline(programs({}))
    try:
        producing.start_workers(1, start=now())
        change(database, [(key, key) for key in range(10)], lines=[(1, "a")])
        first_us = change(database, [(key, -key) for key in range(5)], gone=[9])
        first = Pipeline(programs({f"{SETTING}SINKS": "changelog"}))
        try:
            first.start_consumer()
            first.wait(
                lambda: first.released().through_us >= first_us,
                what="the first releases",
                deadline_s=PATIENCE_S,
            )
        finally:
            faults += first.stop()
        change(database, [(3, 30)], lines=[(2, "b")])
        change(database, [(9, 90)], gone=[0])
        last_us = change(database, [(4, 40)])
        everything = {f"{SETTING}SINKS": ALL, f"{SETTING}ORDERED_TOPIC": in_order}
        second = Pipeline(programs(everything))
        try:
            second.start_consumer()
            second.wait_released(last_us, deadline_s=PATIENCE_S)
        finally:
            faults += second.stop()
    finally:
        faults += producing.stop()
    found = published(shared_stack, in_order)
    assert faults == []
    figures = status(str(tmp_path / "checkpoint"))
    begun = figures["begins"]["topic"]
    joined = ("parquet", "topic", "transactions", "parquet_transactions", "datastream_files")
    assert figures["begins"] == dict.fromkeys(joined, begun)
    assert begun > 0
    output = tmp_path / "output"
    changes = rows_of(output, "changelog/Orders") + rows_of(output, "changelog/Lines")
    later = sorted((row for row in changes if row["release"] >= begun), key=_place)

    # The mirrors have everything, also from before they joined.
    expected = {1: -1, 2: -2, 3: 30, 4: 40, **{key: key for key in range(5, 9)}, 9: 90}
    mirror = {row["Id"]: row["Amount"] for row in rows_of(output, "mirror/Orders")}
    assert mirror == expected
    versions = rows_of(output, "history/Orders")
    assert {row["Id"]: row["Amount"] for row in versions if row["valid_to"] is None} == expected
    assert sorted(row["Amount"] for row in versions if row["Id"] == 3) == [-3, 3, 30]

    # The others have each change after that once, in commit order.
    assert len(later) == 5
    assert [key for key, *_ in found] == [row["order_key"] for row in later]
    assert [(release, topic.rpartition(".")[2]) for _, release, topic in found] == [
        (row["release"], "Lines" if "Text" in (row["new_values"] or {}) else "Orders")
        for row in later
    ]
    assert parquet_keys(output) == sorted(row["order_key"] for row in later)
    stream_name = f"{shared_stack.database_name.path}/changeStreams/Feed"
    # The same events as Datastream's files, each table in commit order.
    for table in ("Orders", "Lines"):
        own = {row["order_key"] for row in rows_of(output, f"changelog/{table}")}
        events = events_of(output / "datastream_files" / table)
        assert [event.order_key[1:] for event in events] == [
            row["order_key"] for row in later if row["order_key"] in own
        ]
        assert {event.stream_name for event in events} == {stream_name}

    # Two transactions of two changes each, and one of one.
    of_parquet = pyarrow.parquet.read_table(output / "parquet_transactions", partitioning=None)
    for rows in (rows_of(output, "transactions"), of_parquet.to_pylist()):
        found = sorted(rows, key=lambda row: (row["release"], row["first_ordinal"]))
        assert [len(row["changes"]) for row in found] == [2, 2, 1]
        assert [
            (row["release"], change["ordinal"]) for row in found for change in row["changes"]
        ] == [_place(row) for row in later]


def events_of(folder):
    """Return the events of an object's files, by path."""
    store, found = LocalStore(), []
    for one in all_files(store, str(folder)):
        with store.open(one.path) as stream:
            found += EventFile(one.path, stream)
    return found


def parquet_keys(output):
    """Return the order keys of the Parquet files that manifests name."""
    manifests = [json.loads(file.read_text()) for file in (output / "_releases").glob("0*.json")]
    folders = [
        sinks["parquet"]["path"]
        for one in manifests
        for sinks in one["tables"].values()
        if "parquet" in sinks
    ]
    return sorted(
        row["order_key"]
        for folder in folders
        for row in pyarrow.parquet.read_table(Path(output, folder), partitioning=None).to_pylist()
    )


def _place(row):
    return row["release"], row["ordinal"]

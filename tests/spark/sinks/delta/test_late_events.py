"""Late events and their table in each sink, as docs/reference/datastream-files.md has them."""

from __future__ import annotations

import json

import pyarrow.parquet
import pytest

from tests.memory_topic import OUTPUT, MemoryStage
from tidegate.schemas.source_order import SOURCE_ORDER, SOURCE_READ_METHOD, SOURCE_TIMESTAMP
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.sinks.delta.direct_way import find_direct_way
from tidegate.spark_consumer.sinks.delta.late_events import DeltaLateEvents
from tidegate.spark_consumer.sinks.handed_batch import BatchSink
from tidegate.spark_consumer.spark import sink_factory

pytestmark = pytest.mark.spark

COLUMNS = {
    "id": "INT64", SOURCE_ORDER: "STRING(MAX)", "_datastream_uuid": "STRING(MAX)",
    "_datastream_change_type": "STRING(MAX)", SOURCE_TIMESTAMP: "TIMESTAMP",
    SOURCE_READ_METHOD: "STRING(MAX)",
}  # fmt: skip
OPEN_US = 1_700_000_000_000_000


def event(kit, topic, key, source_us, *, order="01", deleted=False, read="mysql-cdc-binlog"):
    row = {
        SOURCE_ORDER: f"{order}{key:02d}-1-1", "_datastream_uuid": f"u{key}",
        "_datastream_change_type": "DELETE" if deleted else "UPDATE",
        SOURCE_TIMESTAMP: kit.instant(source_us), SOURCE_READ_METHOD: read,
    }  # fmt: skip
    new, old = (None, row) if deleted else (row, None)
    mod = "DELETE" if deleted else "INSERT"
    place = {"us": max(source_us, OPEN_US), "open_us": OPEN_US, "sequence": key}
    return topic, kit.Change(mod, {"id": key}, new, old, **place)


def test_late_events_of_a_release_are_named_once_whichever_way_it_goes(kit):
    topics = [kit.Topic(name, {1: COLUMNS}, ["id"], key_id=9) for name in ("t", "u")]
    plain = kit.Topic("v", {1: {"id": "INT64"}}, ["id"])
    changes = [
        event(kit, topics[0], 1, OPEN_US - 1),
        event(kit, topics[0], 2, OPEN_US),
        event(kit, topics[1], 3, OPEN_US - 60_000_000, deleted=True),
        event(kit, topics[1], 4, OPEN_US - 1, order="00"),
        event(kit, topics[1], 6, OPEN_US - 1, read="mysql-backfill-fulldump"),
        (plain, kit.Change("INSERT", {"id": 5}, {}, us=OPEN_US)),
    ]
    late = DeltaLateEvents(kit.output)
    for number, small in ((0, False), (1, True)):
        for _ in range(2):
            assert late.write(kit.release(number, changes, small=small)) == 2
        some = kit.release(number, [changes[1], changes[4], changes[5]], small=small)
        assert late.write(some) == 0
    found = sorted(
        kit.read("late_events").to_pylist(), key=lambda row: (row["release"], row["table"])
    )
    assert len(found) == 4
    first, second = found[:2], found[2:]
    assert [{**row, "release": 0} for row in second] == first
    assert [(row["table"], row["key"], row["_datastream_uuid"]) for row in first] == [
        ("t", '{"id":1}', "u1"), ("u", '{"id":3}', "u3"),
    ]  # fmt: skip
    assert [row["_datastream_change_type"] for row in first] == ["UPDATE", "DELETE"]
    assert first[0]["first_open"] == kit.instant(OPEN_US) == first[0]["commit_timestamp"]
    assert first[0]["source_timestamp"] == kit.instant(OPEN_US - 1)


SINKS = "changelog,mirror,history,parquet,transactions,topic,iceberg_mirror,changelog_by_key,"
SINKS += "mirror_by_key,parquet_by_key"
SECOND_US = 1_000_000
RELEASES = (
    # (key, place in the source's order, whether it is a deletion, whether it is late)
    [(1, 2, False, False), (2, 5, True, False)],
    [(1, 1, False, True), (2, 4, False, True)],
    [(1, 3, False, True)],
)
PLACES = [2, 5, 1, 4, 3]
"""As they are released."""


def placed(kit, release, one):
    key, order, is_deletion, is_late = one
    open_us = release * SECOND_US + 1
    row = {
        "note": f"n{order}", SOURCE_ORDER: f"01{order:02d}-a-1", "_datastream_uuid": f"u{order}",
        "_datastream_change_type": "DELETE" if is_deletion else "UPDATE",
        SOURCE_TIMESTAMP: kit.instant(open_us - is_late),
    }  # fmt: skip
    new, old = (None, row) if is_deletion else (row, None)
    return kit.Change(
        "DELETE" if is_deletion else "INSERT", {"id": key}, new, old,
        us=open_us, open_us=open_us, transaction=row[SOURCE_ORDER],
    )  # fmt: skip


def sinks_of(kit, monkeypatch):
    stage = MemoryStage()
    monkeypatch.setattr(sink_factory, "KafkaOutputTopic", lambda *_, **__: stage.process())
    config = ConsumerConfig.load(
        None, sinks=SINKS, ordered_topic=OUTPUT, prefix="bank", output=kit.output,
        checkpoint="/unused", bootstrap_servers="unused:1", registry_url="http://unused",
    )  # fmt: skip
    output = Storage(kit.spark, kit.output)
    output.take()
    direct = find_direct_way(kit.output, rows_max=100)
    sinks = sink_factory.make_sinks(kit.spark, config, output=output, direct=direct)
    for sink in sinks:
        sink.open(query_id="query-1", release_max=-1)
    return sinks, stage


def notes(rows, *by):
    """The place of each change in the source's order, in the order of the rows."""
    rows = sorted(rows, key=lambda row: tuple(row[name] for name in by)) if by else rows
    return [int((row["new_values"] or row["old_values"])["note"][1:]) for row in rows]


@pytest.mark.rule("datastream-late-events")
def test_late_events_are_in_each_sink_once_and_mirrors_are_right(kit, monkeypatch):
    topic = kit.Topic("t", {1: {**COLUMNS, "note": "STRING(MAX)"}}, ["id"])
    sinks, stage = sinks_of(kit, monkeypatch)
    late = DeltaLateEvents(kit.output)
    for number, events in enumerate(RELEASES):
        changes = [(topic, placed(kit, number, one)) for one in events]
        late.write(kit.release(number, changes, small=True))
        for sink in sinks:
            if isinstance(sink, BatchSink):
                sink.take(kit.handed(number, changes))
            sink.write(kit.release(number, changes, small=True))

    # What follows the releases has them behind newer changes, and a table names them.
    in_order = ("release", "ordinal")
    assert notes(kit.read("changelog/t").to_pylist(), *in_order) == PLACES
    parquet = pyarrow.parquet.read_table(f"{kit.output}/parquet", partitioning=None).to_pylist()
    assert notes(parquet, *in_order) == PLACES
    transactions = kit.read("transactions").to_pylist()
    transactions.sort(key=lambda row: (row["release"], row["first_ordinal"]))
    assert notes(
        {name: json.loads(one[name] or "null") for name in ("new_values", "old_values")}
        for row in transactions
        for one in row["changes"]
    ) == PLACES  # fmt: skip
    (published,) = stage.records()
    assert [dict(headers)["order"][8:12] for *_, headers in published] == [
        f"01{place:02d}".encode() for place in PLACES
    ]
    found = sorted(kit.read("late_events").to_pylist(), key=lambda row: row["ordinal"])
    assert sorted(row["_datastream_uuid"] for row in found) == ["u1", "u3", "u4"]

    # What is by key has them as they were read.
    for name in ("changelog_by_key/t", "parquet_by_key"):
        path = f"{kit.output}/{name}"
        by_key = (
            kit.read(name) if name.endswith("/t")
            else pyarrow.parquet.read_table(path, partitioning=None)
        ).to_pylist()  # fmt: skip
        assert sorted(notes(by_key)) == sorted(PLACES)

    # Mirrors have the row with the highest order, whether that came late or not.
    plain = {row["id"]: row["note"] for row in kit.read("mirror/t").to_pylist()}
    assert plain == {1: "n3", 2: "n5"}
    place = f"{kit.output}/iceberg/bank_mirror/t"
    iceberg = kit.spark.read.format("iceberg").load(place).collect()
    assert {row["id"]: row["note"] for row in iceberg} == plain
    by_key = {row["id"]: row for row in kit.read("mirror_by_key/t").to_pylist()}
    assert {key: row["note"] for key, row in by_key.items()} == {1: "n3", 2: None}
    assert by_key[2]["row_state"] == "deleted"

    # A history has versions as they were released: wrong where they were late.
    versions = kit.read("history/t").to_pylist()
    current = {row["id"]: row["note"] for row in versions if row["valid_to"] is None}
    assert current == {1: "n3", 2: "n4"}
    of_first = sorted((row["valid_from"], row["note"]) for row in versions if row["id"] == 1)
    assert [note for _, note in of_first] == ["n2", "n1", "n3"]

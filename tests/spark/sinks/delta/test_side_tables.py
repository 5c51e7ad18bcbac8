"""Tables beside those of the changes: incomplete, late and undecodable ones, and late events."""

import pytest
from structlog.testing import capture_logs

from tests.spark.gate_rows import GATE_SCHEMA, change
from tidegate.schemas.source_order import SOURCE_ORDER, SOURCE_READ_METHOD, SOURCE_TIMESTAMP
from tidegate.spark_consumer.batch.bad_records import as_dead_letters, unordered_rows
from tidegate.spark_consumer.batch.rows import CHANGE_COLUMNS, HEADER_TYPE
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.sinks.delta.changelog_reader import ORDINALS
from tidegate.spark_consumer.sinks.delta.direct.way import find_direct_way
from tidegate.spark_consumer.sinks.delta.side_tables import (
    DeltaDeadLetters,
    DeltaLateEvents,
    DeltaLateTable,
    append_once,
)
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.handed_batch import BatchSink
from tidegate.spark_consumer.sinks.merge.sink import IncompleteTables
from tidegate.spark_consumer.sinks.tables import Commit
from tidegate.spark_consumer.spark import sink_factory

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.mark.parametrize(("is_direct", "of"), [(False, "mirror"), (True, "history")])
def test_changes_are_appended_once_and_counted(kit, is_direct, of):
    topic = kit.Topic("t", {1: {"id": "INT64", "a": "INT64"}}, ["id"])
    changes = [(topic, kit.Change("UPDATE", {"id": n}, {"a": n}, us=n + 1)) for n in range(3)]
    release = kit.release(4, changes, small=True)
    (one,) = release.tables.values()
    for row in one.changes:
        row["ordinal"] += 2 * ORDINALS
    direct = find_direct_way(kit.output, rows_max=100) if is_direct else None
    commit = Commit("query-1", of, 4, release.through_us)
    for again in (False, True):
        tables = SinkTables(kit.output, "aside", sink="aside", direct=direct)
        side = IncompleteTables(tables, sink="aside", merging_sink=of)
        side.open(kit.spark, query_id="query-1", release_max=4)
        with capture_logs() as lines:
            if is_direct:
                side.append_rows(one, one.changes[1:], commit=commit)
            else:
                later = f"ordinal + {2 * ORDINALS} as ordinal"
                rest = [name for name in one.frame.columns if name != "ordinal"]
                frame = one.frame.where("ordinal > 0").selectExpr(later, *rest)
                side.append_frame(one, frame, commit=commit)
        assert [(line["event"], line["changes"]) for line in lines] == (
            [] if again else [(f"updates of rows that the {of} lacks", 2)]
        )
    rows = kit.read("aside/t").to_pylist()
    assert [(row["release"], row["ordinal"], row["key"]["id"]) for row in rows] == [
        (4, 1, 1),
        (4, 2, 2),
    ]


def test_each_version_of_an_application_is_appended_once(spark, tmp_path):
    path, rows = str(tmp_path / "aside"), spark.range(3)

    def append(version, application="q/late", frame=rows):
        commit = {"application": application, "version": version}
        return append_once(frame, path, application=application, version=version, commit=commit)

    assert [append(4), append(4), append(5), append(4)] == [3, 3, 3, 3]
    # Two applications of one table do not know of each other's versions.
    assert append(4, "q/release", rows.limit(2)) == 2
    assert append(4, "q/release", rows.limit(2)) == 2
    assert spark.read.format("delta").load(path).count() == 3 + 3 + 2


def test_a_version_below_one_that_is_there_adds_nothing_and_counts_none(spark, tmp_path):
    path = str(tmp_path / "aside")
    commit = {"version": 5}
    append_once(spark.range(3), path, application="q", version=5, commit=commit)
    assert append_once(spark.range(1), path, application="q", version=4, commit={"version": 4}) == 0
    assert spark.read.format("delta").load(path).count() == 3


def test_late_changes_are_kept_once_with_the_watermark_they_missed(spark, tmp_path):
    late = DeltaLateTable(str(tmp_path))
    rows = spark.createDataFrame([change(7, 1), change(5, 2)], GATE_SCHEMA)
    found = rows.select(*CHANGE_COLUMNS)
    for _ in range(2):
        assert late.write(found, query_id="q", batch=3, watermark_us=9) == 2
    assert late.write(found.limit(1), query_id="q", batch=4, watermark_us=10) == 1
    table = spark.read.format("delta").load(str(tmp_path / "late"))
    kept = sorted((row.batch, row.watermark_us, row.offset) for row in table.collect())
    assert kept[:2] == [(3, 9, 1), (3, 9, 2)]
    assert len(kept) == 3


@pytest.mark.deep
def test_what_a_batch_has_written_is_counted_also_after_many_commits_of_others(spark, tmp_path):
    late = DeltaLateTable(str(tmp_path))
    rows = spark.createDataFrame([change(7, 1), change(5, 2)], GATE_SCHEMA).select(*CHANGE_COLUMNS)
    late.write(rows, query_id="q", batch=3, watermark_us=9)
    for n in range(20):
        spark.sql(f"ALTER TABLE delta.`{tmp_path}/late` SET TBLPROPERTIES ('team' = '{n}')")
    assert late.write(rows.limit(1), query_id="q", batch=3, watermark_us=9) == 2


def test_records_are_kept_once_by_batch_and_by_release_as_they_stand_in_kafka(spark, tmp_path):
    table = DeltaDeadLetters(str(tmp_path))
    foreign = (False, "bank.a", 0, 9, None, bytearray(b"{}"), None, None, None, [("x", b"1")])
    short = (False, "bank.a", 0, 8, b"k", b"v", bytearray(b"short"), None, None, [("order", b"s")])
    good = (*change(5, 7), None)
    frame = spark.createDataFrame([foreign, short, good], f"{GATE_SCHEMA}, headers {HEADER_TYPE}")
    of_batch = unordered_rows(frame)
    of_release = as_dead_letters(
        spark.createDataFrame([(*change(5, 7), "why")], f"{GATE_SCHEMA}, reason string")
    )
    for _ in range(2):
        assert table.write(of_batch, query_id="q", batch=3, release=None) == 2
        assert table.write(of_release, query_id="q", batch=3, release=1) == 1
    assert table.write(of_release, query_id="q", batch=4, release=2) == 1
    found = spark.read.format("delta").load(str(tmp_path / "dead_letters"))
    rows = found.orderBy("batch", "offset").collect()
    assert [(row.query_id, row.batch, row.release, row.offset) for row in rows] == [
        ("q", 3, 1, 7), ("q", 3, None, 8), ("q", 3, None, 9), ("q", 4, 2, 7),
    ]  # fmt: skip
    assert (rows[2].topic, rows[2].topic_partition, rows[2].key, rows[2].value) == (
        "bank.a", 0, None, b"{}",
    )  # fmt: skip
    assert [(header.key, header.value) for header in rows[2].headers] == [("x", b"1")]
    assert rows[2].reason == "its first header is no order key"
    assert [(header.key, bytes(header.value)) for header in rows[0].headers] == [
        ("order", bytes(change(5, 7)[6])), ("mod", b"I"), ("origin", (7).to_bytes(8, "big")),
    ]  # fmt: skip
    assert rows[0].reason == "why"


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


SINKS = "changelog,mirror,history,changelog_by_key,mirror_by_key"
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


def sinks_of(kit, names):
    config = ConsumerConfig.load(
        None, sinks=names, prefix="bank", output=kit.output,
        checkpoint="/unused", bootstrap_servers="unused:1", registry_url="http://unused",
    )  # fmt: skip
    output = Storage(kit.spark, kit.output)
    output.take()
    direct = find_direct_way(kit.output, rows_max=100)
    sinks = sink_factory.make_sinks(kit.spark, config, output=output, direct=direct)
    for sink in sinks:
        sink.open(query_id="query-1", release_max=-1)
    return sinks


def notes(rows, *by):
    """The place of each change in the source's order, in the order of the rows."""
    rows = sorted(rows, key=lambda row: tuple(row[name] for name in by)) if by else rows
    return [int((row["new_values"] or row["old_values"])["note"][1:]) for row in rows]


@pytest.mark.rule("datastream-late-events")
@pytest.mark.parametrize("further", ["", pytest.param(",iceberg_mirror", marks=pytest.mark.deep)])
def test_late_events_are_in_each_sink_once_and_mirrors_are_right(kit, further):
    topic = kit.Topic("t", {1: {**COLUMNS, "note": "STRING(MAX)"}}, ["id"])
    sinks = sinks_of(kit, SINKS + further)
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
    found = sorted(kit.read("late_events").to_pylist(), key=lambda row: row["ordinal"])
    assert sorted(row["_datastream_uuid"] for row in found) == ["u1", "u3", "u4"]

    # What is by key has them as they were read.
    by_key = kit.read("changelog_by_key/t").to_pylist()
    assert sorted(notes(by_key)) == sorted(PLACES)

    # Mirrors have the row with the highest order, whether that came late or not.
    plain = {row["id"]: row["note"] for row in kit.read("mirror/t").to_pylist()}
    assert plain == {1: "n3", 2: "n5"}
    if further:
        found = kit.spark.read.format("iceberg").load(f"{kit.output}/iceberg/bank_mirror/t")
        assert {row["id"]: row["note"] for row in found.collect()} == plain
    by_key = {row["id"]: row for row in kit.read("mirror_by_key/t").to_pylist()}
    assert {key: row["note"] for key, row in by_key.items()} == {1: "n3", 2: None}
    assert by_key[2]["row_state"] == "deleted"

    # A history has versions as they were released: wrong where they were late.
    versions = kit.read("history/t").to_pylist()
    current = {row["id"]: row["note"] for row in versions if row["valid_to"] is None}
    assert current == {1: "n3", 2: "n4"}
    of_first = sorted((row["valid_from"], row["note"]) for row in versions if row["id"] == 1)
    assert [note for _, note in of_first] == ["n2", "n1", "n3"]

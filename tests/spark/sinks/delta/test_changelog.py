"""The changelog's files: their order, and what readers may rely on."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tidegate.spark_consumer.sinks.decoding import CHANGE_COLUMNS
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.port import DecodedTable

pytestmark = pytest.mark.spark

ACCOUNTS = {"id": "INT64", "owner": "STRING(MAX)", "balance": "INT64"}


def opened(kit, *, query_id="query-1", release_max=100, **options):
    sink = changelog_sink(kit.spark, kit.output, **options)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def insert(kit, number, **place):
    return kit.Change("INSERT", {"id": number}, {"owner": f"o{number}", "balance": 1}, **place)


@pytest.mark.rule("sink-changelog")
@pytest.mark.parametrize(("rows_of_several", "files"), [(40, 3), (41, 1)])
def test_slices_of_a_large_table_are_files_whose_names_keep_the_order(
    kit, monkeypatch, rows_of_several, files
):
    module = "tidegate.spark_consumer.sinks.append"
    monkeypatch.setattr(f"{module}._ROWS_OF_SEVERAL_FILES", rows_of_several)
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    changes = [(accounts, insert(kit, n, us=2_000 - n)) for n in range(40)]
    release = kit.release(0, changes)
    (table,) = release.tables.values()
    sliced = table.frame.repartitionByRange(3, "ordinal").sortWithinPartitions("ordinal")
    ordered = DecodedTable(kit.spark, lambda: sliced, 40, table.schemas, is_ordered=True)
    opened(kit).write(replace(release, tables={accounts.topic: ordered}))
    found = sorted(Path(kit.output, "changelog/accounts").glob("*.parquet"))
    assert len(found) == files
    read = [n for file in found for n in pq.read_table(file)["ordinal"].to_pylist()]
    assert read == list(range(40))
    assert tuple(pq.read_schema(found[0]).names) == CHANGE_COLUMNS


def test_idle_tables_are_not_planned(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    ledger = kit.Topic("ledger", {2: {"id": "INT64"}}, ["id"], key_id=101)
    sink = opened(kit)
    first = sink.write(kit.release(0, [(accounts, insert(kit, 1))], topics=[ledger]))
    release = kit.release(1, [(accounts, insert(kit, 2))], topics=[ledger])

    def refuse():
        pytest.fail("an idle table was planned")

    idle = DecodedTable(kit.spark, refuse, 0, ledger.topic_schemas())
    restarted = opened(kit)
    second = restarted.write(replace(release, tables={**release.tables, ledger.topic: idle}))
    assert second["ledger"] == first["ledger"]


def test_absent_is_not_null(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    changes = [
        kit.Change("UPDATE", {"id": 1}, {"owner": None}, us=1),
        kit.Change("UPDATE", {"id": 1}, {"owner": None, "balance": None}, us=2),
    ]
    opened(kit).write(kit.release(0, [(accounts, change) for change in changes]))
    partial, whole = kit.read("changelog/accounts").to_pylist()
    assert partial["new_columns"] == ["id", "owner"]
    assert partial["new_values"] == whole["new_values"] == {"id": 1, "owner": None, "balance": None}
    assert whole["new_columns"] is None


@pytest.mark.parametrize("small", [False, True])
def test_files_say_which_releases_they_hold_and_nothing_of_the_values(kit, small):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    changes = [(accounts, insert(kit, n, us=1_000 + n)) for n in range(5)]
    direct = DirectWay(DirectPlace(kit.output)) if small else None
    opened(kit, direct=direct).write(kit.release(0, changes, small=small))
    (log,) = Path(kit.output, "changelog/accounts/_delta_log").glob("*1.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (stats,) = (json.loads(action["add"]["stats"]) for action in actions if "add" in action)
    assert stats["numRecords"] == 5
    least = stats["minValues"]
    # delta-rs finds a field of this name in `source`, too.
    assert least.pop("source", {}).keys() <= {"commit_timestamp"}
    assert least.keys() == {"release", "ordinal", "commit_timestamp"}


# Spark's own event time on the output: a watermark without delay drops nothing.

STEADY_RELEASES, STEADY_CHANGES = 4, 12
SECOND_US = 1_000_000


@pytest.fixture
def steady(kit):
    """A changelog's path: each release has the changes of a second, its ends included."""
    topic = kit.Topic("t", {1: {"id": "INT64"}}, ["id"])
    direct = DirectWay(DirectPlace(kit.output))
    sink = changelog_sink(kit.spark, kit.output, direct=direct)
    sink.open(query_id="query-1", release_max=-1)
    draw = random.Random(5)
    for number in range(STEADY_RELEASES):
        after = number * SECOND_US
        times = [after + 1, after + SECOND_US]
        times += [after + draw.randint(1, SECOND_US) for _ in range(STEADY_CHANGES - 2)]
        changes = [
            (topic, kit.Change("INSERT", {"id": n}, {"id": n}, us=us, transaction=f"{n}"))
            for n, us in enumerate(times)
        ]
        sink.write(kit.release(number, changes, small=number % 2 == 0))
    return f"{kit.output}/changelog/t"


def windows(frame):
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

    counted = frame.groupBy(F.window("commit_timestamp", "700 milliseconds")).count()
    return counted.select(F.col("window.start").alias("start"), "count")


def dropped_by_watermark(kit, path, folder, *, name):
    """Count windows of a stream over a table, file by file; return the rows dropped by batch."""
    stream = (
        kit.spark.readStream.format("delta")
        .option("maxFilesPerTrigger", 1)
        .load(path)
        .withWatermark("commit_timestamp", "0 seconds")
    )
    query = (
        windows(stream)
        .writeStream.format("memory")
        .queryName(name)
        .outputMode("append")
        .option("checkpointLocation", str(folder / "check"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [
        int(state["numRowsDroppedByWatermark"])
        for one in query.recentProgress
        for state in one["stateOperators"]
    ]


@pytest.mark.rule("sink-event-time")
def test_a_downstream_watermark_without_delay_gives_the_windows_of_a_batch(kit, steady, tmp_path):
    dropped = dropped_by_watermark(kit, steady, tmp_path, name="event_time")
    assert len(dropped) >= STEADY_RELEASES
    assert sum(dropped) == 0
    found = {(row["start"], row["count"]) for row in kit.spark.table("event_time").collect()}
    batch = windows(kit.spark.read.format("delta").load(steady)).collect()
    *closed, _open = sorted((row["start"], row["count"]) for row in batch)
    assert found >= set(closed[:-1])
    assert found <= {*closed, _open}


@pytest.mark.deep
def test_the_same_without_order_drops_rows(kit, steady, tmp_path):
    """Otherwise the test above could not fail."""
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

    mixed = str(tmp_path / "mixed")
    rows = kit.spark.read.format("delta").load(steady).select("commit_timestamp")
    for part in range(4):
        some = rows.where(F.abs(F.hash("commit_timestamp")) % 4 == part)
        some.coalesce(1).write.format("delta").mode("append").save(mixed)
    assert any(dropped_by_watermark(kit, mixed, tmp_path, name="event_time_mixed"))

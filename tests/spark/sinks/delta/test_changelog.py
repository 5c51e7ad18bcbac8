"""The changelog: every change once, in order, with every type as it was."""

from __future__ import annotations

import json
import math
import random
import uuid
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.spark_consumer.errors import ForeignChange
from tidegate.spark_consumer.sinks.decoding import CHANGE_COLUMNS
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.port import DecodedTable

pytestmark = pytest.mark.spark

ACCOUNTS = {"id": "INT64", "owner": "STRING(MAX)", "balance": "INT64"}


def opened(kit, *, query_id="query-1", release_max=100, **options):
    sink = DeltaChangelogSink(kit.spark, kit.output, **options)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def insert(kit, number, **place):
    return kit.Change("INSERT", {"id": number}, {"owner": f"o{number}", "balance": 1}, **place)


@pytest.mark.rule("sink-changelog")
def test_rows_stand_in_one_file_per_release_in_commit_order(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    changes = [(accounts, insert(kit, n, us=1_000 - n, sequence=n % 7)) for n in range(50)]
    written = opened(kit).write(kit.release(0, changes))["accounts"]
    assert (written.path, written.rows) == ("changelog/accounts", 50)
    rows = kit.read("changelog/accounts", written.version)
    assert rows["ordinal"].to_pylist() == list(range(50))
    order_keys = rows["order_key"].to_pylist()
    assert order_keys == sorted(change.order_key for _, change in changes)
    assert len(list(Path(kit.output, "changelog/accounts").glob("*.parquet"))) == 1
    assert tuple(rows.column_names) == CHANGE_COLUMNS


@pytest.mark.rule("sink-changelog")
@pytest.mark.parametrize(("rows_of_several", "files"), [(40, 3), (41, 1)])
def test_slices_of_a_large_table_are_files_whose_names_keep_the_order(
    kit, monkeypatch, rows_of_several, files
):
    module = "tidegate.spark_consumer.sinks.delta.changelog"
    monkeypatch.setattr(f"{module}._ROWS_OF_SEVERAL_FILES", rows_of_several)
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    changes = [(accounts, insert(kit, n, us=2_000 - n)) for n in range(40)]
    release = kit.release(0, changes)
    (table,) = release.tables.values()
    sliced = table.frame.repartitionByRange(3, "ordinal").sortWithinPartitions("ordinal")
    ordered = DecodedTable(kit.spark, lambda: sliced, 40, table.schemas, is_ordered=True)
    opened(kit).write(replace(release, tables={accounts.topic: ordered}))
    import pyarrow.parquet as pq

    found = sorted(Path(kit.output, "changelog/accounts").glob("*.parquet"))
    assert len(found) == files
    read = [n for file in found for n in pq.read_table(file)["ordinal"].to_pylist()]
    assert read == list(range(40))


@pytest.mark.slow
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


@pytest.mark.rule("sink-changelog")
@pytest.mark.slow
def test_a_release_written_twice_is_there_once_also_by_a_new_process(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    ledger = kit.Topic("ledger", {2: {"id": "INT64", "note": "STRING(MAX)"}}, ["id"], key_id=101)
    releases = [
        kit.release(
            number,
            [
                (accounts, insert(kit, number, us=5)),
                (ledger, kit.Change("INSERT", {"id": number}, {"note": "n"}, us=6)),
            ],
        )
        for number in range(2)
    ]
    sink = opened(kit)
    first = [sink.write(release) for release in releases]
    assert [sink.write(release) for release in releases] == first
    restarted = opened(kit)
    assert [restarted.write(release) for release in releases] == first
    for table in ("accounts", "ledger"):
        rows = kit.read(f"changelog/{table}")
        assert sorted(rows["release"].to_pylist()) == [0, 1]
        at_first = kit.read(f"changelog/{table}", first[0][table].version)
        assert at_first["release"].to_pylist() == [0]


def test_every_known_table_has_a_version_also_without_a_change(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    ledger = kit.Topic("ledger", {2: {"id": "INT64"}}, ["id"], key_id=101)
    sink = opened(kit)
    sink.write(kit.release(0, [(accounts, insert(kit, 1))], topics=[ledger]))
    versions = sink.write(kit.release(1, [(accounts, insert(kit, 2))], topics=[ledger]))
    idle = sink.write(kit.release(2, [], topics=[accounts, ledger]))
    assert versions["ledger"].rows == 0
    assert kit.read("changelog/ledger", versions["ledger"].version).num_rows == 0
    assert idle["accounts"].version == versions["accounts"].version
    assert kit.read("changelog/accounts", idle["accounts"].version).num_rows == 2


def test_maintenance_moves_the_head_and_not_the_release(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    sink = opened(kit)
    for number in range(2):
        written = sink.write(kit.release(number, [(accounts, insert(kit, number))]))
    path = f"{kit.output}/changelog/accounts"
    kit.spark.sql(f"OPTIMIZE delta.`{path}`")
    again = opened(kit).write(kit.release(2, [], topics=[accounts]))
    assert again["accounts"].version == written["accounts"].version


def test_every_type_arrives_as_it_was(kit):
    columns = {
        "id": "STRING(MAX)",
        "i": "INT64",
        "f32": "FLOAT32",
        "f": "FLOAT64",
        "b": "BOOL",
        "raw": "BYTES(MAX)",
        "n": "NUMERIC",
        "d": "DATE",
        "t": "TIMESTAMP",
        "j": "JSON",
        "u": "UUID",
        "strings": "ARRAY<STRING(MAX)>",
        "numbers": "ARRAY<NUMERIC>",
        "times": "ARRAY<TIMESTAMP>",
    }
    moment = datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    values = {
        "i": -(2**63),
        "f32": 1.5,
        "f": math.inf,
        "b": False,
        "raw": b"\x00\xff",
        "n": Decimal("-99999999999999999999999999999.999999999"),
        "d": date(1, 1, 1),
        "t": moment,
        "j": '{"a":1}',
        "u": uuid.UUID(int=7),
        "strings": ["", None, "é"],
        "numbers": [Decimal("0.000000001"), None],
        "times": [],
    }
    everything = kit.Topic("everything", {1: columns}, ["id"])
    nulls = dict.fromkeys(values)
    changes = [
        kit.Change("INSERT", {"id": "a"}, values, us=1),
        kit.Change("UPDATE", {"id": "a"}, values | {"f": math.nan}, nulls, us=2),
        kit.Change("DELETE", {"id": "a"}, None, values, us=3),
    ]
    opened(kit).write(kit.release(0, [(everything, change) for change in changes]))
    first, second, third = kit.read("changelog/everything").to_pylist()
    expected = {"id": "a"} | values | {"u": str(values["u"])}
    assert {n: v for n, v in first["new_values"].items() if n != "n"} == {
        n: v for n, v in expected.items() if n != "n"
    }
    assert first["new_values"]["n"] == values["n"]
    assert first["old_values"] is None
    assert math.isnan(second["new_values"]["f"])
    assert second["old_values"] == {"id": "a"} | nulls
    assert (third["new_values"], third["mod_type"], third["key"]) == (None, "DELETE", {"id": "a"})
    assert third["old_values"]["t"] == moment
    assert third["source"]["change_stream"] == "everything"
    assert (third["commit_timestamp"].microsecond, third["server_transaction_id"]) == (3, "t1")


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


def test_an_added_column_widens_the_table_and_old_rows_do_not_claim_it(kit):
    before = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    after = kit.Topic("accounts", {1: ACCOUNTS, 2: ACCOUNTS | {"limit": "INT64"}}, ["id"])
    sink = opened(kit)
    sink.write(kit.release(0, [(before, insert(kit, 1))]))
    old_writer = insert(kit, 2, us=5, value_id=1)
    new_writer = kit.Change("INSERT", {"id": 3}, {"owner": "o", "balance": 1, "limit": 9}, us=6)
    sink.write(kit.release(1, [(after, old_writer), (after, new_writer)]))
    rows = sorted(kit.read("changelog/accounts").to_pylist(), key=lambda row: row["key"]["id"])
    assert [row["new_values"]["limit"] for row in rows] == [None, None, 9]
    assert [row["new_columns"] for row in rows] == [None, ["id", "owner", "balance"], None]


def test_a_changed_type_is_refused_by_name(kit):
    sink = opened(kit)
    before = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    sink.write(kit.release(0, [(before, insert(kit, 1))]))
    after = kit.Topic("accounts", {2: ACCOUNTS | {"balance": "STRING(MAX)"}}, ["id"])
    change = kit.Change("INSERT", {"id": 2}, {"owner": "o", "balance": "1"})
    with pytest.raises(SchemaError, match=r"new_values\.balance"):
        sink.write(kit.release(1, [(after, change)]))


def test_a_schema_id_that_the_plan_lacks_fails_the_release(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS, 2: ACCOUNTS | {"x": "INT64"}}, ["id"])
    change = insert(kit, 1, value_id=1)
    accounts.hidden_ids = {1}
    release = kit.release(0, [(accounts, change)])
    with pytest.raises(Exception, match="schema id that the plan does not name"):
        opened(kit).write(release)


def test_bytes_that_do_not_fit_their_schema_fail_the_release(kit):
    from pyspark.sql.functions import expr

    def cut(rows):
        return rows.withColumn("value", expr("substring(value, 1, 7)"))

    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    release = kit.release(0, [(accounts, insert(kit, 1))], alter=cut)
    with pytest.raises(Exception, match=r"(?i)malformed"):
        opened(kit).write(release)


def test_another_query_a_foreign_table_and_a_checkpoint_behind_are_refused(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    sink = opened(kit)
    for number in range(3):
        sink.write(kit.release(number, [(accounts, insert(kit, number))]))
    with pytest.raises(ConfigError, match=r"another writer.*changelog/accounts.*--output"):
        opened(kit, query_id="query-2")
    with pytest.raises(ConfigError, match=r"later release.*changelog/accounts.*--output"):
        opened(kit, release_max=1)
    with pytest.raises(ConfigError, match="other bounds"):
        opened(kit).write(kit.release(2, [(accounts, insert(kit, 2))], through_us=1))
    kit.spark.range(1).write.format("delta").save(f"{kit.output}/changelog/other")
    with pytest.raises(ConfigError, match=r"others have changed the rows.*changelog/other"):
        opened(kit)


def test_a_foreign_write_while_running_is_refused(kit):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    sink = opened(kit)
    sink.write(kit.release(0, [(accounts, insert(kit, 0))]))
    path = f"{kit.output}/changelog/accounts"
    kit.spark.sql(f"DELETE FROM delta.`{path}` WHERE true")
    with pytest.raises(ForeignChange, match=r"changelog/accounts.*DELETE.*adopt"):
        sink.write(kit.release(1, [(accounts, insert(kit, 1))]))


@pytest.mark.parametrize("small", [False, True])
def test_files_say_which_releases_they_hold_and_nothing_of_the_values(kit, small):
    accounts = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])
    changes = [(accounts, insert(kit, n, us=1_000 + n)) for n in range(5)]
    direct = DirectWay(DirectPlace(kit.output)) if small else None
    opened(kit, direct=direct).write(kit.release(0, changes, small=small))
    (log,) = Path(kit.output, "changelog/accounts/_delta_log").glob("*1.json")
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    (stats,) = (json.loads(one["add"]["stats"]) for one in actions if "add" in one)
    assert stats["numRecords"] == 5
    least = stats["minValues"]
    # delta-rs finds a field of this name in `source`, too.
    assert least.pop("source", {}).keys() <= {"commit_timestamp"}
    assert least.keys() == {"release", "ordinal", "commit_timestamp"}


# Spark's own event time on the output: a watermark without delay drops nothing.

STEADY_RELEASES, STEADY_CHANGES = 8, 12
SECOND_US = 1_000_000


@pytest.fixture
def steady(kit):
    """A changelog's path: each release has the changes of a second, its ends included."""
    topic = kit.Topic("t", {1: {"id": "INT64"}}, ["id"])
    direct = DirectWay(DirectPlace(kit.output))
    sink = DeltaChangelogSink(kit.spark, kit.output, direct=direct)
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
@pytest.mark.slow
def test_a_downstream_watermark_without_delay_gives_the_windows_of_a_batch(kit, steady, tmp_path):
    dropped = dropped_by_watermark(kit, steady, tmp_path, name="event_time")
    assert len(dropped) >= STEADY_RELEASES
    assert sum(dropped) == 0
    found = {(row["start"], row["count"]) for row in kit.spark.table("event_time").collect()}
    batch = windows(kit.spark.read.format("delta").load(steady)).collect()
    *closed, _open = sorted((row["start"], row["count"]) for row in batch)
    assert found >= set(closed[:-1])
    assert found <= {*closed, _open}


@pytest.mark.slow
def test_the_same_without_order_drops_rows(kit, steady, tmp_path):
    """Otherwise the test above could not fail."""
    from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

    mixed = str(tmp_path / "mixed")
    rows = kit.spark.read.format("delta").load(steady).select("commit_timestamp")
    for part in range(4):
        some = rows.where(F.abs(F.hash("commit_timestamp")) % 4 == part)
        some.coalesce(1).write.format("delta").mode("append").save(mixed)
    assert any(dropped_by_watermark(kit, mixed, tmp_path, name="event_time_mixed"))

"""Compacted tables for readers and writers: Spark, streams over a table, both ways to write."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.compaction import CompactionLimits
from tidegate.spark_consumer.errors import ReleaseVacuumed
from tidegate.spark_consumer.sinks.delta.as_of import as_of
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.history_sink import DeltaHistorySink
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.maintenance import TableMaintenance, VacuumPolicy
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ACCOUNTS = {"id": "INT64", "owner": "STRING(MAX)", "at": "TIMESTAMP"}
SINKS = (DeltaChangelogSink, DeltaMirrorSink, DeltaHistorySink)
NEVER = VacuumPolicy(retention_hours=0, interval_ms=60_000)


class Output:
    """The manifests' folder."""

    def __init__(self, folder):
        self._folder = Path(folder)

    def write_json(self, name, content):
        path = self._folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(json.dumps(content))

    def read_json(self, name):
        path = self._folder / name
        return json.loads(path.read_text()) if path.exists() else None


class Run:
    """The sinks of a query, and what maintains their tables."""

    def __init__(self, kit, *, makers=SINKS, direct=True, layout=None, vacuum=NEVER, now=None):
        self.kit = kit
        way = DirectWay(DirectPlace(kit.output)) if direct else None
        self.sinks = [make(kit.spark, kit.output, direct=way, layout=layout) for make in makers]
        for sink in self.sinks:
            sink.open(query_id="query-1", release_max=1_000)
        self.maintain = TableMaintenance(
            DirectPlace(kit.output),
            self.sinks,
            manifests=Output(kit.output),
            limits=CompactionLimits(4, 32 * 1024**2),
            vacuum=vacuum,
            require_writer=lambda: None,
            **({} if now is None else {"now": now}),
        )
        self.topic = kit.Topic("accounts", {1: ACCOUNTS}, ["id"])

    def release(self, number, *, small=True):
        at = datetime(1900, 1, 1, 0, 0, 0, 1, UTC) + timedelta(days=number)
        values = {"owner": f"o{number}", "at": at}
        changes = [
            (self.topic, self.kit.Change("INSERT", {"id": number}, values, us=number * 10 + 1)),
            (self.topic, self.kit.Change("UPDATE", {"id": number}, values, us=number * 10 + 2)),
        ]
        if number % 3 == 2:
            change = self.kit.Change("DELETE", {"id": number - 1}, None, us=number * 10 + 3)
            changes.append((self.topic, change))
        return self.kit.release(number, changes, small=small)

    def write(self, number, *, small=True):
        release = self.release(number, small=small)
        tables = {}
        for sink in self.sinks:
            for table, version in sink.write(release).items():
                tables.setdefault(table, {})[sink.name] = version
        bounds = (release.after_us, release.through_us)
        manifest = Manifest(number, "query-1", number, *bounds, release.rows, tables)
        write_manifest(Output(self.kit.output), manifest)

    def rows(self, path):
        frame = self.kit.spark.read.format("delta").load(f"{self.kit.output}/{path}")
        return sorted(map(repr, frame.collect()))

    def files(self, path):
        return len(DeltaTable(f"{self.kit.output}/{path}").file_uris())


PATHS = ("changelog/accounts", "mirror/accounts", "history/accounts")


@pytest.mark.rule("sink-compaction")
def test_tables_hold_the_same_after_compaction_and_both_ways_go_on(kit):
    run = Run(kit)
    for number in range(6):
        run.write(number, small=number != 3)
    before = {path: run.rows(path) for path in PATHS}
    many = {path: run.files(path) for path in PATHS}
    run.maintain()
    assert {path: run.rows(path) for path in PATHS} == before
    assert sum(run.files(path) < many[path] for path in PATHS) >= 1
    assert run.files("changelog/accounts") == 1
    for number in (5, 6):  # a repeated one first
        run.write(number)
    restarted = Run(kit, direct=False)
    restarted.write(6)
    restarted.write(7)
    changes = kit.spark.read.format("delta").load(f"{kit.output}/changelog/accounts")
    found = sorted((row["release"], row["ordinal"]) for row in changes.collect())
    assert found == [(n, m) for n in range(8) for m in range(3 if n % 3 == 2 else 2)]
    mirror = kit.spark.read.format("delta").load(f"{kit.output}/mirror/accounts")
    alive = sorted(row["id"] for row in mirror.collect())
    assert alive == [0, 2, 3, 5, 6, 7]
    history = kit.spark.read.format("delta").load(f"{kit.output}/history/accounts")
    assert sorted(row["id"] for row in history.where("is_current").collect()) == alive


@pytest.mark.rule("sink-compaction")
def test_a_release_is_read_at_its_version_also_after_compaction(kit):
    run = Run(kit, makers=(DeltaMirrorSink,))
    seen = {}
    for number in range(6):
        run.write(number)
        time_us = (number + 1) * 1_000_000
        seen[time_us] = sorted(
            map(repr, as_of(kit.spark, kit.output, time_us)["accounts"].collect())
        )
        run.maintain()
    for time_us, rows in seen.items():
        found = as_of(kit.spark, kit.output, time_us)["accounts"]
        assert sorted(map(repr, found.collect())) == rows


@pytest.mark.rule("sink-compaction")
@pytest.mark.parametrize("begins", [0, 2])
def test_a_stream_over_the_changelog_gets_each_row_once_and_in_order(kit, tmp_path, begins):
    """Whether it begins before the compaction, or in a table that was compacted."""
    run = Run(kit, makers=(DeltaChangelogSink,))
    path = f"{kit.output}/changelog/accounts"
    got = []

    def take(rows, _):
        places = rows.select("release", "ordinal").collect()
        got.extend((row["release"], row["ordinal"]) for row in places)

    def read():
        stream = kit.spark.readStream.format("delta").option("maxFilesPerTrigger", 1).load(path)
        writing = stream.writeStream.foreachBatch(take)
        writing = writing.option("checkpointLocation", str(tmp_path / "check"))
        writing.trigger(availableNow=True).start().awaitTermination()

    for part in range(3):
        for number in range(part * 4, part * 4 + 4):
            run.write(number)
        if part >= begins:
            read()
        run.maintain()
    assert run.files("changelog/accounts") < 6
    read()
    assert got == [(n, m) for n in range(12) for m in range(3 if n % 3 == 2 else 2)]


def test_deleted_files_are_named_and_what_is_kept_is_read(kit):
    later = datetime.now(UTC) + timedelta(hours=48)
    policy = VacuumPolicy(retention_hours=24, interval_ms=60_000)
    run = Run(kit, makers=(DeltaMirrorSink,), vacuum=policy, now=lambda: later)
    for number in range(5):
        run.write(number)
    newest = sorted(map(repr, as_of(kit.spark, kit.output, 5_000_000)["accounts"].collect()))
    for _ in range(3):
        run.maintain()
    with pytest.raises(ReleaseVacuumed, match=r"accounts.*vacuum_retention_hours") as caught:
        as_of(kit.spark, kit.output, 3_000_000)
    assert caught.value.exit_code == 2
    found = as_of(kit.spark, kit.output, 5_000_000)["accounts"]
    assert sorted(map(repr, found.collect())) == newest


@pytest.mark.parametrize("small", [True, False])
def test_a_mirror_may_be_partitioned_and_is_compacted_in_its_partitions(kit, small):
    layout = TableLayout(
        partition_by={"accounts": ("owner",)},
        properties={"delta.logRetentionDuration": "interval 10 days"},
    )
    run = Run(kit, makers=(DeltaMirrorSink,), layout=layout)
    for number in range(3):
        run.write(number, small=small)
    table = DeltaTable(f"{kit.output}/mirror/accounts")
    assert table.metadata().partition_columns == ["owner"]
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 10 days"
    before = run.rows("mirror/accounts")
    run.maintain()
    assert run.rows("mirror/accounts") == before


@pytest.mark.parametrize(
    "layout",
    [
        TableLayout(cluster_by={"accounts": ("owner",)}),
        TableLayout({"delta.enableDeletionVectors": "true"}),
    ],
    ids=["clusters", "deletion vectors"],
)
def test_a_mirror_with_features_is_written_by_spark_and_left_to_its_owner(kit, layout):
    run = Run(kit, makers=(DeltaMirrorSink,), layout=layout)
    for number in range(5):
        run.write(number)
    described = kit.spark.sql(f"DESCRIBE DETAIL delta.`{kit.output}/mirror/accounts`").collect()[0]
    assert list(described["clusteringColumns"]) == (["owner"] if layout.cluster_by else [])
    expected = "clustering" if layout.cluster_by else "deletionVectors"
    assert expected in described["tableFeatures"]
    run.maintain()
    rows = kit.spark.read.format("delta").load(f"{kit.output}/mirror/accounts").collect()
    assert sorted(row["id"] for row in rows) == [0, 2, 3, 4]
    kit.spark.sql(f"OPTIMIZE delta.`{kit.output}/mirror/accounts`")
    run.write(5)


def test_a_column_that_a_table_lacks_is_refused_by_the_settings_name(kit):
    run = Run(kit, makers=(DeltaMirrorSink,), layout=TableLayout(partition_by={"accounts": ("x",)}))
    with pytest.raises(ConfigError, match=r"^mirror_partition_by: .*accounts"):
        run.write(0)

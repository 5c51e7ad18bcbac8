"""Tables on real Spark: files of a write, compaction, layouts of users, Delta's log."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import deltalake
import pytest
from py4j.java_gateway import JavaPackage
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DateType,
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.topics import ROWS_SCHEMA
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.compaction import CompactionLimits
from tidegate.spark_consumer.errors import ReleaseVacuumed
from tidegate.spark_consumer.sinks.delta.as_of import as_of
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.log_files import DeltaHistory, state_files
from tidegate.spark_consumer.sinks.delta.maintenance import TableMaintenance, VacuumPolicy
from tidegate.spark_consumer.sinks.delta.side_tables import DeltaLateTable
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.merge.history import DeltaHistorySink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.sql import session_settings
from tidegate.spark_consumer.sinks.tables import Commit, TableRows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"id": "INT64", "n": "INT64", "at": "TIMESTAMP"}


@pytest.fixture
def submitted(spark):
    """Spark's own defaults, which a session of spark-submit has."""
    with session_settings(spark, {"spark.sql.shuffle.partitions": "200"}):
        yield


def data_files(kit, path):
    return sorted(file.name for file in Path(kit.output, path).glob("*.parquet"))


@pytest.mark.usefixtures("submitted")
def test_every_write_of_a_release_is_one_file(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    sinks = [sink(kit.spark, kit.output) for sink in (changelog_sink, DeltaMirrorSink)]
    for sink in sinks:
        sink.open(query_id="query-1", release_max=10)
    inserts = [kit.Change("INSERT", {"id": n}, {"n": n, "at": None}, us=n + 1) for n in range(300)]
    updates = [kit.Change("UPDATE", {"id": n}, {"n": -n}, us=1_000 + n) for n in range(0, 600, 30)]
    for number, changes in enumerate((inserts, updates)):
        release = kit.release(number, [(topic, change) for change in changes])
        for sink in sinks:
            sink.write(release)
        # The MERGE of the UPDATEs replaces the file of the INSERTs by one of its own.
        assert len(data_files(kit, "mirror/t")) == number + 1
        assert len(data_files(kit, "changelog/t")) == number + 1
    assert kit.read("mirror/t").num_rows == 300
    assert len(data_files(kit, "incomplete/t")) == 1
    rows = [topic.row(change, ordinal=n) for n, change in enumerate(inserts[:50])]
    frame = kit.spark.createDataFrame(rows, ROWS_SCHEMA).repartition(20).drop("ordinal")
    DeltaLateTable(kit.output).write(frame, query_id="q", batch=0, watermark_us=100)
    assert len(data_files(kit, "late")) == 1


def test_delta_rs_creates_a_table_as_spark_does(spark, tmp_path):
    kinds = StructType(
        [
            StructField("release", LongType(), nullable=False),
            StructField("commit_timestamp", TimestampType()),
            StructField("key", StructType([StructField("Id", StringType(), nullable=False)])),
            StructField("n", DecimalType(38, 9)),
            StructField("texts", ArrayType(StringType(), containsNull=False)),
            StructField("raw", BinaryType()),
            StructField("day", DateType()),
        ]
    )
    commit = Commit("q", "changelog", 0, 5)
    found = []
    for name, direct in (("spark", None), ("direct", DirectWay(DirectPlace(f"{tmp_path}/direct")))):
        tables = SinkTables(
            f"{tmp_path}/{name}",
            folder="changelog",
            sink="changelog",
            direct=direct,
            properties={"delta.dataSkippingStatsColumns": "release"},
        )
        tables.open(spark, query_id="q", release_max=-1)
        tables.prepare(spark, "t", schema=kinds, commit=commit)
        assert tables.log(spark, "t").exists
        made = deltalake.DeltaTable(f"{tmp_path}/{name}/changelog/t")
        (entry,) = made.history()
        found.append(
            (
                made.version(),
                made.schema().to_json(),
                made.protocol(),
                made.metadata().configuration,
                entry["userMetadata"],
                entry["operation"],
            )
        )
        # A second one finds it there.
        other = SinkTables(f"{tmp_path}/{name}", folder="changelog", sink="changelog")
        other.open(spark, query_id="q", release_max=0)
        other.prepare(spark, "t", schema=kinds, commit=commit)
        assert deltalake.DeltaTable(f"{tmp_path}/{name}/changelog/t").version() == 0
    assert found[0] == found[1]


def test_files_of_a_merge_are_counted_by_the_size_of_the_partition_that_it_rewrites(
    kit, monkeypatch
):
    tables = SinkTables(kit.output, folder="f", sink="history", partitioned_by=["is_new"])
    tables.open(kit.spark, query_id="query-1", release_max=1)
    rows = kit.spark.range(3_000).selectExpr("id", "uuid() as text", "id < 30 as is_new")
    commit = Commit("query-1", "history", 0, 1)
    tables.prepare(kit.spark, "t", schema=rows.schema, commit=commit)
    whole = TableRows(
        topic="t",
        table="t",
        spark=kit.spark,
        schema=lambda: rows.schema,
        frame=lambda: rows.coalesce(1),
        sources={"t": 3_000},
    )
    tables.append(whole, commit=commit)
    actions = deltalake.DeltaTable(f"{kit.output}/f/t").get_add_actions(flatten=True)
    sizes = dict(
        zip(actions["partition.is_new"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    )
    assert sizes[False] > 20 * sizes[True]
    monkeypatch.setattr(
        "tidegate.spark_consumer.sinks.tables._REWRITTEN_FILE_BYTES", sizes[True] // 2
    )

    def files(rows=1, **part):
        return tables.files_of_merge(kit.spark, "t", rows=rows, part=part)

    assert (files(is_new=True), files(is_new=False) > 40, files() > 42) == (3, True, True)
    module = "tidegate.spark_consumer.sinks.tables"
    monkeypatch.setattr(f"{module}._REWRITTEN_FILE_BYTES", 10**9)
    monkeypatch.setattr(f"{module}._REWRITTEN_FILE_ROWS", 10)
    assert files(rows=1_000) == 101


class OtherDistribution:
    """Java's packages, without those of Delta."""

    def __init__(self, package, path=""):
        self._package, self._path = package, path

    def __getattr__(self, name):
        path = f"{self._path}.{name}"
        assert not path.endswith(".sql.delta")
        found = getattr(self._package, name)
        return OtherDistribution(found, path) if isinstance(found, JavaPackage) else found


def test_a_writers_number_is_read_without_a_class_of_deltas(kit, monkeypatch):
    """From commits, and from checkpoints of each form, whichever engine wrote them."""
    path = f"{kit.output}/a[1]{{b,c}}/t"
    history = DeltaHistory(kit.spark, path)
    assert history.numbers("mirror") == {}
    jvm = kit.spark._jvm
    rows = kit.spark.range(1).withColumn("note", F.lit("txn q/mirror 9"))

    def append(version, application="q/mirror"):
        writer = rows.write.format("delta").mode("append").option("txnAppId", application)
        writer.option("txnVersion", version).save(path)

    def clean():
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        log = Path(path, "_delta_log")
        for number in range(deltalake.DeltaTable(path).version()):
            log.joinpath(f"{number:020d}.json").unlink(missing_ok=True)

    def checkpoint():
        jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            kit.spark._jsparkSession, path
        ).checkpoint()

    def in_parts():
        with session_settings(kit.spark, {"spark.databricks.delta.checkpoint.partSize": "2"}):
            checkpoint()

    def by_delta_rs():
        deltalake.DeltaTable(path).create_checkpoint()

    def in_form_2():
        kit.spark.sql(
            f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ('delta.checkpointPolicy' = 'v2')"
        )
        checkpoint()

    append(3)
    append(8, "a/b/mirror")
    append(99, "q/changelog")
    append(99, "mirror")
    forms = set()
    for number, state in enumerate((checkpoint, in_parts, by_delta_rs, in_form_2)):
        append(5 + number)
        append(9 + number, "a/b/mirror")
        rows.write.format("delta").mode("append").save(path)
        for again in range(2):
            with monkeypatch.context() as patch:
                patch.setattr(kit.spark, "_jvm", OtherDistribution(jvm))
                numbers = history.numbers("mirror")
                assert numbers == {"q": 5 + number, "a/b": 9 + number}, state
            if not again:
                state()
                clean()
        forms |= {name.count(".") for name in state_files(history._files.names("_delta_log"))}
    assert forms >= {2, 3, 4}


# ---------------------------------------------------------------- compaction

ACCOUNTS = {"id": "INT64", "owner": "STRING(MAX)", "at": "TIMESTAMP"}
SINKS = (changelog_sink, DeltaMirrorSink, DeltaHistorySink)
NEVER = VacuumPolicy(retention_hours=0, interval_ms=60_000)


class Manifests:
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
            manifests=Manifests(kit.output),
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
        write_manifest(Manifests(self.kit.output), manifest)

    def rows(self, path):
        frame = self.kit.spark.read.format("delta").load(f"{self.kit.output}/{path}")
        return sorted(map(repr, frame.collect()))

    def files(self, path):
        return len(deltalake.DeltaTable(f"{self.kit.output}/{path}").file_uris())


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
@pytest.mark.parametrize("begins", [0, pytest.param(2, marks=pytest.mark.deep)])
def test_a_stream_over_the_changelog_gets_each_row_once_and_in_order(kit, tmp_path, begins):
    """Whether it begins before the compaction, or in a table that was compacted."""
    run = Run(kit, makers=(changelog_sink,))
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


@pytest.mark.rule("sink-compaction")
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


@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_mirror_may_be_partitioned_and_is_compacted_in_its_partitions(kit, small):
    layout = TableLayout(
        partition_by={"accounts": ("owner",)},
        properties={"delta.logRetentionDuration": "interval 10 days"},
    )
    run = Run(kit, makers=(DeltaMirrorSink,), layout=layout)
    for number in range(3):
        run.write(number, small=small)
    table = deltalake.DeltaTable(f"{kit.output}/mirror/accounts")
    assert table.metadata().partition_columns == ["owner"]
    assert table.metadata().configuration["delta.logRetentionDuration"] == "interval 10 days"
    before = run.rows("mirror/accounts")
    run.maintain()
    assert run.rows("mirror/accounts") == before


@pytest.mark.deep
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
    for number in range(3):
        run.write(number)
    described = kit.spark.sql(f"DESCRIBE DETAIL delta.`{kit.output}/mirror/accounts`").collect()[0]
    assert list(described["clusteringColumns"]) == (["owner"] if layout.cluster_by else [])
    expected = "clustering" if layout.cluster_by else "deletionVectors"
    assert expected in described["tableFeatures"]
    run.maintain()
    rows = kit.spark.read.format("delta").load(f"{kit.output}/mirror/accounts").collect()
    assert sorted(row["id"] for row in rows) == [0, 2]
    kit.spark.sql(f"OPTIMIZE delta.`{kit.output}/mirror/accounts`")
    run.write(3)


def test_a_column_that_a_table_lacks_is_refused_by_the_settings_name(kit):
    run = Run(kit, makers=(DeltaMirrorSink,), layout=TableLayout(partition_by={"accounts": ("x",)}))
    with pytest.raises(ConfigError, match=r"^mirror_partition_by: .*accounts"):
        run.write(0)

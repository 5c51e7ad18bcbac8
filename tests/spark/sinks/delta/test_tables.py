"""Tables on real Spark: how many files a write makes, whatever the session says."""

from __future__ import annotations

import shutil
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

from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import TableMissing
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.history import DeltaHistory
from tidegate.spark_consumer.sinks.delta.late import DeltaLateTable
from tidegate.spark_consumer.sinks.delta.log_transactions import state_files
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.release_writer import write_release
from tidegate.spark_consumer.sinks.session_settings import session_settings

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "n": "INT64", "at": "TIMESTAMP"}


@pytest.fixture
def submitted(spark):
    """Spark's own defaults, which a session of spark-submit has."""
    with session_settings(spark, {"spark.sql.shuffle.partitions": "200"}):
        yield


def data_files(kit, path):
    return sorted(file.name for file in Path(kit.output, path).glob("*.parquet"))


@pytest.mark.usefixtures("submitted")
@pytest.mark.slow
def test_every_write_of_a_release_is_one_file(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    sinks = [sink(kit.spark, kit.output) for sink in (DeltaChangelogSink, DeltaMirrorSink)]
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


@pytest.mark.parametrize("kind", [DeltaChangelogSink, DeltaMirrorSink])
def test_a_column_of_another_type_is_written_to_a_new_output(kit, kind):
    """The stream began again under the same prefix, without its subjects."""
    before = kit.Topic("t", {1: {"id": "INT64", "n": "INT64"}}, ["id"])
    after = kit.Topic("t", {1: {"id": "INT64", "n": "STRING(MAX)"}}, ["id"])
    insert = kit.Change("INSERT", {"id": 1}, {"n": 1}), kit.Change("INSERT", {"id": 2}, {"n": "b"})
    sink = kind(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=10)
    sink.write(kit.release(0, [(before, insert[0])]))
    with pytest.raises(SchemaError, match="a new --output"):
        sink.write(kit.release(1, [(after, insert[1])]))
    new = kind(kit.spark, f"{kit.output}-new")
    new.open(query_id="query-1", release_max=-1)
    new.write(kit.release(0, [(after, insert[1])]))
    (row,) = kit.spark.read.format("delta").load(f"{kit.output}-new/{new.name}/t").collect()
    assert (row["n"] if new.name == "mirror" else row["new_values"]["n"]) == "b"


@pytest.mark.usefixtures("submitted")
def test_late_changes_of_a_batch_are_one_file(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    rows = [topic.row(kit.Change("INSERT", {"id": n}, {}, us=n + 1), ordinal=n) for n in range(50)]
    from tests.topics import ROWS_SCHEMA

    frame = kit.spark.createDataFrame(rows, ROWS_SCHEMA).repartition(20).drop("ordinal")
    DeltaLateTable(kit.output).write(frame, query_id="q", batch=0, watermark_us=100)
    assert len(data_files(kit, "late")) == 1


@pytest.mark.usefixtures("submitted")
def test_a_merge_into_a_larger_mirror_may_write_more_files(kit, monkeypatch):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    sink = DeltaMirrorSink(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=10)
    inserts = [kit.Change("INSERT", {"id": n}, {"n": n, "at": None}, us=n + 1) for n in range(300)]
    sink.write(kit.release(0, [(topic, change) for change in inserts]))
    tables = "tidegate.spark_consumer.sinks.delta.tables"
    monkeypatch.setattr(f"{tables}._REWRITTEN_FILE_BYTES", 1_000)
    (before,) = Path(kit.output, "mirror/t").glob("*.parquet")
    size = before.stat().st_size
    assert sink._tables.files_of_merge(kit.spark, "t", rows=1) == 1 + size // 1_000
    monkeypatch.setattr(f"{tables}._REWRITTEN_FILE_ROWS", 10)
    assert sink._tables.files_of_merge(kit.spark, "t", rows=1_000) == 101


def test_timestamps_are_written_in_a_form_that_holds_every_year(kit):
    import pyarrow.parquet as pq

    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    sink = DeltaMirrorSink(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=10)
    sink.write(kit.release(0, [(topic, kit.Change("INSERT", {"id": 1}, {"n": 1, "at": None}))]))
    (file,) = Path(kit.output, "mirror/t").glob("*.parquet")
    schema = pq.ParquetFile(file).schema
    kinds = {column.name: column.physical_type for column in map(schema.column, range(3))}
    assert kinds == {"id": "INT64", "n": "INT64", "at": "INT64"}


@pytest.mark.slow
@pytest.mark.parametrize("sink_type", [DeltaChangelogSink, DeltaMirrorSink])
def test_a_table_whose_folder_was_deleted_is_named_and_not_created_again(kit, sink_type):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    idle = kit.Topic("u", {2: COLUMNS}, ["id"], key_id=101)
    storage = Storage(kit.spark, kit.output)
    storage.take()

    def write(sink, number):
        row = kit.Change("INSERT", {"id": number}, {"n": 1, "at": None})
        release = kit.release(number, [(topic, row)], topics=[idle])
        list(write_release(release, sinks=[sink], output=storage))

    def opened():
        sink = sink_type(kit.spark, kit.output)
        sink.open(query_id="query-1", release_max=10)
        return sink

    first = opened()
    write(first, 0)
    folder = Path(kit.output, sink_type.name, "t")
    kept = folder.rename(Path(kit.output, "elsewhere"))
    for attempt in (lambda: write(first, 1), opened):
        with pytest.raises(TableMissing, match=f"{sink_type.name}/t"):
            attempt()
        assert not folder.exists()
    kept.rename(folder)
    write(opened(), 1)
    shutil.rmtree(Path(kit.output, sink_type.name, "u"))
    with pytest.raises(TableMissing, match=f"{sink_type.name}/u"):
        opened()


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
    tables.append(rows.coalesce(1), "t", commit=commit)
    actions = deltalake.DeltaTable(f"{kit.output}/f/t").get_add_actions(flatten=True)
    sizes = dict(
        zip(actions["partition.is_new"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True)
    )
    assert sizes[False] > 20 * sizes[True]
    monkeypatch.setattr(
        "tidegate.spark_consumer.sinks.delta.tables._REWRITTEN_FILE_BYTES", sizes[True] // 2
    )

    def files(**part):
        return tables.files_of_merge(kit.spark, "t", rows=1, part=part)

    assert (files(is_new=True), files(is_new=False) > 40, files() > 42) == (3, True, True)


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
                found = history.numbers("mirror")
                assert found == {"q": 5 + number, "a/b": 9 + number}, state
            if not again:
                state()
                clean()
        forms |= {name.count(".") for name in state_files(history._files.names("_delta_log"))}
    assert forms >= {2, 3, 4}

"""Parquet folders and files in Datastream's layout: how they are written, and who reads them."""

import random
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyarrow.parquet import ParquetFile, read_table

from tests.datastream_output import STREAM
from tests.spark.sinks.delta.test_both_ways import history as every_type
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.listing import all_files, object_folders
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.sinks.files.datastream import DatastreamFilesSink, FileSettings
from tidegate.spark_consumer.sinks.files.events import FileFormat, FileLimits
from tidegate.spark_consumer.sinks.files.parquet import ParquetFolders
from tidegate.spark_consumer.sinks.files.parquet_bytes import parquet_file
from tidegate.spark_consumer.sinks.kinds import parquet_sink, parquet_transactions_sink
from tidegate.spark_consumer.sinks.sql import session_settings
from tidegate.spark_consumer.sinks.tables import Commit, TableRows

pytestmark = pytest.mark.spark


@pytest.fixture
def files(kit):
    """An output with its writer."""
    one = Storage(kit.spark, kit.output)
    one.take()
    return one


@pytest.fixture
def topic(kit):
    return kit.Topic("a", {1: {"id": "INT64", "a": "STRING"}}, ["id"])


def inserts(kit, topic, *keys, text=1):
    return [
        (topic, kit.Change("INSERT", {"id": key}, {"a": f"{key}" * text}, us=key,
                           transaction=f"t{key}"))
        for key in keys
    ]  # fmt: skip


def parquet(kit, files, *, is_direct=True):
    sink = parquet_sink(kit.spark, files, is_direct=is_direct)
    sink.open(query_id="query-1", release_max=99)
    return sink


def test_a_small_release_takes_no_job_of_spark(kit, files, topic):
    context = kit.spark.sparkContext
    releases = [kit.release(n, inserts(kit, topic, n), small=True) for n in range(2)]
    context.setJobGroup("parquet", "parquet")
    try:
        parquet(kit, files).write(releases[0])
        assert not context.statusTracker().getJobIdsForGroup("parquet")
        parquet(kit, files, is_direct=False).write(releases[1])
        assert context.statusTracker().getJobIdsForGroup("parquet")
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_a_replaced_run_that_still_writes_a_release_adds_nothing_to_its_folder(kit, files):
    """Its successor writes the same release, while one of the tasks of the first goes on."""
    successor = Storage(kit.spark, kit.output)
    begun, goes_on = (Path(kit.output).parent / name for name in ("begun", "goes-on"))

    def slow(batches):
        for batch in batches:
            yield batch
            if batch.column("id")[0].as_py():
                begun.touch()
                while not goes_on.exists():
                    time.sleep(0.02)

    def write(files, frame):
        rows = TableRows(
            topic="bank.t",
            table="t",
            spark=kit.spark,
            schema=lambda: frame.schema,
            frame=lambda: frame,
            sources={"t": 2},
        )
        ParquetFolders(files, folder="parquet").append(rows, commit=Commit("q", "parquet", 0, 5))

    numbers = kit.spark.range(0, 2, 1, 2)
    with ThreadPoolExecutor(1) as pool:
        replaced = pool.submit(write, files, numbers.mapInArrow(slow, "id long"))
        sink = Path(kit.output, "parquet")
        try:
            wait_until(lambda: begun.exists() and any(Path(kit.output).rglob("task_*")))
            successor.take()
            write(successor, numbers)
            assert sorted(read(sink / "t/000000000000")) == [0, 1]
        finally:
            goes_on.touch()
        with pytest.raises(WriterReplaced):
            replaced.result()
    assert sorted(read(sink / "t/000000000000")) == [0, 1]
    assert (sink / "t/000000000000/_SUCCESS").exists()
    # A reader sees no other table, and the next start deletes what is left of the job.
    assert [path.name for path in sink.iterdir()] == ["t"]
    unfinished = Path(kit.output, "_unfinished/parquet")
    assert any(unfinished.iterdir())
    successor.write_json("parquet/_begun.json", {"query_id": "query-1", "release": 0})
    parquet(kit, successor)
    assert not unfinished.exists()


@pytest.mark.parametrize("small", [True, False])
def test_a_table_may_have_any_name(kit, files, small):
    """Kafka's names begin with an underscore too, and so may those of other databases."""
    table = kit.Topic("_unfinished", {1: {"id": "INT64", "a": "STRING"}}, ["id"])
    for number in (1, 2):
        release = kit.release(number, inserts(kit, table, number), small=small)
        (version,) = parquet(kit, files, is_direct=small).write(release).values()
        assert version.path == f"parquet/_unfinished/{number:012d}"
    names = sorted(path.parent.name for path in Path(kit.output).rglob("_SUCCESS"))
    assert names == ["000000000001", "000000000002"]


def wait_until(condition):
    give_up_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def read(folder):
    return [row["id"] for path in folder.glob("*.parquet") for row in read_table(path).to_pylist()]


def test_the_writer_looks_at_its_size_at_each_large_transaction(kit, files, topic):
    """Those of a backfill have megabytes, so a hundred of them must not wait in its memory."""
    sink = parquet_transactions_sink(kit.spark, files)
    sink.open(query_id="query-1", release_max=99)
    with session_settings(kit.spark, {"parquet.block.size": "10000"}):
        sink.write(kit.release(0, inserts(kit, topic, *range(1, 9), text=9_000)))
    (path,) = (Path(kit.output) / "parquet_transactions/000000000000").glob("*.parquet")
    assert ParquetFile(path).metadata.num_row_groups >= 4


def test_spark_reads_every_type_as_it_was(kit, tmp_path):
    for number, (topic, changes) in enumerate(every_type()[:3]):
        release = kit.release(number, [(topic, change) for change in changes], small=True)
        (one,) = release.tables.values()
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(parquet_file(one.changes, one.schema))
        found = kit.spark.read.parquet(str(path))
        assert found.columns == one.schema.names
        assert [field.dataType for field in found.schema] == [
            field.dataType for field in one.schema
        ]
        assert [row.ordinal for row in found.select("ordinal").collect()] == [
            change["ordinal"] for change in one.changes
        ]
        assert found.exceptAll(one.frame).count() == 0
        assert one.frame.exceptAll(found).count() == 0


# ---------------------------------------------------------------- files in Datastream's layout


COLUMNS = {"id": "INT64", "price": "NUMERIC", "at": "TIMESTAMP"}
MINUTE_S = 1_800_000_000.0


class Killed(Exception):
    """The process died at a write."""


class Dying(Storage):
    """Dies before the write that `left` counts to."""

    left = 10**9

    def write(self, name, data):
        self.left -= 1
        if self.left < 0:
            raise Killed
        super().write(name, data)


@pytest.fixture
def place(kit):
    """An output with its writer, topics of two tables, and a release of 40 changes."""
    files = Dying(kit.spark, kit.output)
    files.take()
    topics = [
        kit.Topic(name, {n: COLUMNS}, ["id"], key_id=10 + n) for n, name in enumerate("ab", 1)
    ]
    chance = random.Random(4)
    changes = [
        (chance.choice(topics), kit.Change("INSERT", {"id": n}, {"price": None, "at": None}, us=n))
        for n in range(1, 41)
    ]
    chance.shuffle(changes)
    return files, topics, changes


def sink(files, *, rows_max=7, now_s=MINUTE_S, form=FileFormat.AVRO):
    one = DatastreamFilesSink(
        files, FileSettings(form, FileLimits(rows_max, 10_000)), stream=lambda: STREAM,
        clock=lambda: now_s,
    )  # fmt: skip
    one.open(query_id="query-1", release_max=99)
    return one


def contents(kit):
    """Return the files that a reader of the folder sees, by path."""
    store, root = LocalStore(), f"{kit.output}/datastream_files"
    return {
        file.path: Path(file.path).read_bytes()
        for folder in object_folders(store, root)
        for file in all_files(store, folder)
    }


def times(kit, table):
    store, folder = LocalStore(), f"{kit.output}/datastream_files/{table}"
    found = []
    for one in all_files(store, folder) if Path(folder).exists() else ():
        with store.open(one.path) as stream:
            found += [event.metadata.commit_timestamp for event in EventFile(one.path, stream)]
    return found


@pytest.mark.rule("sink-datastream-files")
@pytest.mark.parametrize(
    "form", [FileFormat.AVRO, pytest.param(FileFormat.JSON_GZIP, marks=pytest.mark.deep)]
)
def test_a_release_is_written_once_and_in_order_whatever_dies(kit, place, form):
    files, topics, changes = place
    release = kit.release(3, changes, topics=topics)
    for left in (0, 1, 4, 10**9):
        files.left = left
        one = sink(files, form=form, now_s=MINUTE_S + left % 100 * 60)
        if left < 10:
            with pytest.raises(Killed):
                one.write(release)
        else:
            one.write(kit.release(3, changes, topics=topics, small=True))
        for table, topic in zip("ab", topics, strict=True):
            own = sorted(change.us for found, change in changes if found is topic)
            held = times(kit, table)
            assert held == own[: len(held)]
            assert left < 10 or held == own
    written = contents(kit)
    assert {path.split("/")[-2] for path in written} == {"00"}  # of the first attempt
    sink(files, form=form, rows_max=1).write(release)
    assert contents(kit) == written


def test_spark_reads_the_files_with_the_schema_in_them(kit, place):
    files, topics, changes = place
    sink(files).write(kit.release(0, changes, topics=topics))
    frame = kit.spark.read.format("avro").option("recursiveFileLookup", "true").load(
        files.path("datastream_files/a")
    )  # fmt: skip
    types = dict(frame.select("source_timestamp", "payload.*").dtypes)
    assert types == {
        "source_timestamp": "timestamp", "id": "bigint", "price": "decimal(38,9)",
        "at": "timestamp",
    }  # fmt: skip
    rows = frame.selectExpr("payload.id", "source_metadata.change_type").collect()
    own = sorted(change.us for topic, change in changes if topic is topics[0])
    assert sorted((row.id, row.change_type) for row in rows) == [(n, "INSERT") for n in own]

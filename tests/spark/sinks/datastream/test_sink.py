"""Files in Datastream's layout on a real file system, of releases that Spark reads."""

import random
from pathlib import Path

import pytest

from tests.datastream_output import STREAM
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.file_tree import all_files, object_folders
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.sinks.datastream.file_bytes import FileFormat
from tidegate.spark_consumer.sinks.datastream.open_files import FileLimits
from tidegate.spark_consumer.sinks.datastream.sink import DatastreamFilesSink, FileSettings

pytestmark = pytest.mark.spark

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
        one.path: Path(one.path).read_bytes()
        for folder in object_folders(store, root)
        for one in all_files(store, folder)
    }


def times(kit, table):
    store, folder = LocalStore(), f"{kit.output}/datastream_files/{table}"
    found = []
    for one in all_files(store, folder) if Path(folder).exists() else ():
        with store.open(one.path) as stream:
            found += [event.metadata.commit_timestamp for event in EventFile(one.path, stream)]
    return found


@pytest.mark.rule("sink-datastream-files")
@pytest.mark.parametrize("form", [FileFormat.AVRO, FileFormat.JSON_GZIP])
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
    found = frame.selectExpr("payload.id", "source_metadata.change_type").collect()
    own = sorted(change.us for topic, change in changes if topic is topics[0])
    assert sorted((row.id, row.change_type) for row in found) == [(n, "INSERT") for n in own]


def test_a_run_that_was_replaced_writes_nothing(kit, place):
    files, topics, changes = place
    one = sink(files)
    Storage(kit.spark, kit.output).take()
    with pytest.raises(WriterReplaced):
        one.write(kit.release(0, changes, topics=topics))
    assert not Path(kit.output, "datastream_files").exists()

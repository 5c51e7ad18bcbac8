"""Parquet folders: one for each table and release, the same however often it is written."""

import json
from pathlib import Path

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.sinks.parquet import ParquetSink
from tidegate.spark_consumer.sinks.port import TableVersion

pytestmark = pytest.mark.spark


@pytest.fixture
def place(kit):
    """An output with its writer, and topics of two tables."""
    files = Storage(kit.spark, kit.output)
    files.take()
    topics = [
        kit.Topic(name, {n: {"id": "INT64", name: "STRING"}}, ["id"], key_id=10 + n)
        for n, name in enumerate("ab", 1)
    ]
    return files, topics


def sink(kit, files, **known):
    one = ParquetSink(kit.spark, files, is_direct=known.pop("is_direct", True))
    one.open(**({"query_id": "query-1", "release_max": 99} | known))
    return one


def released(kit, topics, number, *keys, small=False):
    changes = [
        (topics[0], kit.Change("INSERT", {"id": key}, {"a": f"{key}"}, us=100 - key))
        for key in keys
    ]
    return kit.release(number, changes, topics=topics, small=small)


def rows(kit, files, path):
    found = kit.spark.read.parquet(files.path(path)).collect()
    return [(row.release, row.ordinal, row.key.id, row.new_values.a) for row in found]


@pytest.mark.rule("sink-parquet")
@pytest.mark.parametrize(("small", "is_direct"), [(False, True), (True, False), (True, True)])
def test_a_folder_holds_a_tables_changes_of_one_release_in_commit_order(
    kit, place, small, is_direct
):
    files, topics = place
    one = sink(kit, files, is_direct=is_direct)
    assert one.write(released(kit, topics, 0, 1, 2, 3, small=small)) == {
        "a": TableVersion("parquet/a/000000000000", 0, 3)
    }
    assert one.write(released(kit, topics, 1)) == {}
    assert one.write(released(kit, topics, 2, 4, small=small)) == {
        "a": TableVersion("parquet/a/000000000002", 2, 1)
    }
    assert rows(kit, files, "parquet/a/000000000000") == [
        (0, 0, 3, "3"), (0, 1, 2, "2"), (0, 2, 1, "1"),
    ]  # fmt: skip
    assert rows(kit, files, "parquet/a/000000000002") == [(2, 0, 4, "4")]
    assert not Path(kit.output, "parquet", "b").exists()


@pytest.mark.rule("sink-parquet")
@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("was_small", [False, True])
def test_a_release_that_is_there_is_not_written_again_and_half_of_one_is(
    kit, place, small, was_small
):
    files, topics = place
    sink(kit, files).write(released(kit, topics, 0, 1, 2, small=was_small))
    folder = Path(kit.output, "parquet", "a", "000000000000")
    before = {file.name for file in folder.iterdir()}
    sink(kit, files).write(released(kit, topics, 0, 1, 2, small=small))
    assert {file.name for file in folder.iterdir()} == before
    (folder / "_SUCCESS").unlink()
    sink(kit, files).write(released(kit, topics, 0, 1, 2, small=small))
    assert len(list(folder.glob("*.parquet"))) == 1
    assert len(rows(kit, files, "parquet/a/000000000000")) == 2


def test_a_small_release_takes_no_job_of_spark(kit, place):
    files, topics = place
    context = kit.spark.sparkContext
    release = released(kit, topics, 0, 1, 2, small=True)
    context.setJobGroup("parquet", "parquet")
    try:
        sink(kit, files).write(release)
        assert not context.statusTracker().getJobIdsForGroup("parquet")
        sink(kit, files, is_direct=False).write(released(kit, topics, 1, 3, small=True))
        assert context.statusTracker().getJobIdsForGroup("parquet")
    finally:
        context.setJobGroup("", "")


def test_a_run_that_was_replaced_writes_nothing(kit, place):
    files, topics = place
    one = sink(kit, files)
    Storage(kit.spark, kit.output).take()
    with pytest.raises(WriterReplaced):
        one.write(released(kit, topics, 0, 1, small=True))
    assert not list(Path(kit.output).rglob("*.parquet"))


def test_files_of_another_query_or_ahead_of_the_checkpoint_are_refused(kit, place):
    files, topics = place
    sink(kit, files, release_max=-1).write(released(kit, topics, 0, 1))
    sink(kit, files, release_max=0).write(released(kit, topics, 1, 2))
    sink(kit, files, release_max=1)
    with pytest.raises(ConfigError, match=r"ahead of the checkpoint.*found=1, expected=0"):
        sink(kit, files, release_max=0)
    with pytest.raises(ConfigError, match="another query"):
        sink(kit, files, query_id="query-2")
    begun = json.loads(Path(kit.output, "parquet", "_begun.json").read_text())
    assert begun == {"query_id": "query-1", "release": 1}
    # With the restored checkpoint it goes on.
    sink(kit, files, release_max=1).write(released(kit, topics, 2, 3))
    found = [rows(kit, files, f"parquet/a/{number:012d}") for number in range(3)]
    assert found == [[(number, 0, number + 1, f"{number + 1}")] for number in range(3)]

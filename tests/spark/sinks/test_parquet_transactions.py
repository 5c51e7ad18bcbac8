"""Parquet folders of transactions: one for each release, the same however often it is written."""

import json
from pathlib import Path

import pytest
from pyarrow.parquet import ParquetFile

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.parquet_transactions import ParquetTransactionsSink
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


def sink(files, **known):
    one = ParquetTransactionsSink(files)
    one.open(**({"query_id": "query-1", "release_max": 99} | known))
    return one


def released(kit, topics, number, *keys, small=False):
    """Each key is a transaction over both tables."""
    changes = [
        (topic, kit.Change("INSERT", {"id": key}, {name: f"{key}"}, us=100 - key,
                           transaction=f"t{key}", sequence=n))
        for key in keys
        for n, (topic, name) in enumerate(zip(topics, "ab", strict=True))
    ]  # fmt: skip
    return kit.release(number, changes, topics=topics, small=small)


def rows(kit, files, path):
    found = kit.spark.read.parquet(files.path(path)).collect()
    return [
        (row.release, row.server_transaction_id,
         [(one.ordinal, one.table, json.loads(one.key)) for one in row.changes])
        for row in found
    ]  # fmt: skip


@pytest.mark.rule("sink-parquet-transactions")
@pytest.mark.parametrize("small", [False, True])
def test_a_folder_holds_the_transactions_of_one_release_in_commit_order(kit, place, small):
    files, topics = place
    one = sink(files)
    folder = "parquet_transactions/000000000000"
    version = TableVersion(folder, 0)
    assert one.write(released(kit, topics, 0, 1, 2, small=small)) == {"a": version, "b": version}
    assert one.write(released(kit, topics, 1)) == {}
    assert rows(kit, files, folder) == [
        (0, "t2", [(0, "a", {"id": 2}), (1, "b", {"id": 2})]),
        (0, "t1", [(2, "a", {"id": 1}), (3, "b", {"id": 1})]),
    ]
    assert not Path(kit.output, "parquet_transactions", "000000000001").exists()


@pytest.mark.rule("sink-parquet-transactions")
def test_a_release_that_is_there_is_not_written_again_and_half_of_one_is(kit, place):
    files, topics = place
    sink(files).write(released(kit, topics, 0, 1, 2))
    folder = Path(kit.output, "parquet_transactions", "000000000000")
    before = {file.name for file in folder.iterdir()}
    sink(files).write(released(kit, topics, 0, 1, 2))
    assert {file.name for file in folder.iterdir()} == before
    (folder / "_SUCCESS").unlink()
    sink(files).write(released(kit, topics, 0, 1, 2))
    assert len(rows(kit, files, "parquet_transactions/000000000000")) == 2


def test_files_of_another_query_or_ahead_of_the_checkpoint_are_refused(kit, place):
    files, topics = place
    sink(files).write(released(kit, topics, 1, 1))
    with pytest.raises(ConfigError, match=r"ahead of the checkpoint.*found=1, expected=0"):
        sink(files, release_max=0)
    with pytest.raises(ConfigError, match="another query"):
        sink(files, query_id="query-2")


def test_the_writer_looks_at_its_size_at_each_large_transaction(kit, place):
    """Those of a backfill have megabytes, so a hundred of them must not wait in its memory."""
    files, topics = place
    kit.spark.conf.set("parquet.block.size", "10000")
    try:
        changes = [
            (topics[0], kit.Change("INSERT", {"id": key}, {"a": f"{key}" * 9_000}, us=key,
                                   transaction=f"t{key}"))
            for key in range(1, 9)
        ]  # fmt: skip
        sink(files).write(kit.release(0, changes, topics=topics))
    finally:
        kit.spark.conf.unset("parquet.block.size")
    (path,) = (Path(kit.output) / "parquet_transactions/000000000000").glob("*.parquet")
    assert ParquetFile(path).metadata.num_row_groups >= 4

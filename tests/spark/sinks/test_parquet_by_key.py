"""Parquet folders by key: one for each table and batch, the same however often it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.parquet_by_key import ParquetByKeySink

pytestmark = pytest.mark.spark


@pytest.fixture
def files(kit):
    one = Storage(kit.spark, kit.output)
    one.take()
    return one


@pytest.fixture
def topics(kit):
    return [kit.Topic(name, {1: {"id": "INT64"}}, ["id"], key_id=9) for name in "ab"]


def opened(kit, files, **known):
    sink = ParquetByKeySink(kit.spark, files)
    sink.open(**({"query_id": "query-1", "release_max": 99} | known))
    return sink


def handed(kit, topics, number, *times):
    changes = [(topics[0], kit.Change("INSERT", {"id": 1}, {}, us=us)) for us in times]
    return kit.handed(number, changes, topics=topics)


def rows(kit, number):
    found = kit.spark.read.parquet(f"{kit.output}/parquet_by_key/a/{number:012d}").collect()
    return [(row.batch, row.commit_timestamp.microsecond) for row in found]


@pytest.mark.rule("sink-parquet-by-key")
def test_a_folder_holds_a_tables_changes_of_one_batch_in_kafkas_order(kit, files, topics):
    sink = opened(kit, files)
    sink.take(handed(kit, topics, 4, 30, 10, 20))
    sink.take(handed(kit, topics, 6, 5))
    assert [rows(kit, 4), rows(kit, 6)] == [[(4, 30), (4, 10), (4, 20)], [(6, 5)]]
    assert not Path(kit.output, "parquet_by_key", "b").exists()
    assert sink.write(kit.release(0, [], topics=topics)) == {}


@pytest.mark.rule("sink-parquet-by-key")
def test_a_batch_that_is_there_is_not_written_again_and_half_of_one_is(kit, files, topics):
    folder = Path(kit.output, "parquet_by_key", "a", f"{4:012d}")
    opened(kit, files).take(handed(kit, topics, 4, 1, 2))
    first = sorted(folder.glob("*.parquet"))
    opened(kit, files).take(handed(kit, topics, 4, 1, 2))
    assert sorted(folder.glob("*.parquet")) == first
    (folder / "_SUCCESS").unlink()
    opened(kit, files).take(handed(kit, topics, 4, 1, 2))
    assert rows(kit, 4) == [(4, 1), (4, 2)]


def test_files_of_another_query_or_ahead_of_the_checkpoint_are_refused(kit, files, topics):
    opened(kit, files).take(handed(kit, topics, 4, 1))
    with pytest.raises(ConfigError, match="another query"):
        opened(kit, files, query_id="query-2")
    with pytest.raises(ConfigError, match="ahead of the checkpoint"):
        opened(kit, files, release_max=3)

"""Files through Hadoop's FileSystem: whole or not at all, and one writer at a time."""

import os
from pathlib import Path

import pytest

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.spark.storage import Storage

pytestmark = pytest.mark.spark


@pytest.fixture
def storage(spark, tmp_path):
    storage = Storage(spark, str(tmp_path / "a folder"))
    storage.take()
    return storage


def test_what_was_written_is_read(storage):
    content = {"text": "ü\n", "number": 1 << 60, "nested": [{"a": None}]}
    storage.write_json("states/1.json", content)
    assert storage.read_json("states/1.json") == content
    storage.write_json("states/1.json", [1])
    assert storage.read_json("states/1.json") == [1]
    assert storage.names("states") == ["1.json"]


def test_what_is_not_there_is_nothing(storage):
    assert storage.read_json("states/1.json") is None
    assert storage.names("states") == []
    storage.delete(["states/1.json", "states"])


def test_a_file_is_created_once(storage):
    assert storage.create_json("plans/1.json", 1)
    assert not storage.create_json("plans/1.json", 2)
    assert storage.read_json("plans/1.json") == 1
    assert storage.names("plans") == ["1.json"]


def test_a_folder_is_deleted_with_what_it_holds(storage):
    storage.write_json("segments/a/part", 1)
    storage.write_json("segments/b/part", 1)
    storage.delete(["segments/a"])
    assert storage.names("segments") == ["b"]


def test_paths_are_whole_and_local_ones_may_be_given_bare(storage, tmp_path):
    assert storage.path("x/y").startswith("file:/")
    assert storage.path("x/y").endswith("/a folder/x/y")
    storage.write_json("x/y", 1)
    assert (tmp_path / "a folder" / "x" / "y").read_bytes() == b"1\n"


def test_an_older_writer_stops_at_its_next_write(spark, storage):
    storage.write_json("a", 1)
    younger = Storage(spark, storage.root)
    assert younger.take() == 2
    for write in (
        lambda: storage.write_json("a", 2),
        lambda: storage.create_json("b", 2),
        lambda: storage.delete(["a"]),
    ):
        with pytest.raises(WriterReplaced):
            write()
    younger.write_json("c", 3)
    assert [younger.read_json(name) for name in ("a", "b", "c")] == [1, None, 3]


def test_nobody_writes_without_taking_the_folder(spark, tmp_path):
    storage = Storage(spark, str(tmp_path))
    with pytest.raises(WriterReplaced):
        storage.write_json("a", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_named(spark, tmp_path):
    Path(tmp_path / "file").write_text("")
    storage = Storage(spark, os.fspath(tmp_path / "file" / "below"))
    with pytest.raises(UnreachableError, match="below"):
        storage.take()

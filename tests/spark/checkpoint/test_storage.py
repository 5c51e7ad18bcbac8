"""Files through Hadoop's FileSystem: whole or not at all, and one writer at a time."""

import os
from pathlib import Path

import pytest

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import WriterReplaced

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


def test_a_missing_file_reads_as_none(storage):
    assert storage.read_json("states/1.json") is None
    assert storage.names("states") == []
    storage.delete(["states/1.json", "states"])


def test_a_file_is_created_once(storage):
    assert storage.create_json("plans/1.json", 1)
    assert not storage.create_json("plans/1.json", 2)
    assert storage.read_json("plans/1.json") == 1
    assert storage.names("plans") == ["1.json"]


def test_temporary_files_are_in_the_folder_of_their_file(storage, tmp_path):
    """A run may write nowhere else, and a rename between file systems is impossible."""
    for name in ("query.json", "plans/1.json"):
        temporary = storage._write_temporary(name, b"1")
        assert (tmp_path / "a folder" / temporary).parent == (tmp_path / "a folder" / name).parent
        assert (tmp_path / "a folder" / temporary).read_bytes() == b"1"


def test_what_killed_writes_have_left_is_deleted_where_it_is_old_enough(spark, storage, tmp_path):
    storage.write_json("plans/1.json", 1)
    left = [storage._write_temporary(name, b"1") for name in ("plans/1.json", "plans/2.json")]
    old, young = (tmp_path / "a folder" / one for one in left)
    os.utime(old, (1, 1))
    assert storage.delete_unfinished(["plans", "states"], written_before_ms=2_000) == 1
    assert (old.exists(), young.exists()) == (False, True)
    assert storage.delete_unfinished(["plans"], written_before_ms=1 << 60) == 1
    assert storage.read_json("plans/1.json") == 1
    assert [path.name for path in (tmp_path / "a folder" / "plans").glob("*.json")] == ["1.json"]
    Storage(spark, storage.root).take()
    with pytest.raises(WriterReplaced):
        storage.delete_unfinished(["plans"], written_before_ms=0)


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


def test_a_run_that_has_not_taken_the_folder_may_not_write(spark, tmp_path):
    storage = Storage(spark, str(tmp_path))
    with pytest.raises(WriterReplaced):
        storage.write_json("a", 1)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_is_named(spark, tmp_path):
    Path(tmp_path / "file").write_text("")
    storage = Storage(spark, os.fspath(tmp_path / "file" / "below"))
    with pytest.raises(UnreachableError, match="below"):
        storage.take()


def test_two_runs_that_write_one_file_at_a_time_do_not_share_its_temporary_file(spark, storage):
    """A paused run is between its check and its rename while its successor writes the file."""
    younger = Storage(spark, storage.root)
    rename = storage._rename

    def rename_later(temporary, name, *, replace):
        younger.take()
        younger.write_json(name, {"by": "younger"})
        rename(temporary, name, replace=replace)

    storage._rename = rename_later
    storage.write_json("states/1.json", {"by": "older"})
    assert younger.read_json("states/1.json") == {"by": "older"}
    assert younger.names("states") == ["1.json"]

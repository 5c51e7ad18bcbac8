"""Files through Hadoop's FileSystem: whole or not at all, and one writer at a time."""

import os
import threading
from pathlib import Path

import pytest

from tests.storage_contract import StorageContract
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.checkpoint.whole_files import LocalFiles, write_temporary
from tidegate.spark_consumer.errors import WriterReplaced

pytestmark = [pytest.mark.spark, pytest.mark.slow]

REPLACEMENTS = 300


@pytest.fixture
def storage(spark, tmp_path):
    storage = Storage(spark, str(tmp_path / "a folder"))
    storage.take()
    return storage


class TestLocalStorage(StorageContract):
    """On this machine's disk."""

    races = 50


def test_who_reads_a_file_while_it_is_replaced_finds_it_whole(storage, tmp_path):
    """Status, `as_of` and the demo read manifests without Spark, at any moment."""
    path = tmp_path / "a folder" / "a.json"
    storage.write_json("a.json", 0)
    found, failures, is_over = [], [], threading.Event()

    def read():
        while not is_over.is_set():
            try:
                found.append(int(path.read_bytes()))
            except (OSError, ValueError) as error:
                failures.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, REPLACEMENTS):
        storage.write_json("a.json", number)
    is_over.set()
    reader.join()
    assert failures == []
    assert found == sorted(found)
    assert storage.read_json("a.json") == REPLACEMENTS - 1


def test_what_cannot_be_read_is_not_taken_for_missing(storage):
    storage.write_json("states/1.json", 1)
    with pytest.raises(UnreachableError, match="rejected"):
        storage.read_json("states")


def test_temporary_files_are_in_the_folder_of_their_file(storage, tmp_path):
    """A run may write nowhere else, and a rename between file systems is impossible."""
    for name in ("query.json", "plans/1.json"):
        temporary = write_temporary(storage._folder, name, b"1")
        assert (tmp_path / "a folder" / temporary).parent == (tmp_path / "a folder" / name).parent
        assert (tmp_path / "a folder" / temporary).read_bytes() == b"1"


def test_what_killed_writes_have_left_is_deleted_where_it_is_old_enough(spark, storage, tmp_path):
    storage.write_json("plans/1.json", 1)
    names = ("plans/1.json", "plans/2.json")
    left = [write_temporary(storage._folder, name, b"1") for name in names]
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


@pytest.mark.parametrize("root", ["a folder", "of {a,b} and [c]"])
def test_temporary_files_are_found_among_many_others(spark, tmp_path, root):
    storage = Storage(spark, str(tmp_path / root))
    storage.take()
    for number in range(30):
        storage.write_json(f"_releases/{number:012d}.json", number)
    left = write_temporary(storage._folder, "_releases/000000000030.json", b"1")
    claim = write_temporary(storage._folder, "writers/000000000002", b"1")
    folders = ["_releases", "writers", "plans"]
    assert storage.delete_unfinished(folders, written_before_ms=1 << 60) == 2
    assert not any((tmp_path / root / one).exists() for one in (left, claim))
    assert len(storage.names("_releases")) == 30
    storage.require_writer()


def test_paths_are_whole_and_local_ones_may_be_given_bare(storage, tmp_path):
    assert storage.path("x/y").startswith("file:/")
    assert storage.path("x/y").endswith("/a folder/x/y")
    storage.write_json("x/y", 1)
    assert (tmp_path / "a folder" / "x" / "y").read_bytes() == b"1\n"


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


def test_two_runs_that_write_one_file_at_a_time_do_not_share_its_temporary_file(
    spark, storage, monkeypatch
):
    """A paused run is between its check and its rename while its successor writes the file."""
    younger = Storage(spark, storage.root)
    move = LocalFiles.move

    def move_later(files, temporary, name):
        monkeypatch.undo()
        younger.take()
        younger.write_json(name, {"by": "younger"})
        move(files, temporary, name)

    monkeypatch.setattr(LocalFiles, "move", move_later)
    storage.write_json("states/1.json", {"by": "older"})
    assert younger.read_json("states/1.json") == {"by": "older"}
    assert younger.names("states") == ["1.json"]


def test_a_store_that_cannot_decide_between_two_runs_is_refused_before_anything_is_written(
    spark, tmp_path
):
    """Hadoop has a file system of web servers, which stands for any other store."""
    storage = Storage(spark, "http://127.0.0.1/lake")
    for write in (storage.require_store, lambda: storage.create("writers/1", {})):
        with pytest.raises(ConfigError, match=r"cannot decide which of two runs.*scheme='http'"):
            write()


def test_a_scheme_without_a_file_system_is_refused_with_what_to_add(spark):
    for address, advice in (
        ("s3a://lake/orders", "hadoop-aws:3.4.1"),
        ("gs://lake/orders", "fs.gs.impl"),
        ("s3://lake/orders", "s3a:// in place of s3://"),
        ("other://lake/orders", "the scheme"),
    ):
        with pytest.raises(ConfigError, match="no file system") as caught:
            Storage(spark, address)
        assert advice in caught.value.hint

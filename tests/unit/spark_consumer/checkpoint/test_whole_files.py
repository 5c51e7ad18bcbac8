"""How files are written in each kind of store, and what a kill between two requests leaves."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from pyspark.errors.exceptions.base import UnsupportedOperationException

from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.checkpoint.hadoop_folder import HadoopFolder, NameTaken
from tidegate.spark_consumer.checkpoint.whole_files import (
    AzureFiles,
    HdfsFiles,
    LocalFiles,
    PutObjects,
    S3Objects,
    find_whole_files,
    read_replaced,
    replaced_names,
)

NAME = "states/1.json"
REQUESTS_MAX = 20


def folder(*schemes, can=True):
    return MagicMock(
        root=f"{schemes[0]}://lake/gate",
        schemes=frozenset(schemes),
        is_in_azure=set(schemes) <= {"abfs", "abfss"},
        can=lambda _: can,
    )


@pytest.mark.parametrize(
    ("schemes", "files"),
    [
        (["file"], LocalFiles),
        (["hdfs"], HdfsFiles),
        (["hdfs", "webhdfs"], HdfsFiles),  # the mounts of a viewfs
        (["s3a"], S3Objects),
        (["gs"], PutObjects),
        (["abfs"], AzureFiles),
        (["abfss"], AzureFiles),
    ],
)
def test_each_store_has_its_own_way(schemes, files):
    assert type(find_whole_files(folder(*schemes))) is files


@pytest.mark.parametrize("schemes", [["s3"], ["wasbs"], ["oss"], ["hdfs", "s3a"], ["ftp"]])
def test_a_store_that_cannot_decide_between_two_runs_is_refused(schemes):
    with pytest.raises(ConfigError, match="cannot decide which of two runs") as raised:
        find_whole_files(folder(*schemes))
    assert raised.value.fields["scheme"] == ", ".join(sorted(schemes))
    assert "s3a://" in raised.value.hint
    assert raised.value.exit_code == 2


def test_an_account_of_azure_without_folders_is_refused():
    with pytest.raises(ConfigError, match="cannot decide") as raised:
        find_whole_files(folder("abfss", can=False))
    assert "hierarchical namespace" in raised.value.hint


# ---------------------------------------------------------------- Google Cloud Storage


def bucket(refusals, found):
    """A bucket where another run is faster for some puts, and what is in the object then."""
    answers = iter([UnreachableError("rejected")] * refusals)

    def put(action):
        action()
        for refusal in answers:
            raise refusal

    return MagicMock(call=MagicMock(side_effect=put), read=MagicMock(return_value=found))


def test_an_object_that_another_run_puts_meanwhile_is_replaced_at_the_next_try():
    once = bucket(1, b"other")
    PutObjects(once).replace(NAME, b"new")
    assert once.files.create.call_args_list == [((once.path(NAME), True),)] * 2
    # The answer to the first request was lost.
    own = bucket(1, b"new")
    PutObjects(own).replace(NAME, b"new")
    assert own.files.create.call_count == 1
    always = bucket(9, b"other")
    with pytest.raises(UnreachableError):
        PutObjects(always).replace(NAME, b"new")
    assert always.files.create.call_count == 3


def test_only_a_new_file_asks_whether_the_name_is_taken():
    for files in (PutObjects, HdfsFiles):
        one = folder("gs")
        files(one).replace(NAME, b"new")
        one.naming.assert_not_called()
        files(one).create(NAME, b"new")
        one.naming.assert_called_once()


def test_what_pyspark_makes_of_an_error_of_java_is_unreachable_for_every_call():
    store = HadoopFolder(MagicMock(), "hdfs://lake/gate")

    def refuse():
        raise UnsupportedOperationException(message="hard links")

    for call in (store.call, store.naming):
        with pytest.raises(UnreachableError, match="hard links"):
            call(refuse)


# ---------------------------------------------------------------- Azure's data lake


class Killed(Exception):
    """The run is gone."""


class Lake:
    """Requests to an account whose rename replaces nothing, by one run or several."""

    def __init__(self):
        self.files = {}

    def folder(self, left=None):
        """Return the folder of a run that is killed before the request after so many."""
        return LakeFolder(self, left)


class LakeFolder:
    is_local = False

    def __init__(self, lake, left):
        self.lake, self.left = lake, left
        self.files = SimpleNamespace(create=self._create, rename=self._rename)

    def _request(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise Killed

    def call(self, action):
        return action()

    naming = call

    def path(self, name):
        return name

    def _create(self, name, _):
        self._request()
        self.lake.files[name] = b""
        return SimpleNamespace(
            write=lambda data: self._flush(name, data), hsync=lambda: None, close=lambda: None
        )

    def _flush(self, name, data):
        self._request()
        self.lake.files[name] = bytes(data)

    def _rename(self, source, name):
        self._request()
        if source not in self.lake.files or name in self.lake.files:
            return False
        self.lake.files[name] = self.lake.files.pop(source)
        return True

    def delete(self, name):
        self._request()
        self.lake.files.pop(name, None)

    def has(self, name):
        self._request()
        return name in self.lake.files

    def read(self, name):
        self._request()
        return self.lake.files.get(name)


def test_killed_between_any_two_requests_a_replaced_file_is_never_missing():
    for number in range(REQUESTS_MAX):
        lake = Lake()
        AzureFiles(lake.folder()).replace(NAME, b"former")
        was_killed = False
        try:
            AzureFiles(lake.folder(left=number)).replace(NAME, b"new")
        except Killed:
            was_killed = True
        assert read_replaced(lake.folder(), NAME) in (b"former", b"new")
        assert f"{NAME.rpartition('/')[2]}" in replaced_names(
            file.rpartition("/")[2] for file in lake.files
        )
        with pytest.raises(NameTaken):
            AzureFiles(lake.folder()).create(NAME, b"created")
        AzureFiles(lake.folder()).replace(NAME, b"newest")
        assert lake.files[NAME] == b"newest"
        assert [file for file in lake.files if file.endswith(".next")] == []
        if not was_killed:
            break
    assert 5 < number < REQUESTS_MAX - 1


def test_a_new_file_is_whole_and_only_the_first_of_two_creates_it():
    for number in range(REQUESTS_MAX):
        lake = Lake()
        was_killed = False
        try:
            AzureFiles(lake.folder(left=number)).create(NAME, b"first")
        except Killed:
            was_killed = True
        found = read_replaced(lake.folder(), NAME)
        assert found in (None, b"first")
        if found is None:
            AzureFiles(lake.folder()).create(NAME, b"second")
        else:
            with pytest.raises(NameTaken):
                AzureFiles(lake.folder()).create(NAME, b"second")
        assert lake.files[NAME] == (found or b"second")
        if not was_killed:
            break
    assert 3 < number < REQUESTS_MAX - 1


def test_of_two_runs_that_replace_a_file_each_leaves_a_whole_one():
    """One stands still before each of its requests, while the other writes and is done."""

    class Paused(LakeFolder):
        def _request(self):
            self.left -= 1
            if self.left == -1:
                AzureFiles(self.lake.folder()).replace(NAME, b"other")

    for number in range(REQUESTS_MAX):
        lake = Lake()
        AzureFiles(lake.folder()).replace(NAME, b"former")
        paused = Paused(lake, number)
        AzureFiles(paused).replace(NAME, b"new")
        assert read_replaced(lake.folder(), NAME) in (b"new", b"other")
        if paused.left >= 0:
            break
    assert 5 < number < REQUESTS_MAX - 1

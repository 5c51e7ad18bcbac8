"""Reading a folder on this machine."""

import os
from pathlib import Path

import pytest

from tidegate.spark_consumer.checkpoint.json_files import LocalFolder, decoded
from tidegate.spark_consumer.errors import CheckpointMismatch


def test_files_are_read_and_listed_without_temporary_ones(tmp_path):
    states = tmp_path / "states"
    states.mkdir()
    for name in ("2.json", "10.json", ".3.json.tmp", "_SUCCESS"):
        (states / name).write_text('{"a": 1}')
    folder = LocalFolder(tmp_path)
    assert folder.names("states") == ["10.json", "2.json"]
    assert folder.read_json("states/2.json") == {"a": 1}


def test_what_is_missing_reads_as_none_and_lists_as_empty(tmp_path):
    folder = LocalFolder(tmp_path / "nowhere")
    assert folder.read_json("states/1.json") is None
    assert folder.names("states") == []
    assert folder.written_ms("states/1.json") is None


def test_what_is_deleted_a_moment_before_it_is_read_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    folder = LocalFolder(tmp_path)
    assert folder.read_json("1.json") is None
    assert folder.written_ms("1.json") is None


def test_what_is_no_file_reads_as_none(tmp_path):
    (tmp_path / "states").mkdir()
    (tmp_path / "1.json").write_text("{}")
    folder = LocalFolder(tmp_path)
    assert folder.read_json("states") is None
    assert folder.read_json("1.json/1.json") is None


@pytest.mark.parametrize("address", ["\0", "\ud800"])
def test_a_folder_that_no_file_system_can_name_is_empty(address):
    folder = LocalFolder(Path(address))
    assert folder.read_json("states/1.json") is None
    assert folder.names("states") == []
    assert folder.written_ms("states/1.json") is None


def test_a_file_says_when_it_was_written(tmp_path):
    (tmp_path / "1.json").write_text("{}")
    os.utime(tmp_path / "1.json", ns=(0, 1_234_567_000))
    folder = LocalFolder(tmp_path)
    assert folder.written_ms("1.json") == 1_234
    assert folder.root == str(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"\xcd\xfe"])
def test_what_is_not_json_is_named(data):
    with pytest.raises(CheckpointMismatch, match=r"states/1\.json"):
        decoded(data, file="states/1.json")

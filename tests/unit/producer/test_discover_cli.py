"""`discover` on the command line: what it prints, and one line where it cannot."""

from __future__ import annotations

import json
import random

import pytest

from tests.datastream_files import backfill, history, write_stream
from tests.unit.producer.test_cli import run
from tidegate.producer.commands import discover as command
from tidegate.producer.source_objects import Discovery, SourceField, SourceObject

__all__ = ["run"]

DATABASE = ("--project", "p", "--instance", "bank", "--database", "bank")


@pytest.fixture
def stream(tmp_path):
    rng = random.Random(1)
    events = [*backfill("mysql", rng, 3), *history("mysql", rng, 20)]
    write_stream(tmp_path / "stream", "mysql", events)
    return tmp_path / "stream"


def test_files_are_listed_within_100_columns(run, stream, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    code, _, output = run("discover", "--datastream", str(stream))
    assert code == 0
    assert max(map(len, output.splitlines())) <= 100
    for text in ("shop.orders", "DECIMAL(10,2)", "TIMESTAMP", "objects: 1", "3 INSERT"):
        assert text in output or text == "3 INSERT"


def test_files_as_json(run, stream):
    code, _, output = run("discover", "--datastream", str(stream), "--json")
    found = json.loads(output)
    assert (code, found["kind"], found["source"]) == (0, "mysql", str(stream))
    (only,) = found["objects"]
    assert (only["name"], only["key"], sum(only["events"].values())) == ("shop.orders", ["id"], 23)
    assert only["fields"][0] == {
        "name": "id", "type": "LONG", "nullable": True, "key_position": 1, "watched_by": [],
    }  # fmt: skip


def test_fewer_files_are_read_where_that_is_enough(run, stream):
    _, _, output = run("discover", "--datastream", str(stream), "--files", "1", "--json")
    (only,) = json.loads(output)["objects"]
    assert only["files_read"] == 1
    assert "the newest 1 of each object" in json.loads(output)["notes"][0]
    _, _, output = run("discover", "--datastream", str(stream), "--files", "0", "--json")
    assert json.loads(output)["objects"][0]["files_read"] == 4


def test_a_database_is_looked_at_with_its_settings(run, monkeypatch):
    seen = []

    def discover(settings):
        seen.append((settings.database_path, settings.change_stream))
        field = SourceField("Id", "INT64", nullable=False, key_position=1, watched_by=("Feed",))
        return Discovery("spanner", "the database", ("Feed",), (SourceObject("T", (field,)),))

    monkeypatch.setattr(command, "discover_spanner", discover)
    code, _, output = run("discover", *DATABASE, "--change-stream", "Feed")
    assert code == 0
    assert seen == [("projects/p/instances/bank/databases/bank", "Feed")]
    assert "INT64" in output
    _, _, output = run("discover", *DATABASE, "--json")
    assert json.loads(output)["objects"][0]["fields"][0]["watched_by"] == ["Feed"]


def test_a_broken_file_is_one_line_with_its_place_and_exit_code_2(run, stream):
    (path,) = stream.glob("**/0001_*.avro")
    path.write_bytes(path.read_bytes()[:-9])
    code, error, output = run("discover", "--datastream", str(stream))
    assert (code, output) == (2, "")
    line = " ".join(error.split())
    assert f"error: the file ends in the middle of a block (file='{path}', record=" in line
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--datastream", "/nowhere/at/all"), "--datastream: /nowhere/at/all does not exist"),
        (("--datastream", "hdfs://x"), "hdfs:// is not supported. Give a local folder"),
        (("--datastream", ".", *DATABASE), "--project, --instance, --database name two sources"),
        ((), "project: is not set (flag --project"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(run, arguments, text):
    code, error, _ = run("discover", *arguments)
    assert code == 2
    assert text in " ".join(error.split())


def test_a_folder_without_files_is_an_error(run, tmp_path):
    code, error, _ = run("discover", "--datastream", str(tmp_path))
    assert code == 2
    assert "holds no file with events" in " ".join(error.split())

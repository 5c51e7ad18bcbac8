"""`discover` against a real catalogue in both dialects, and against files."""

from __future__ import annotations

import gzip
import json
import random

import pytest

from spanner_simulator import Simulator
from tests.datastream_files import SOURCES, backfill, delivered, history, write_stream
from tidegate.producer.commands.discover import as_json, discover_files, discover_spanner
from tidegate.producer.datastream.errors import MixedSources
from tidegate.producer.discover_config import DiscoverConfig
from tidegate.schemas.errors import ConfigError, UnreachableError

GOOGLE_SQL = (
    """CREATE TABLE Users (Id INT64 NOT NULL, Name STRING(MAX), Tags ARRAY<STRING(MAX)>)
       PRIMARY KEY (Id)""",
    """CREATE TABLE Orders (Id INT64 NOT NULL, UserId INT64 NOT NULL, Note STRING(MAX))
       PRIMARY KEY (UserId, Id)""",
    "CREATE TABLE Plain (Id INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR Users, Orders(Note)",
    "CREATE CHANGE STREAM Everything FOR ALL",
)
POSTGRESQL = (
    "CREATE TABLE users (id bigint NOT NULL, amount numeric, PRIMARY KEY (id))",
    "CREATE TABLE plain (id bigint NOT NULL, PRIMARY KEY (id))",
    "CREATE CHANGE STREAM feed FOR users",
)


@pytest.fixture(scope="module")
def spanner():
    with Simulator(seed=1) as running:
        running.create_database("both", ddl=list(GOOGLE_SQL))
        running.create_database("none", ddl=[GOOGLE_SQL[2]])
        running.create_database("pg", ddl=list(POSTGRESQL), dialect="POSTGRESQL")
        yield running


@pytest.fixture
def look(spanner, monkeypatch):
    monkeypatch.delenv("SPANNER_EMULATOR_HOST", raising=False)

    def discover(database, **more):
        return discover_spanner(
            DiscoverConfig.load(
                None, project="test-project", instance="test-instance", database=database,
                **{"spanner_emulator_host": spanner.grpc_address, **more},
            )
        )  # fmt: skip

    return discover


def rows(found):
    return {
        one.name: [
            (field.name, field.type, field.nullable, field.key_position, field.watched_by)
            for field in one.fields
        ]
        for one in found.objects
    }


@pytest.mark.rule("datastream-discover")
def test_tables_of_a_database_with_what_each_change_stream_watches(look):
    found = look("both")
    both, everything = ("Everything", "Feed"), ("Everything",)
    assert found.kind == "spanner"
    assert found.streams == both
    assert rows(found) == {
        "Orders": [
            ("Id", "INT64", False, 2, both), ("UserId", "INT64", False, 1, both),
            ("Note", "STRING", True, None, both),
        ],
        "Plain": [("Id", "INT64", True, 1, everything)],
        "Users": [
            ("Id", "INT64", False, 1, both), ("Name", "STRING", True, None, both),
            ("Tags", "ARRAY<STRING>", True, None, both),
        ],
    }  # fmt: skip
    assert [one.key for one in found.objects] == [("UserId", "Id"), ("Id",), ("Id",)]


def test_one_change_stream_leaves_tables_and_columns_unwatched(look):
    found = look("both", change_stream="Feed")
    assert {one.name: one.watched_by for one in found.objects} == {
        "Orders": ("Feed",), "Plain": (), "Users": ("Feed",),
    }  # fmt: skip


@pytest.mark.rule("datastream-discover")
def test_postgresql(look):
    found = look("pg")
    assert rows(found) == {
        "plain": [("id", "INT64", False, 1, ())],
        "users": [("id", "INT64", False, 1, ("feed",)), ("amount", "PG_NUMERIC", True, None,
                                                         ("feed",))],
    }  # fmt: skip
    assert "POSTGRESQL" in found.source


def test_a_database_without_change_streams_is_listed_too(look):
    found = look("none")
    assert [one.name for one in found.objects] == ["Plain"]
    assert found.notes == ("the database has no change stream: nothing is watched",)


def test_what_does_not_exist_is_named(look):
    with pytest.raises(ConfigError, match=r"no change stream Nope.*Everything, Feed"):
        look("both", change_stream="Nope")
    with pytest.raises(ConfigError, match="NOT_FOUND"):
        look("absent")
    with pytest.raises(UnreachableError):
        look("both", spanner_emulator_host="127.0.0.1:1")


@pytest.mark.rule("datastream-objects", "datastream-discover")
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("form", ["avro", "jsonl", "jsonl.gz"])
def test_objects_of_files(tmp_path, source, form):
    rng = random.Random(3)
    changes, events_of = history(source, rng, 30), backfill(source, rng, 5)
    files = write_stream(tmp_path, source, delivered(changes, events_of, rng), form=form)
    seen = []
    found = discover_files(
        str(tmp_path), files_max=0, progress=lambda what, done: seen.append(done)
    )
    (only,) = found.objects
    assert found.kind == source
    assert only.key == ("id",)
    assert only.files_read == len(files) == seen[-1]
    assert [one.name for one in only.fields] == ["id", "note", "at", "price"]
    assert (len(found.notes) == 2) == (form != "avro")
    json.loads(as_json(found))


def test_only_the_newest_files_are_opened(tmp_path):
    rng = random.Random(3)
    files = write_stream(tmp_path, "mysql", history("mysql", rng, 30))
    files[0].write_bytes(b"damaged")
    found = discover_files(str(tmp_path), files_max=2)
    assert found.objects[0].files_read == 2


def test_two_sources_in_one_location(tmp_path):
    for source in ("mysql", "postgresql"):
        write_stream(tmp_path, source, history(source, random.Random(3), 3))
    with pytest.raises(MixedSources, match=r"postgresql and of mysql|mysql and of postgresql"):
        discover_files(str(tmp_path), files_max=20)


def test_one_file(tmp_path):
    (path,) = write_stream(tmp_path, "mysql", history("mysql", random.Random(3), 3))
    copy = tmp_path / "copy.avro.gz"
    copy.write_bytes(gzip.compress(path.read_bytes()))
    assert discover_files(str(copy), files_max=1).objects[0].name == "shop.orders"

"""What sinks that merge have in common, over tables that only note what is asked of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.topics import Topic
from tidegate.spark_consumer.sinks.delta.merging_sink import TableMergingSink
from tidegate.spark_consumer.sinks.delta.mirror_scope import MirrorScope

COLUMNS = {"id": "INT64", "a": "INT64"}


class Tables:
    """Tables in memory: the releases of each, every one a version of the release's number."""

    def __init__(self):
        self.releases = {}
        self.opened = None
        self.prepared = []

    def open(self, spark, *, query_id, release_max):
        self.opened = (spark, query_id, release_max)

    def path(self, table):
        return f"merged/{table}"

    def log(self, _spark, table):
        held = self.releases.get(table, [])

        def find(release):
            return max((one for one in held if one <= release), default=None)

        return SimpleNamespace(exists=bool(held), find_version=find, version_at=find)

    def columns(self, _spark, _table):
        return ()

    def prepare(self, _spark, table, *, schema, commit):
        self.prepared.append((table, schema, commit.release))
        self.releases.setdefault(table, [commit.release])


class Noting(TableMergingSink):
    """Notes what it merges, and adds it to the tables."""

    name = "noting"

    def __init__(self):
        tables, scope = Tables(), MirrorScope((), of="noting")
        super().__init__("spark", "/out", tables=tables, incomplete=Tables(), scope=scope)
        self.merged = []

    def _schema(self, one):
        return one.schemas.table

    def _merge_changed(self, tables, *, commit):
        self.merged.append((sorted(tables), commit))
        for one in tables.values():
            self._tables.releases[one.schemas.table].append(commit.release)


@pytest.fixture
def sink():
    return Noting()


def release(number, **rows):
    tables = {
        f"bank.{name}": SimpleNamespace(
            spark="spark", rows=count, schemas=Topic(name, {1: COLUMNS}, ["id"]).topic_schemas()
        )
        for name, count in rows.items()
    }
    return SimpleNamespace(number=number, query_id="q", through_us=number * 10, tables=tables)


def test_tables_with_changes_are_merged_and_every_table_has_a_version(sink):
    found = sink.write(release(3, t=2, u=0))
    assert [(topics, commit.release) for topics, commit in sink.merged] == [(["bank.t"], 3)]
    (_, commit), *_ = sink.merged
    assert (commit.query_id, commit.sink, commit.through_us) == ("q", "noting", 30)
    # A table that is not there is made, a quiet one that is there is left alone.
    assert sink._tables.prepared == [("t", "t", 3), ("u", "u", 3)]
    assert {name: (one.path, one.version) for name, one in found.items()} == {
        "t": ("merged/t", 3),
        "u": ("merged/u", 3),
    }
    later = sink.write(release(5, t=1, u=0))
    assert sink._tables.prepared[2:] == [("t", "t", 5)]
    assert {name: one.version for name, one in later.items()} == {"t": 5, "u": 3}


def test_a_release_without_changes_merges_nothing(sink):
    assert sink.write(release(1)) == {}
    assert [one.version for one in sink.write(release(2, t=0)).values()] == [2]
    assert sink.merged == []


def test_versions_are_of_the_tables_that_were_there_by_then(sink):
    first = release(4, t=1)
    sink.write(first)
    schemas = [one.schemas for one in first.tables.values()]
    assert {name: one.version for name, one in sink.versions(7, schemas).items()} == {"t": 4}
    assert sink.versions(3, schemas) == {}


def test_tables_and_side_tables_are_checked_at_the_start(sink):
    sink.open(query_id="q", release_max=8)
    assert sink._tables.opened == sink._incomplete.opened == ("spark", "q", 8)


def test_several_releases_are_written_as_the_changelog_returns_them(sink, monkeypatch):
    asked = []

    def several(merge):
        asked.append(merge)
        return release(9, t=3)

    monkeypatch.setattr(sink._changelog, "release", several)
    assert sink.merge("merge")["t"].version == 9
    assert asked == ["merge"]
    assert [commit.release for _, commit in sink.merged] == [9]

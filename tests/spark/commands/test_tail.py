"""`tail` over real changelogs: order over tables, what is shown of a change, and its ends."""

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.commands import tail as tail_module
from tidegate.spark_consumer.commands.tail import as_json, as_text, tail
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.manifest import drop_manifests
from tidegate.spark_consumer.sinks.release_writer import write_release

pytestmark = pytest.mark.spark

A = {2: {"id": "INT64", "a": "STRING", "n": "NUMERIC"}}
B = {4: {"id": "INT64", "at": "TIMESTAMP", "day": "DATE", "raw": "BYTES(MAX)", "x": "FLOAT64"}}
AT = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Lake:
    """An output with two tables, to which releases are written by Spark or without it."""

    def __init__(self, kit, *, small):
        self.kit, self.small, self.path = kit, small, kit.output
        self.topics = (
            kit.Topic("accounts", A, ["id"], key_id=1),
            kit.Topic("items", B, ["id"], key_id=3),
        )
        direct = DirectWay(DirectPlace(kit.output)) if small else None
        self.sink = changelog_sink(kit.spark, kit.output, direct=direct)
        self.sink.open(query_id="query-1", release_max=-1)
        self.files = Storage(kit.spark, kit.output)
        self.files.take()
        self.number = 0

    def publish(self):
        accounts, items = self.topics
        us = self.number * 1_000_000
        row = {"id": 5, "at": AT, "day": date(2026, 1, 2), "raw": b"\x01", "x": float("nan")}
        changes = [
            (items, self.kit.Change("INSERT", {"id": 5}, row, us=us + 1)),
            (accounts, self.kit.Change("DELETE", {"id": 1}, None, us=us + 3)),
            (accounts, self.kit.Change(
                "UPDATE", {"id": 1}, {"n": Decimal("2.50")}, {"n": None}, us=us + 2, every=False
            )),
        ]  # fmt: skip
        release = self.kit.release(self.number, changes, topics=self.topics, small=self.small)
        list(write_release(release, sinks=[self.sink], output=self.files))
        self.number += 1


@pytest.mark.parametrize("small", [False, True])
def test_changes_come_in_commit_order_over_all_tables_with_nothing_rounded(kit, small):
    lake = Lake(kit, small=small)
    lake.publish()
    found = list(tail(lake.path, releases=1, follow=False))
    assert [(one["ordinal"], one["table"], one["mod_type"]) for one in found] == [
        (0, "items", "INSERT"), (1, "accounts", "UPDATE"), (2, "accounts", "DELETE"),
    ]  # fmt: skip
    insert, update, delete = (json.loads(as_json(one)) for one in found)
    assert insert["new_values"] == {
        "id": 5, "at": "2026-01-01T12:00:00.000000Z", "day": "2026-01-02", "raw": "AQ==",
        "x": "nan",
    }  # fmt: skip
    assert update["new_values"] == {"id": 1, "n": "2.500000000"}
    assert update["old_values"] == {"id": 1, "n": None}
    assert delete["new_values"] is None
    assert (update["commit_timestamp"], update["release"]) == ("1970-01-01T00:00:00.000002Z", 0)
    assert as_text(found[1]) == (
        '1970-01-01T00:00:00.000002Z  accounts  UPDATE  {"id": 1}  {"n": "2.500000000"}'
    )
    assert as_text(found[2]) == '1970-01-01T00:00:00.000003Z  accounts  DELETE  {"id": 1}'


def test_it_begins_with_what_is_asked_for_and_follows(kit):
    lake = Lake(kit, small=True)
    for _ in range(3):
        lake.publish()
    for releases, first in ((0, 3), (1, 2), (2, 1), (99, 0)):
        lines = tail(lake.path, releases=releases, follow=False)
        assert sorted({line["release"] for line in lines}) == list(range(first, 3))
    lines = tail(lake.path, tables=["items"], releases=99, sleep=lambda _s: lake.publish())
    numbers = [next(lines)["release"] for _ in range(5)]
    assert numbers == [0, 1, 2, 3, 4]


def test_releases_whose_manifests_were_dropped_are_named(kit):
    lake = Lake(kit, small=True)
    lake.publish()
    lines = []

    def later(_seconds):
        for _ in range(3):
            lake.publish()
        drop_manifests(lake.files, before=3)

    found = tail(lake.path, tell=lines.append, sleep=later)
    assert next(found)["release"] == 3
    assert lines == ["the manifests of releases 1 to 2 are no longer kept"]


def test_a_release_that_is_too_large_is_left_out_by_its_number(kit, monkeypatch):
    lake = Lake(kit, small=True)
    lake.publish()
    monkeypatch.setattr(tail_module, "_BYTES_MAX", 1)
    lines = []
    assert list(tail(lake.path, releases=1, follow=False, tell=lines.append)) == []
    assert lines == ["release 0 with 3 changes is left out: only Spark can read it"]


def test_what_cannot_be_followed_is_refused_by_name(kit, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="nothing has been released"):
        next(tail(str(tmp_path / "no")))
    with pytest.raises(ConfigError, match="on this machine only"):
        next(tail("s3a://lake/out"))
    lake = Lake(kit, small=True)
    lake.publish()
    with pytest.raises(ConfigError, match=r"no such table.*Known tables: accounts, items"):
        next(tail(lake.path, tables=["account"]))
    monkeypatch.setattr(tail_module, "is_installed", lambda name: name != "pyarrow")
    with pytest.raises(ConfigError, match=r"needs pyarrow.*tidegate\[local\]"):
        next(tail(lake.path))

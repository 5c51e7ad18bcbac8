"""Reading every table as it was at one moment."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.tidy.printed_commands import blocks
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.as_of import TablesAsOf, as_of
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.manifest import Manifest, drop_manifests, write_manifest

pytestmark = pytest.mark.spark


class Output:
    def __init__(self, folder):
        self._folder = folder

    def write_json(self, name, content):
        path = Path(self._folder, name)
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(content))


def publish(kit, number, changes, *, topics, sink):
    """Write a release to the mirrors, and its manifest."""
    release = kit.release(number, changes, topics=topics)
    tables = {table: {"mirror": version} for table, version in sink.write(release).items()}
    bounds = (release.after_us, release.through_us)
    write_manifest(Output(kit.output), Manifest(number, "query-1", number, *bounds, 2, tables))


@pytest.mark.rule("sink-mirror")
@pytest.mark.slow
def test_as_of_gives_every_table_at_the_same_release(kit):
    accounts = kit.Topic("accounts", {1: {"id": "INT64", "balance": "INT64"}}, ["id"])
    ledger = kit.Topic("ledger", {2: {"id": "INT64", "amount": "INT64"}}, ["id"], key_id=101)
    sink = DeltaMirrorSink(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=-1)
    for number in range(3):
        mod = "INSERT" if number == 0 else "UPDATE"
        change = kit.Change(mod, {"id": 1}, {"balance": number}, us=1)
        changes = [(accounts, change)]
        if number != 1:
            changes.append((ledger, kit.Change("INSERT", {"id": number}, {"amount": 1}, us=2)))
        publish(kit, number, changes, topics=[accounts, ledger], sink=sink)

    def seen(watermark_us):
        tables = as_of(kit.spark, kit.output, watermark_us)
        assert set(tables) == {"accounts", "ledger"}
        (account,) = tables["accounts"].collect()
        return account["balance"], sorted(row["id"] for row in tables["ledger"].collect())

    assert seen(1_000_000) == seen(1_999_999) == (0, [0])
    assert seen(2_000_000) == (1, [0])
    assert seen(10**15) == (2, [0, 2])
    assert seen(datetime(1970, 1, 1, 0, 0, 2, 999_999, tzinfo=UTC)) == (1, [0])
    assert seen(datetime(1970, 1, 1, 2, 0, 2, tzinfo=timezone(timedelta(hours=2)))) == (1, [0])
    assert seen("1970-01-01T00:00:01.999999Z") == seen("1970-01-01T02:00:01.5+02:00") == (0, [0])
    assert seen("1970-01-01T00:00:02.000000999Z") == seen("1970-01-01 00:00:02+00") == (1, [0])
    with pytest.raises(ConfigError, match="no release"):
        as_of(kit.spark, kit.output, 999_999)
    with pytest.raises(ConfigError, match=r"no time zone.*1970-01-01T00:00:02"):
        as_of(kit.spark, kit.output, datetime(1970, 1, 1, 0, 0, 2))  # noqa: DTZ001 - under test


def test_a_table_is_found_by_its_name_or_the_names_are_listed(kit):
    tables = TablesAsOf({"ledger": "frame 1", "accounts": "frame 2"})

    assert tables == {"ledger": "frame 1", "accounts": "frame 2"}
    assert tables.table("accounts") == tables["accounts"] == "frame 2"
    with pytest.raises(ConfigError, match=r"'account'.*Known tables: accounts, ledger"):
        tables.table("account")
    with pytest.raises(ConfigError, match="Known tables: none"):
        TablesAsOf().table("accounts")


@pytest.mark.parametrize(
    ("time", "text"),
    [
        ("yesterday", r"not a time in the form of ISO 8601"),
        ("2026-11-22T10:00:00", r"no time zone.*2026-11-22T10:00:00"),
        ("2026-11-22", r"no time zone"),
    ],
)
def test_a_text_that_names_no_moment_is_refused_with_one_that_does(kit, time, text):
    with pytest.raises(ConfigError, match=text) as caught:
        as_of(kit.spark, kit.output, time)
    assert "2026-11-22T10:00:00Z" in caught.value.hint


def test_the_example_of_the_readme_runs(kit):
    (example,) = [
        one for one in blocks("python") if "as_of(" in one.content and one.page == "README.md"
    ]
    accounts = kit.Topic("accounts", {1: {"AccountId": "INT64", "b": "INT64"}}, ["AccountId"])
    ledger = kit.Topic("ledger", {2: {"AccountId": "INT64"}}, ["AccountId"], key_id=101)
    sink = DeltaMirrorSink(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=-1)
    changes = [
        (accounts, kit.Change("INSERT", {"AccountId": 7}, {"b": 3}, us=1)),
        (ledger, kit.Change("INSERT", {"AccountId": 7}, {}, us=1)),
    ]
    publish(kit, 0, changes, topics=[accounts, ledger], sink=sink)
    *program, last = example.content.replace("s3a://lake/orders", kit.output).strip().splitlines()
    names = {"spark": kit.spark}

    exec("\n".join([*program, f"joined = {last}"]), names)

    assert [row.asDict() for row in names["joined"].collect()] == [{"AccountId": 7, "b": 3}]


def test_a_time_whose_manifests_are_gone_is_refused_with_the_oldest_that_is_kept(kit):
    files = Storage(kit.spark, kit.output)
    files.take()
    for number in range(3):
        manifest = Manifest(number, "q", number, number * 10, number * 10 + 10, 0, {})
        write_manifest(files, manifest)
    drop_manifests(files, before=1)
    assert as_of(kit.spark, kit.output, 20) == {}
    with pytest.raises(ConfigError, match=r"no longer kept.*kept_from_us=20.*releases_kept"):
        as_of(kit.spark, kit.output, 19)

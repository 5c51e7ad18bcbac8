"""From a folder, or a schema of Spark's catalog, to the tables of an output as of a time."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from uuid import uuid4

import pytest

from tests.tidy.printed_commands import blocks
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.as_of import TablesAsOf, as_of
from tidegate.spark_consumer.sinks.delta.catalog import (
    CatalogNames,
    named,
    output_of,
    plain_location,
)
from tidegate.spark_consumer.sinks.delta.direct.place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.kinds import changelog_sink
from tidegate.spark_consumer.sinks.manifest import Manifest, drop_manifests, write_manifest
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.port import TableSink

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def schema(spark):
    """A name of its own; the schemas of it are removed afterwards."""
    found = f"bank_{uuid4().hex[:8]}"
    yield found
    for added in ("", "_changelog", "_history"):
        spark.sql(f"DROP SCHEMA IF EXISTS {found}{added} CASCADE")


@pytest.fixture
def accounts(kit):
    return kit.Topic("accounts", {1: {"id": "INT64", "balance": "INT64"}}, ["id"])


def opened(kit, schema=None):
    """Changelog and mirror of an output, which perhaps have names in a schema."""
    sinks = [
        make(kit.spark, kit.output, direct=DirectWay(DirectPlace(kit.output)))
        for make in (changelog_sink, DeltaMirrorSink)
    ]
    if schema:
        names = CatalogNames(kit.spark, schema)
        files = Storage(kit.spark, kit.output)
        sinks = [named(sink, names, output=files) for sink in sinks]
    for sink in sinks:
        sink.open(query_id="query-1", release_max=0)
    return sinks


def publish(kit, number, changes, *, topics, sinks):
    """Write a release to the sinks, and its manifest."""
    release = kit.release(number, changes, topics=topics, small=True)
    tables = {}
    for sink in sinks:
        for table, version in sink.write(release).items():
            tables.setdefault(table, {})[sink.name] = version
    bounds = (release.after_us, release.through_us)
    manifest = Manifest(number, "query-1", number, *bounds, release.rows, tables)
    write_manifest(kit, manifest)


def insert(kit, topic, key, **new):
    return topic, kit.Change("INSERT", {"id": key}, new, us=1)


# ---------------------------------------------------------------- names in a catalog


def test_tables_are_found_by_name_and_by_schema(kit, schema, accounts):
    # A table of a named schema of Spanner's.
    orders = kit.Topic("sales.orders", {2: {"id": "INT64"}}, ["id"], key_id=101)
    changes = [insert(kit, accounts, 7, balance=3), insert(kit, orders, 9)]
    publish(kit, 0, changes, topics=[accounts, orders], sinks=opened(kit, schema))

    def rows(name):
        return [tuple(row) for row in kit.spark.table(name).collect()]

    assert rows(f"{schema}.accounts") == [(7, 3)]
    assert rows(f"{schema}.sales__orders") == [(9,)]
    assert kit.spark.table(f"{schema}_changelog.accounts").count() == 1
    assert output_of(kit.spark, schema) == f"file:{kit.output}"
    assert output_of(kit.spark, f"spark_catalog.{schema}") == f"file:{kit.output}"
    tables = as_of(kit.spark, schema, 10**12)
    assert [row["balance"] for row in tables.table("accounts").collect()] == [3]

    # A name is no version of a table, and what comes later is seen under it.
    def commits():
        return sorted(Path(kit.output).glob("*/accounts/_delta_log/*.json"))

    before, sinks = commits(), opened(kit, schema)
    assert commits() == before
    update = kit.Change("UPDATE", {"id": 7}, {"balance": 5}, us=1_000_001)
    publish(kit, 1, [(accounts, update)], topics=[accounts], sinks=sinks)
    assert rows(f"{schema}.accounts") == [(7, 5)]


def test_tables_that_have_names_are_maintained_as_others_are(kit, schema, accounts):
    sinks = opened(kit, schema)
    publish(kit, 0, [insert(kit, accounts, 7, balance=3)], topics=[accounts], sinks=sinks)
    assert all(isinstance(sink, TableSink) for sink in sinks)
    heads = [sink.heads() for sink in sinks]
    assert [{"changelog/accounts", "mirror/accounts"} & {*head} for head in heads] == [
        {"changelog/accounts"},
        {"mirror/accounts"},
    ]


def test_a_name_is_made_again_where_it_is_missing_and_never_replaced(kit, schema, accounts):
    # A table that comes later is refused with the release that brings it.
    sinks, changes = opened(kit, schema), [insert(kit, accounts, 7, balance=3)]
    kit.spark.sql(f"CREATE TABLE {schema}.accounts (x INT) USING delta")
    with pytest.raises(ConfigError, match="the name is taken"):
        publish(kit, 0, changes, topics=[accounts], sinks=sinks)
    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    publish(kit, 0, changes, topics=[accounts], sinks=sinks)
    assert [tuple(row) for row in kit.spark.table(f"{schema}.accounts").collect()] == [(7, 3)]
    # As after a kill between table and name, or a catalog that ended with its session.
    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    opened(kit, schema)
    assert kit.spark.table(f"{schema}.accounts").count() == 1

    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    elsewhere = f"{kit.output}-other"
    kit.spark.sql(f"CREATE TABLE {schema}.accounts (x INT) USING delta LOCATION '{elsewhere}'")
    with pytest.raises(ConfigError, match=r"the name is taken.*accounts.*-other") as caught:
        opened(kit, schema)
    assert "choose another schema" in caught.value.hint
    assert kit.spark.table(f"{schema}.accounts").columns == ["x"]

    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    kit.spark.sql(f"CREATE VIEW {schema}.accounts AS SELECT 1 AS x")
    with pytest.raises(ConfigError, match=r"the name is taken.*no location"):
        opened(kit, schema)


def test_a_table_that_does_not_exist_yet_gets_no_name(spark, schema, tmp_path):
    names = CatalogNames(spark, schema)
    names.create_schema("mirror")
    names.create_schema("mirror")

    names.register("mirror", "accounts", address=f"file:{tmp_path}/mirror/accounts")

    assert spark.sql(f"SHOW TABLES IN {schema}").collect() == []


def test_a_catalog_that_the_session_lacks_is_refused(spark):
    with pytest.raises(ConfigError, match=r"schema cannot be created.*schema='lake.bank'") as found:
        CatalogNames(spark, "lake.bank").create_schema("mirror")
    assert "catalog that the session has" in found.value.hint


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("file:/lake/mirror/a", "/lake/mirror/a"),
        ("file:///lake/mirror/a/", "file:/lake/mirror/a"),
        ("file:/a%20lake/mirror/a", "file:/a lake/mirror/a"),
        ("s3a://lake/mirror/a", "s3a://lake/mirror/a/"),
    ],
)
def test_one_place_in_several_spellings(one, other):
    assert plain_location(one) == plain_location(other)
    assert plain_location(one) != plain_location(f"{other.rstrip('/')}b")


@pytest.mark.parametrize("place", ["/lake", "s3a://lake/bank", "lake", "nothing.here", "."])
def test_what_is_no_schema_with_tables_is_a_folder(spark, place):
    assert output_of(spark, place) == place


def test_a_schema_that_is_not_one_output_is_refused(spark, schema, tmp_path, monkeypatch):
    spark.sql(f"CREATE SCHEMA {schema}")
    for name in ("one", "two"):
        where = f"{tmp_path}/{name}/mirror/{name}"
        spark.sql(f"CREATE TABLE {schema}.{name} (x INT) USING delta LOCATION '{where}'")
    with pytest.raises(ConfigError, match=r"several outputs.*/one.*/two"):
        output_of(spark, schema)

    spark.sql(f"DROP TABLE {schema}.two")
    assert output_of(spark, schema) == f"file:{tmp_path}/one"
    monkeypatch.setattr(Storage, "names", lambda *_: ["000000000000.json"])
    with pytest.raises(ConfigError, match=r"a schema and of a folder.*\./"):
        output_of(spark, schema)


# ---------------------------------------------------------------- tables as of a time


@pytest.mark.rule("sink-mirror")
def test_as_of_gives_every_table_at_the_same_release(kit, accounts):
    ledger = kit.Topic("ledger", {2: {"id": "INT64", "amount": "INT64"}}, ["id"], key_id=101)
    sinks = opened(kit)[1:]
    for number in range(3):
        mod = "INSERT" if number == 0 else "UPDATE"
        change = kit.Change(mod, {"id": 1}, {"balance": number}, us=1)
        changes = [(accounts, change)]
        if number != 1:
            changes.append((ledger, kit.Change("INSERT", {"id": number}, {"amount": 1}, us=2)))
        publish(kit, number, changes, topics=[accounts, ledger], sinks=sinks)

    def seen(watermark_us):
        tables = as_of(kit.spark, kit.output, watermark_us)
        assert set(tables) == {"accounts", "ledger"}
        (account,) = tables["accounts"].collect()
        return account["balance"], sorted(row["id"] for row in tables["ledger"].collect())

    assert seen(1_999_999) == seen("1970-01-01T02:00:01.5+02:00") == (0, [0])
    assert seen(2_000_000) == seen("1970-01-01T00:00:02.000000999Z") == (1, [0])
    assert seen(datetime(1970, 1, 1, 2, 0, 2, tzinfo=timezone(timedelta(hours=2)))) == (1, [0])
    assert seen(10**15) == (2, [0, 2])
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
        block
        for block in blocks("python")
        if "as_of(" in block.content and block.page == "README.md"
    ]
    accounts = kit.Topic("accounts", {1: {"AccountId": "INT64", "b": "INT64"}}, ["AccountId"])
    ledger = kit.Topic("ledger", {2: {"AccountId": "INT64"}}, ["AccountId"], key_id=101)
    sinks = opened(kit)[1:]
    changes = [
        (accounts, kit.Change("INSERT", {"AccountId": 7}, {"b": 3}, us=1)),
        (ledger, kit.Change("INSERT", {"AccountId": 7}, {}, us=1)),
    ]
    publish(kit, 0, changes, topics=[accounts, ledger], sinks=sinks)
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

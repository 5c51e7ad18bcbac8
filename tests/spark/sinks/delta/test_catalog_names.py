"""Names of tables in Spark's own catalog, and the way back from a schema to the output."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.as_of import as_of
from tidegate.spark_consumer.sinks.delta.catalog_names import CatalogNames, plain_location
from tidegate.spark_consumer.sinks.delta.catalog_place import output_of
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.named_sink import named
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

pytestmark = pytest.mark.spark


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


@pytest.fixture
def orders(kit):
    """A table of a named schema of Spanner's."""
    return kit.Topic("sales.orders", {2: {"id": "INT64"}}, ["id"], key_id=101)


def sinks(kit, schema, output=None):
    """Changelog and mirror of an output, opened, whose tables get names."""
    folder = output or kit.output
    files, names = Storage(kit.spark, folder), CatalogNames(kit.spark, schema)
    found = [
        named(make(kit.spark, folder), names, output=files)
        for make in (DeltaChangelogSink, DeltaMirrorSink)
    ]
    for sink in found:
        sink.open(query_id="query-1", release_max=0)
    return found


def publish(kit, opened, changes, topics, output=None):
    release = kit.release(0, changes, topics=topics)
    tables = {}
    for sink in opened:
        for table, version in sink.write(release).items():
            tables.setdefault(table, {})[sink.name] = version
    manifest = Manifest(0, "query-1", 0, 0, release.through_us, release.rows, tables)
    folder = Path(output or kit.output, "_releases")
    folder.mkdir(exist_ok=True)

    class Files:
        def write_json(self, name, content):
            Path(output or kit.output, name).write_text(json.dumps(content))

    write_manifest(Files(), manifest)
    return release


def commits(kit, path):
    return len(list(Path(kit.output, path, "_delta_log").glob("*.json")))


@pytest.mark.slow
def test_tables_are_found_by_name_and_by_schema(kit, schema, accounts, orders):
    changes = [
        (accounts, kit.Change("INSERT", {"id": 7}, {"balance": 3}, us=1)),
        (orders, kit.Change("INSERT", {"id": 9}, {}, us=1)),
    ]
    publish(kit, sinks(kit, schema), changes, [accounts, orders])

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
    before = [commits(kit, f"{one}/accounts") for one in ("changelog", "mirror")]
    opened = sinks(kit, schema)
    assert [commits(kit, f"{one}/accounts") for one in ("changelog", "mirror")] == before
    later = kit.release(
        1, [(accounts, kit.Change("UPDATE", {"id": 7}, {"balance": 5}, us=1_000_001))],
        topics=[accounts],
    )  # fmt: skip
    for sink in opened:
        sink.write(later)
    assert rows(f"{schema}.accounts") == [(7, 5)]


@pytest.mark.slow
def test_a_name_is_made_again_where_it_is_missing_and_never_replaced(kit, schema, accounts):
    changes = [(accounts, kit.Change("INSERT", {"id": 7}, {"balance": 3}, us=1))]
    publish(kit, sinks(kit, schema), changes, [accounts])
    # As after a kill between table and name, or a catalog that ended with its session.
    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    sinks(kit, schema)
    assert kit.spark.table(f"{schema}.accounts").count() == 1

    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    elsewhere = f"{kit.output}-other"
    kit.spark.sql(f"CREATE TABLE {schema}.accounts (x INT) USING delta LOCATION '{elsewhere}'")
    with pytest.raises(ConfigError, match=r"the name is taken.*accounts.*-other") as caught:
        sinks(kit, schema)
    assert "choose another schema" in caught.value.hint
    assert kit.spark.table(f"{schema}.accounts").columns == ["x"]

    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    kit.spark.sql(f"CREATE VIEW {schema}.accounts AS SELECT 1 AS x")
    with pytest.raises(ConfigError, match=r"the name is taken.*no location"):
        sinks(kit, schema)


@pytest.mark.slow
def test_a_table_that_comes_later_is_refused_with_the_release_that_brings_it(kit, schema, accounts):
    opened = sinks(kit, schema)
    kit.spark.sql(f"CREATE TABLE {schema}.accounts (x INT) USING delta")
    changes = [(accounts, kit.Change("INSERT", {"id": 7}, {"balance": 3}, us=1))]

    with pytest.raises(ConfigError, match="the name is taken"):
        publish(kit, opened, changes, [accounts])

    kit.spark.sql(f"DROP TABLE {schema}.accounts")
    publish(kit, opened, changes, [accounts])
    assert [tuple(row) for row in kit.spark.table(f"{schema}.accounts").collect()] == [(7, 3)]


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

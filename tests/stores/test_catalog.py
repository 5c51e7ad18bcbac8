"""Iceberg's sinks on a catalog of the session's own, with its warehouse in a store.

The catalog is Iceberg's JDBC one on SQLite: it keeps where each table's newest metadata is, and
commits by an update with a condition, as REST, Glue and Nessie do.
"""

from __future__ import annotations

import pytest

from tests.spark.sinks import test_contract as contract
from tests.spark.sinks.conftest import Lake
from tests.spark.sinks.sink_cases import SETTINGS, KeptSink, expected
from tests.stores.servers import CONNECTOR
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace
from tidegate.spark_consumer.spark.requirements import require_iceberg

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

NAMES = ("iceberg_changelog", "iceberg_mirror")
KILLS = [one for one in contract.KILLS if one.values[0] in NAMES]


class CatalogLake(Lake):
    """Tables that are known by their names alone."""

    def __init__(self, kit, catalog):
        super().__init__(kit)
        self.place = IcebergPlace.of(self.output, prefix="bank", catalog=catalog)

    def rows(self, kind, table, version=None):
        moment = "" if version is None else f" VERSION AS OF {version}"
        frame = self.kit.spark.sql(f"SELECT * FROM {self.place.identifier(kind, table)}{moment}")
        return [row.asDict(recursive=True) for row in frame.collect()]


@pytest.fixture
def kept(spark, store, tmp_path, request):
    """Return what makes a sink whose tables are in a catalog of this test."""
    contract.require_iceberg(spark)
    if store.scheme == "gs" and CONNECTOR.startswith("3."):
        pytest.skip("connector 3.1 calls a method of Hadoop that went with 3.4, when Iceberg reads")
    loader = spark._jvm.Thread.currentThread().getContextClassLoader()
    spark._jvm.java.lang.Class.forName("org.sqlite.JDBC", True, loader)
    catalog = f"own_{abs(hash(request.node.name))}"
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
        ".jdbc.schema-version": "V1",
        ".warehouse": f"{store.bucket()}/warehouse",
        ".cache-enabled": "false",
    }
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.catalog.{catalog}{name}", value)

    def make(name):
        require_iceberg(spark, catalog=catalog)
        found = KeptSink(name, spark, tmp_path)
        found.lake = CatalogLake(found.kit, catalog)
        found.settings = SETTINGS.model_copy(update={"iceberg_catalog": catalog})
        return found

    return make


@pytest.mark.parametrize("name", NAMES)
def test_each_change_is_there_once_and_at_its_versions(kept, name):
    sink_case = kept(name)
    sink = sink_case.open(small=False, release_max=-1)
    last = contract.LAST
    versions = [sink_case.write(sink, number, small=False) for number in range(last + 1)]
    assert sink_case.found() == expected(name)
    assert sink_case.write(sink, 1, small=False) == versions[1]
    restarted = sink_case.open(small=False, release_max=last)
    assert sink_case.write(restarted, last, small=False) == versions[last]
    for number in range(last):
        assert sink_case.found(versions[number]) == expected(name, number)
    for query_id, release_max in (("query-2", last), ("query-1", last - 1)):
        with pytest.raises(ConfigError, match=r"another (writer|query)|later release"):
            sink_case.open(small=False, query_id=query_id, release_max=release_max)


@pytest.mark.parametrize(("name", "small", "owner", "step", "call", "after"), KILLS)
def test_a_kill_at_a_step_is_made_good(kept, monkeypatch, *, name, small, owner, step, call, after):
    sink_case = kept(name)
    sink = sink_case.open(small=small, release_max=-1)
    sink_case.write(sink, 0, small=small)
    with monkeypatch.context() as patch:
        contract.killing(patch, owner, step, call=call, after=after)
        with pytest.raises(contract.Killed):
            sink_case.write(sink, 1, small=small)
    sink_case.write(sink_case.open(small=small), 1, small=small)
    assert sink_case.found() == expected(name, 1)

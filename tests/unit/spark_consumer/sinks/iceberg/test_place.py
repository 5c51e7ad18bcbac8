"""Where Iceberg tables are: the catalog of the output or one of the session's own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.iceberg.place import IcebergPlace


def session(**settings):
    conf = SimpleNamespace(get=settings.get, set=settings.__setitem__)
    return SimpleNamespace(conf=conf, settings=settings)


def test_without_a_catalog_the_tables_are_in_the_output():
    place = IcebergPlace.of("file:/lake/", prefix="bank-eu.v1")
    assert place.warehouse == "file:/lake/iceberg"
    assert place.identifier("mirror", "a.b") == f"`{place.catalog}`.`bank_eu_v1_mirror`.`a.b`"
    assert place.path("mirror", "accounts") == "iceberg/bank_eu_v1_mirror/accounts"


def test_two_outputs_of_a_session_have_two_catalogs():
    first, second, again = (
        IcebergPlace.of(output, prefix="bank") for output in ("/a", "/b", "/a/")
    )
    assert first.catalog != second.catalog
    assert first == again


def test_the_catalog_of_the_output_is_set_in_a_session_that_lacks_it():
    place, spark = IcebergPlace.of("/lake", prefix="bank"), session()
    place.register(spark)
    name = f"spark.sql.catalog.{place.catalog}"
    assert spark.settings == {
        name: "org.apache.iceberg.spark.SparkCatalog",
        f"{name}.type": "hadoop",
        f"{name}.warehouse": "/lake/iceberg",
        f"{name}.cache-enabled": "false",
    }


def test_a_catalog_of_the_session_is_left_as_it_is_and_named_in_manifests():
    place = IcebergPlace.of("s3a://lake/x", prefix="bank", catalog="glue", namespace="raw.bank")
    spark = session()
    place.register(spark)
    assert spark.settings == {}
    assert place.identifier("changelog", "t") == "`glue`.`raw`.`bank_changelog`.`t`"
    assert place.namespace_identifier("changelog") == "`glue`.`raw`.`bank_changelog`"
    assert place.path("changelog", "t") == "`glue`.`raw`.`bank_changelog`.`t`"


@pytest.mark.parametrize("scheme", ["s3a", "s3", "gs"])
def test_an_output_in_an_object_store_needs_a_catalog(scheme):
    with pytest.raises(ConfigError, match=r"needs a catalog.*iceberg_catalog"):
        IcebergPlace.of(f"{scheme}://lake/x", prefix="bank")

"""From a folder or a schema to the output; test_catalog_names.py has a schema of a real output."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.catalog_place import output_of

pytestmark = pytest.mark.spark


@pytest.fixture
def schema(spark):
    """A name of its own; the schema is removed afterwards."""
    found = f"bank_{uuid4().hex[:8]}"
    yield found
    spark.sql(f"DROP SCHEMA IF EXISTS {found} CASCADE")


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

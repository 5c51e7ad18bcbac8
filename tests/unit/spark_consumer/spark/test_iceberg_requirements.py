"""A session without Iceberg is refused by name, where an Iceberg sink is asked for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES
from tidegate.spark_consumer.spark.iceberg_requirements import require_iceberg


def session(*, has_jar=True, **settings):
    loads = lambda name: has_jar and name == "org.apache.iceberg.spark.SparkCatalog"  # noqa: E731
    utils = SimpleNamespace(Utils=SimpleNamespace(classIsLoadable=loads))
    spark = SimpleNamespace(spark=SimpleNamespace(util=utils))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=spark))
    return SimpleNamespace(
        sparkContext=SimpleNamespace(_jvm=jvm), conf=SimpleNamespace(get=settings.get)
    )


def test_a_session_with_the_jar_passes():
    require_iceberg(session())


def test_without_the_jar_the_error_names_the_package():
    with pytest.raises(ConfigError, match=r"lacks Iceberg") as caught:
        require_iceberg(session(has_jar=False))
    assert ICEBERG_PACKAGES in caught.value.hint


def test_a_catalog_that_is_set_must_be_the_sessions():
    require_iceberg(session(**{"spark.sql.catalog.lake": "x.Y"}), catalog="lake")
    with pytest.raises(ConfigError, match=r"no catalog of this name.*lake") as caught:
        require_iceberg(session(), catalog="lake")
    assert "spark.sql.catalog.lake=" in caught.value.hint

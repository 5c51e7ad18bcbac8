"""What the Iceberg sinks need of a session, checked only where one of them is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"


def require_iceberg(spark: SparkSession, *, catalog: str = "") -> None:
    """Raise ConfigError for a session without Iceberg, or without the catalog that is set."""
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable  # type: ignore[union-attr]  # noqa: SLF001 - no public call asks this
    if not loads(_CATALOG_CLASS):
        raise ConfigError(
            "the Spark session lacks Iceberg, which the sinks iceberg_… need",
            hint=(
                f"Stop it and start it with {ICEBERG_PACKAGES} among spark.jars.packages, or its "
                "jar among spark.jars; tidegate.session(iceberg=True) does it"
            ),
        )
    if catalog and not spark.conf.get(f"spark.sql.catalog.{catalog}", None):
        raise ConfigError(
            "iceberg_catalog: the session has no catalog of this name",
            hint=(
                f"Set spark.sql.catalog.{catalog}={_CATALOG_CLASS} and its type in the session, or "
                "leave iceberg_catalog empty for a Hadoop catalog in the output"
            ),
            iceberg_catalog=catalog,
        )

"""What the Iceberg sinks need of a session, checked only where one of them is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.program.spark_versions import SPARK_LINES, SparkLine, installed_line, line_of
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_RUNTIME
from tidegate.spark_consumer.spark.requirements import is_submitted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_CATALOG_CLASS = "org.apache.iceberg.spark.SparkCatalog"


def require_iceberg_package(*, packages: str, jars: str) -> None:
    """Raise ConfigError if Iceberg has no runtime for the installed Spark, and none is named.

    `packages` and `jars` are the settings of those names.
    """
    line = installed_line()
    is_named = bool(jars) or not packages or ICEBERG_RUNTIME in packages
    if not line.iceberg and not is_named and not is_submitted():
        raise _no_runtime(line)


def _no_runtime(line: SparkLine) -> ConfigError:
    others = [one.minor for one in SPARK_LINES if one.iceberg]
    return ConfigError(
        f"Iceberg has no runtime for Spark {line.minor} yet, which the sinks iceberg_… need",
        hint=f"Use Spark {' or '.join(others)}, or name a runtime of your own in packages or jars",
        spark=line.minor,
    )


def require_iceberg(spark: SparkSession, *, catalog: str = "") -> None:
    """Raise ConfigError for a session without Iceberg, or without the catalog that is set."""
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable  # type: ignore[union-attr]  # noqa: SLF001 - no public call asks this
    if not loads(_CATALOG_CLASS):
        line = line_of(spark.version)
        if not line.iceberg:
            raise _no_runtime(line)
        raise ConfigError(
            "the Spark session lacks Iceberg, which the sinks iceberg_… need",
            hint=(
                f"Stop it and start it with {line.iceberg_packages} among spark.jars.packages, or "
                "its jar among spark.jars; tidegate.session(iceberg=True) does it"
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

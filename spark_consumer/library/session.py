"""A Spark session on this machine that has all that the consumer needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import ICEBERG_PACKAGES, SPARK_PACKAGES
from tidegate.spark_consumer.spark.requirements import (
    is_submitted,
    require_iceberg,
    require_iceberg_package,
    require_session,
    require_spark,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def session(
    app_name: str = "tidegate",
    *,
    packages: str = SPARK_PACKAGES,
    jars: str = "",
    master: str = "local[*]",
    iceberg: bool = False,
    **settings: object,
) -> SparkSession:
    """Start a classic session on this machine, or return the running one.

    Spark fetches `packages` (Maven coordinates, comma-separated) into its cache at the first start;
    `jars` are used in place of them.  `settings` are Spark's own and replace the session's:
    `session(**{"spark.driver.memory": "4g"})`.  With `iceberg` it has the requirements of the
    Iceberg sinks: `ICEBERG_PACKAGES` in addition to the packages, or among the jars.  Under
    spark-submit, the submitter's master, packages and jars are kept.

    Raises ConfigError if pyspark, Delta's Python part or Java is missing, if Iceberg has no runtime
    for this Spark, and if a running session lacks something; UnreachableError if Spark does not
    start.
    """
    unknown = sorted(name for name in settings if not name.startswith("spark."))
    if unknown:
        raise ConfigError(
            f"session: {', '.join(unknown)}: not a setting of Spark",
            hint='Names of Spark\'s settings begin with "spark.", such as spark.driver.memory',
        )
    texts = {name: _text(value) for name, value in settings.items()}
    require_spark(jars=jars)
    from tidegate.spark_consumer.spark.session import (  # noqa: PLC0415 - pyspark, checked above
        local_session,
        submitted_session,
    )

    if iceberg:
        packages = ",".join(filter(None, (packages, ICEBERG_PACKAGES)))
        require_iceberg_package(packages=packages, jars=jars)
    if is_submitted():
        spark = submitted_session(app_name=app_name, settings=texts)
    else:
        spark = local_session(
            master=master, packages=packages, jars=jars, app_name=app_name, settings=texts
        )
    require_session(spark)
    if iceberg:
        require_iceberg(spark)
    return spark


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

"""What Spark needs, checked before it starts: otherwise it fails late, and in stack traces.

This module loads without pyspark, so that it can report that pyspark is missing.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate.program.extras import is_installed
from tidegate.program.java import require_java
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.config import SPARK_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_submitted", "require_data_sources", "require_spark"]

_DELTA_PYTHON = "delta-spark==4.4.0"
_DATA_SOURCES = {
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "kafka",
    "org.apache.spark.sql.avro.AvroDataToCatalyst": "avro",
    "io.delta.sql.DeltaSparkSessionExtension": "delta",
}


def is_submitted() -> bool:
    """Whether spark-submit started this process, and so decides where and how it runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_spark(*, jars: str) -> None:
    """Raise ConfigError for the first part that a session would miss; starts nothing.

    `jars` is the setting of that name.
    """
    if not is_installed("pyspark"):
        message = "pyspark is not installed"
        hint = (
            'Type: pip install "tidegate[local]"; '
            "or use the Python of a cluster's Spark, with spark-submit"
        )
        raise ConfigError(message, hint=hint)
    if not is_installed("delta"):
        message = "delta-spark, the Python part of Delta Lake, is not installed"
        # Without its dependencies, which would replace a cluster's pyspark.
        hint = f"Type: pip install --no-deps {_DELTA_PYTHON} importlib-metadata"
        raise ConfigError(message, hint=hint)
    if is_submitted():
        return
    require_java()
    missing = [
        jar for jar in jars.split(",") if jar and "://" not in jar and not Path(jar).is_file()
    ]
    if missing:
        message = "jars: file not found"
        raise ConfigError(message, hint="Name files that exist", jars=missing)


def require_data_sources(spark: SparkSession) -> None:
    """Raise ConfigError if the session was started without a data source that the gate uses."""
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable  # type: ignore[union-attr]  # noqa: SLF001 - no public call asks this
    missing = [name for driver, name in _DATA_SOURCES.items() if not loads(driver)]
    if missing:
        message = f"Spark has no data source for {', '.join(missing)}"
        raise ConfigError(message, hint=f"Start it with: --packages {SPARK_PACKAGES}")

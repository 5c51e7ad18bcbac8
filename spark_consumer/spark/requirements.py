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
from tidegate.spark_consumer.classic_session import require_classic
from tidegate.spark_consumer.config import SPARK_PACKAGES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DELTA_PYTHON = "delta-spark==4.4.0"
_DATA_SOURCES = {
    "org.apache.spark.sql.kafka010.KafkaSourceProvider": "kafka",
    "org.apache.spark.sql.avro.AvroDataToCatalyst": "avro",
    "io.delta.sql.DeltaSparkSessionExtension": "delta",
}
_DELTA_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
"""Those of Delta's settings without which Spark cannot use it; the others are about speed."""


def is_submitted() -> bool:
    """Whether spark-submit started this process, and so decides where and how it runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def require_spark(*, jars: str) -> None:
    """Raise ConfigError for the first part that a session would miss; starts nothing.

    `jars` is the setting of that name.
    """
    require_python_parts()
    if is_submitted():
        return
    require_java()
    missing = [
        jar for jar in jars.split(",") if jar and "://" not in jar and not Path(jar).is_file()
    ]
    if missing:
        raise ConfigError("jars: file not found", hint="Name files that exist", jars=missing)


def require_python_parts() -> None:
    """Raise ConfigError if pyspark or Delta's Python part is not installed."""
    if not is_installed("pyspark"):
        raise ConfigError(
            "pyspark is not installed",
            hint=(
                'Type: pip install "tidegate[local]"; '
                "or use the Python of a cluster's Spark, with spark-submit"
            ),
        )
    if not is_installed("delta"):
        message = "delta-spark, the Python part of Delta Lake, is not installed"
        # Without its dependencies, which would replace a cluster's pyspark.
        raise ConfigError(
            message, hint=f"Type: pip install --no-deps {_DELTA_PYTHON} importlib-metadata"
        )


def require_session(spark: SparkSession) -> None:
    """Raise ConfigError for a session that cannot run the gate; it names all that is to be set."""
    from tidegate.spark_consumer.sinks.delta.tables import (  # noqa: PLC0415 - pyspark is there
        DELTA_SESSION_SETTINGS,
    )

    require_classic(spark)
    loads = spark.sparkContext._jvm.org.apache.spark.util.Utils.classIsLoadable  # type: ignore[union-attr]  # noqa: SLF001 - no public call asks this
    sources = [name for driver, name in _DATA_SOURCES.items() if not loads(driver)]
    needed = {"spark.jars.packages": SPARK_PACKAGES} if sources else {}
    settings = {
        name: DELTA_SESSION_SETTINGS[name]
        for name in _DELTA_SETTINGS
        if DELTA_SESSION_SETTINGS[name] not in _entries(spark.conf.get(name, ""))
    }
    lacks = [f"a data source for {', '.join(sources)}"] if sources else []
    lacks += [f"Delta's {name}" for name in settings]
    if lacks:
        message = f"the Spark session lacks {'; '.join(lacks)}"
        values = " and ".join(f"{name}={value}" for name, value in {**needed, **settings}.items())
        raise ConfigError(
            message,
            hint=(
                f"Stop it and start it with {values}; spark-submit takes packages as --packages and"
                " the rest as --conf, and tidegate.session() sets all of it"
            ),
        )


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",")]

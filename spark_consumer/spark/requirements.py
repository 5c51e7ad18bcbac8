"""What Spark needs, checked before it starts: otherwise it fails late, and in stack traces.

This module loads without pyspark, so that it can report that pyspark is missing.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from tidegate.program.extras import is_installed
from tidegate.program.java import require_java
from tidegate.program.spark_versions import (
    DELTA_PYTHON,
    SUPPORTED,
    installed_version,
    is_newer,
    line_of,
    require_supported,
)
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.classic_session import require_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_DATA_SOURCES = ("kafka", "avro", "delta")
"""By the names that Spark looks them up by: a distribution may have classes of its own for them."""

_DELTA_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
"""Those of Delta's settings without which Spark cannot use it; the others are about speed."""

_CALLING = "An error occurred while calling"
_TRIAL = (
    "CREATE TABLE {} (id BIGINT) USING delta",
    "MERGE INTO {} t USING (SELECT 1L AS id WHERE false) s ON t.id = s.id WHEN MATCHED THEN DELETE",
)
"""What Delta must be able to do.  Only the driver reads and writes files for it."""


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
    """Raise ConfigError if pyspark or Delta's Python part is not installed, or is too old."""
    if not is_installed("pyspark"):
        raise ConfigError(
            "pyspark is not installed",
            hint=(
                'Type: pip install "tidegate[local]"; '
                "or use the Python of a cluster's Spark, with spark-submit"
            ),
        )
    if version := installed_version():
        require_supported(version)
    if not is_installed("delta"):
        message = "delta-spark, the Python part of Delta Lake, is not installed"
        # Without its dependencies, which would replace a cluster's pyspark.
        raise ConfigError(
            message, hint=f"Type: pip install --no-deps {DELTA_PYTHON} importlib-metadata"
        )


def require_session(spark: SparkSession) -> None:
    """Raise ConfigError for a session that cannot run the gate; it names all that is to be set.

    A Spark that is newer than the tested ones is a line in the log.
    """
    from tidegate.spark_consumer.sinks.delta.tables import (  # noqa: PLC0415 - pyspark is there
        DELTA_SESSION_SETTINGS,
    )

    require_classic(spark)
    require_supported(spark.version)
    if is_newer(spark.version):
        structlog.get_logger("tidegate.spark_consumer").warning(
            "Spark is newer than the tested versions",
            version=spark.version,
            tested=SUPPORTED,
            packages=line_of(spark.version).packages,
        )
    missing = [name for name in _DATA_SOURCES if not _has_source(spark, name)]
    needed = {"spark.jars.packages": line_of(spark.version).packages} if missing else {}
    settings = {
        name: DELTA_SESSION_SETTINGS[name]
        for name in _DELTA_SETTINGS
        if DELTA_SESSION_SETTINGS[name] not in _entries(spark.conf.get(name, ""))
    }
    cause = ""
    if settings and not missing:
        cause = _delta_fault(spark)
        settings = settings if cause else {}
    lacks = [f"a data source for {', '.join(missing)}"] if missing else []
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
            **({"cause": cause} if cause else {}),
        )


def _has_source(spark: SparkSession, name: str) -> bool:
    """Whether Spark knows a data source, whichever class it is."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # noqa: PLC0415 - it comes with pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - as above

    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001 - no public call asks this
    settings = spark._jsparkSession.sessionState().conf()  # noqa: SLF001 - as above
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(name, settings)
    except (Py4JError, PySparkException):
        return False
    return True


def _delta_fault(spark: SparkSession) -> str:
    """Return why Delta does not work in a session without its usual settings; empty if it does.

    A distribution with a Delta of its own has other settings, or none.
    """
    with tempfile.TemporaryDirectory(prefix="tidegate-delta-") as folder:
        table = f"delta.`file:{folder}/trial`"
        try:
            for statement in _TRIAL:
                spark.sql(statement.format(table))
        except Exception as error:  # noqa: BLE001 - whatever a distribution raises
            # py4j's first line names its own call only.
            lines = (line.lstrip(": ") for line in str(error).splitlines())
            causes = (line for line in lines if line and not line.startswith(_CALLING))
            return next(causes, type(error).__name__)
    return ""


def _entries(text: str | None) -> list[str]:
    return [entry.strip() for entry in (text or "").split(",")]

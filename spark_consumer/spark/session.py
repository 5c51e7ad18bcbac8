"""The Spark session of a run: one of our own, or the one that spark-submit has prepared.

Settings in a program override those of spark-submit, so a submitted session gets Delta's
settings and nothing else: no master, no addresses, no sizes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.config import LEFT_OUT_PACKAGES, ConsumerConfig
from tidegate.spark_consumer.sinks.delta.tables import DELTA_SESSION_SETTINGS
from tidegate.spark_consumer.spark.java_lines import held_back
from tidegate.spark_consumer.spark.requirements import is_submitted

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Fixed costs decide on one machine: few tasks.
    "spark.sql.shuffle.partitions": "2",
    # A MERGE of a small batch is 5 jobs without it and 11 with it, for plans that are good already.
    "spark.sql.adaptive.enabled": "false",
    # Each batch runs the plans of the one before; the cache of 100 compiled classes was too small
    # for those of two tables, so that every batch compiled them again.
    "spark.sql.codegen.cache.maxEntries": "5000",
    # What is kept is read once or twice, and most of it is bytes, which are not compressed anyway.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Standard error is for our own lines.
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}

_STREAMING = "org.apache.spark.sql.execution.streaming"
_FAILED_QUERIES_LOGS = (
    f"{_STREAMING}.MicroBatchExecution",
    f"{_STREAMING}.runtime.MicroBatchExecution",  # since Spark 4.1
)
"""Print the stack trace of a query that failed, an expected one too; the run reports the error."""


def session_of(config: ConsumerConfig) -> SparkSession:
    """Start the session that the settings ask for, or that spark-submit has prepared."""
    app_name = f"tidegate-{config.prefix}"
    if is_submitted():
        return submitted_session(app_name=app_name)
    log = structlog.get_logger("tidegate.spark_consumer")
    log.info("Spark starts", packages="" if config.jars else config.session_packages)
    return local_session(
        master=config.master,
        packages=config.session_packages,
        jars=config.jars,
        app_name=app_name,
        java_options=config.java_options,
    )


def submitted_session(*, app_name: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start the session that spark-submit has prepared, with what the sinks cannot do without.

    `settings` are the program's own.
    """
    builder = SparkSession.builder.appName(app_name)
    for name, value in {**DELTA_SESSION_SETTINGS, **(settings or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def local_session(
    *,
    master: str,
    packages: str,
    jars: str,
    app_name: str,
    java_options: str = "",
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Start a session on this machine, with `jars` if there are any, else with `packages`.

    `settings` are the program's own: they replace those that a local session has.

    Spark fetches packages by Apache Ivy, with this machine's settings for it, and keeps them in its
    cache.  Raises UnreachableError if Spark does not start, most often because a package is
    not available.
    """
    # Python workers would otherwise be whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    found = {**_SETTINGS, **DELTA_SESSION_SETTINGS}
    if jars:
        found["spark.jars"] = jars
    elif packages:
        found["spark.jars.packages"] = packages
        found["spark.jars.excludes"] = LEFT_OUT_PACKAGES
    if java_options:
        found["spark.driver.extraJavaOptions"] = java_options
    for name, value in {**found, **(settings or {})}.items():
        builder = builder.config(name, value)
    try:
        with held_back():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise UnreachableError(
            "Spark does not start; its own lines above say why",
            hint="If it cannot fetch packages, set jars to jar files of the same names",
            cause=error.getCondition(),
        ) from error
    for logger in _FAILED_QUERIES_LOGS:
        _silence(spark, logger)
    return spark


def _silence(spark: SparkSession, logger: str) -> None:
    """Keep what one of the JVM's loggers says out of standard error."""
    log4j: Any = spark.sparkContext._jvm.org.apache.logging.log4j  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no way of its own
    log4j.core.config.Configurator.setLevel(logger, log4j.Level.OFF)

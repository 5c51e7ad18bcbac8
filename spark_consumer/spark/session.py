"""The Spark session of a run: of our own on one machine, or the one that spark-submit prepared.

What is set in a program wins over what spark-submit was told, so a submitted session gets Delta's
settings and nothing else: no master, no addresses, no sizes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.spark.delta_tables import DELTA_SESSION_SETTINGS

__all__ = ["is_submitted", "local_session", "submitted_session"]

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    # Fixed costs decide on one machine: few tasks.
    "spark.sql.shuffle.partitions": "2",
    # A MERGE of a small batch is 5 jobs without it and 11 with it, for plans that are good already.
    "spark.sql.adaptive.enabled": "false",
    # Standard error is for our own lines.
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}


def is_submitted() -> bool:
    """Whether spark-submit started this process, and so decides where and how it runs."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def submitted_session(*, app_name: str) -> SparkSession:
    """Start the session that spark-submit has prepared, with what the sinks cannot do without."""
    builder = SparkSession.builder.appName(app_name)
    for name, value in DELTA_SESSION_SETTINGS.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def local_session(*, master: str, jars: str, app_name: str, java_options: str = "") -> SparkSession:
    """Start a session on this machine; raises ConfigError if a jar is not there."""
    missing = [
        jar for jar in jars.split(",") if jar and "://" not in jar and not Path(jar).is_file()
    ]
    if missing:
        message = "a jar that jars names is not there"
        raise ConfigError(message, jars=missing)
    # Python workers would otherwise be whatever `python3` is on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    settings = {**_SETTINGS, **DELTA_SESSION_SETTINGS}
    if jars:
        settings["spark.jars"] = jars
    if java_options:
        settings["spark.driver.extraJavaOptions"] = java_options
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()

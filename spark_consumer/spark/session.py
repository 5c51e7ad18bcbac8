"""A Spark session of our own, for a run without a cluster.

With spark-submit the session belongs to whoever submits; it then needs Delta's settings only.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.spark.delta_tables import DELTA_SESSION_SETTINGS

__all__ = ["local_session"]

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


def local_session(*, master: str, jars: str, app_name: str, java_options: str = "") -> SparkSession:
    """Start a session; raises ConfigError if a jar is not there."""
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

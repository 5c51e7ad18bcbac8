"""Reading the output: every table as it was at one moment, all at the same one.

Public.  Writes nothing and needs no checkpoint: the manifest and Delta's versions are enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.spark.manifest import newest_manifest
from tidegate.spark_consumer.spark.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["as_of"]


def as_of(spark: SparkSession, output: str, watermark_us: int) -> dict[str, DataFrame]:
    """Return each mirror, by table name, at the newest release at or before a commit time.

    `watermark_us` is microseconds since 1970.  The tables agree with each other: a transaction is
    in all of them or in none.  Raises ConfigError if no release ended so early.
    """
    files = Storage(spark, output)
    manifest = newest_manifest(files, watermark_us=watermark_us)
    if manifest is None:
        message = "no release ended at or before this time"
        hint = "Ask for a later time, or check the output's address"
        raise ConfigError(message, hint=hint, output=output, watermark_us=watermark_us)
    reader = spark.read.format("delta")
    return {
        table: reader.option("versionAsOf", sinks["mirror"].version).load(
            files.path(sinks["mirror"].path)
        )
        for table, sinks in manifest.tables.items()
        if "mirror" in sinks
    }

"""Reads the output: every mirror table as it was at one moment, the same for all of them.

Public.  It writes nothing and needs no checkpoint, only the manifests and Delta's versions.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.manifest import (
    first_manifest,
    newest_manifest,
    read_manifest,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["as_of"]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def as_of(spark: SparkSession, output: str, time: datetime | int) -> dict[str, DataFrame]:
    """Return each mirror, by table name, at its newest cut at or before a commit time.

    `time` is a datetime with a time zone, or microseconds since 1970.  The tables agree with each
    other: a transaction is in all of them or in none.  They stand at a release that ended at or
    before `time`, which may be an older one than the newest such release: the setting
    `mirror_interval_ms` says by how much.  Raises ConfigError for a datetime without a
    time zone, and if no release that is kept ended at or before `time`.
    """
    time_us = _microseconds(time)
    files = Storage(spark, output)
    manifest = newest_manifest(files, watermark_us=time_us)
    if manifest is None:
        raise _without_release(files, output=output, time_us=time_us)
    reader = spark.read.format("delta")
    return {
        table: reader.option("versionAsOf", sinks["mirror"].version).load(
            files.path(sinks["mirror"].path)
        )
        for table, sinks in manifest.tables.items()
        if "mirror" in sinks
    }


def _without_release(files: Storage, *, output: str, time_us: int) -> ConfigError:
    first = first_manifest(files)
    oldest = read_manifest(files, first) if first else None
    if oldest is not None:
        message = "the manifests of releases at this time are no longer kept"
        hint = "Use a later time; the setting releases_kept says how many are kept"
        return ConfigError(
            message, hint=hint, output=output, time_us=time_us, kept_from_us=oldest.through_us
        )
    message = "no release ended at or before this time"
    hint = "Use a later time, or check the output's address"
    return ConfigError(message, hint=hint, output=output, time_us=time_us)


def _microseconds(time: datetime | int) -> int:
    if isinstance(time, int):
        return time
    if time.tzinfo is None:
        message = "time: the datetime has no time zone"
        hint = "Use an aware one, for example datetime.now(UTC) or time.astimezone()"
        raise ConfigError(message, hint=hint, time=time.isoformat())
    return (time - _EPOCH) // timedelta(microseconds=1)

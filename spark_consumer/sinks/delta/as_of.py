"""Reads the output: every mirror table as it was at one moment, the same for all of them.

Public.  It writes nothing and needs no checkpoint, only the manifests and Delta's versions.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.classic_session import require_classic
from tidegate.spark_consumer.core.sink_names import ICEBERG_MIRROR, MIRROR
from tidegate.spark_consumer.errors import ReleaseVacuumed
from tidegate.spark_consumer.sinks.delta.catalog import output_of
from tidegate.spark_consumer.sinks.manifest import (
    first_manifest,
    kept_versions,
    newest_manifest,
    read_manifest,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.spark_consumer.sinks.manifest import Manifest

    DataFrames = dict[str, DataFrame]
else:
    DataFrames = dict


_SINKS = (MIRROR, ICEBERG_MIRROR)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WITH_ZONE = "with a time zone, such as 2026-11-22T10:00:00Z or datetime.now(UTC)"


class TablesAsOf(DataFrames):
    """A dict of the mirrors' frames by table name, all at the same moment."""

    def table(self, name: str) -> DataFrame:
        """Return one table; raises ConfigError, which names the tables, for an unknown name."""
        if name not in self:
            raise ConfigError(
                "the output has no mirror of this table at that time",
                hint=f"Known tables: {', '.join(sorted(self)) or 'none'}",
                table=name,
            )
        return self[name]


def as_of(
    spark: SparkSession,
    output: str | os.PathLike[str],
    time: datetime | int | str,
    *,
    sink: str = MIRROR,
) -> TablesAsOf:
    """Return each mirror, by table name, at its newest cut at or before a commit time.

    `output` is a folder, or the schema that a query registered the tables in (`catalog_schema`).
    `time` is a datetime with a time zone, the same as text (ISO 8601), or microseconds since 1970.
    The tables agree with each other: a transaction is in all of them or in none.  They are of a
    release that ended at or before `time`; it may be older than the newest such release, by as much
    as the setting `mirror_interval_ms` allows.  `sink` is `mirror`, or `iceberg_mirror` for the
    mirrors in Iceberg tables.  Raises ConfigError for a time without a time zone, for text that is
    not a time, and if no kept release ended at or before `time`; ReleaseVacuumed, a ConfigError, if
    a run has deleted files that the mirrors had then.
    """
    if sink not in _SINKS:
        raise ConfigError(
            "sink: it keeps no rows as they were at a time",
            hint=f"Use {' or '.join(_SINKS)}",
            sink=sink,
        )
    time_us = microseconds(time)
    require_classic(spark)
    address = output_of(spark, os.fspath(output))
    files = Storage(spark, address)
    manifest = newest_manifest(files, watermark_us=time_us)
    if manifest is None:
        raise _without_release(files, output=address, time_us=time_us)
    if sink == ICEBERG_MIRROR:
        return TablesAsOf(_of_iceberg(spark, files, manifest))
    versions = _versions(files, manifest, output=address, time_us=time_us)
    reader = spark.read.format("delta")
    return TablesAsOf(
        {
            table: reader.option("versionAsOf", version).load(files.path(path))
            for table, (path, version) in versions.items()
        }
    )


def _of_iceberg(spark: SparkSession, files: Storage, manifest: Manifest) -> dict[str, DataFrame]:
    frames = {}
    for table, sinks in manifest.tables.items():
        mirror = sinks.get(ICEBERG_MIRROR)
        if mirror is not None:
            reader = spark.read.format("iceberg").option("versionAsOf", mirror.version)
            # A table of a catalog of the session's own is there under its name, which is quoted.
            path = mirror.path if mirror.path.startswith("`") else files.path(mirror.path)
            frames[table] = reader.load(path)
    return frames


def _versions(
    files: Storage, manifest: Manifest, *, output: str, time_us: int
) -> dict[str, tuple[str, int]]:
    """Return path and version of each mirror at a release.

    Raises ReleaseVacuumed if a run has deleted files that a mirror had then.
    """
    kept, versions = kept_versions(files), {}
    for table, sinks in manifest.tables.items():
        mirror = sinks.get("mirror")
        if mirror is None:
            continue
        whole = kept.get(mirror.path)
        version = mirror.version if whole is None else whole.readable(mirror.version)
        if whole is not None and version is None:
            raise ReleaseVacuumed(
                "files of the mirrors at this time were deleted",
                hint=(
                    "Use a later time; the setting vacuum_retention_hours says how long mirrors "
                    "can be read as they were"
                ),
                output=output,
                time_us=time_us,
                release=manifest.release,
                table=table,
                version=mirror.version,
                kept_from_version=whole.same_since,
            )
        versions[table] = mirror.path, mirror.version if version is None else version
    return versions


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


def microseconds(time: datetime | int | str) -> int:
    """Return a time as `as_of` takes it in microseconds since 1970; raises ConfigError."""
    if isinstance(time, int):
        return time
    instant = _parsed(time) if isinstance(time, str) else time
    if instant.tzinfo is None:
        raise ConfigError(
            "time: there is no time zone", hint=f"Give one {_WITH_ZONE}", time=instant.isoformat()
        )
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _parsed(text: str) -> datetime:
    """Return a time; digits after the microseconds are cut off, as commit timestamps have none."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ConfigError(
            "time: not a time in the form of ISO 8601", hint=f"Give one {_WITH_ZONE}", time=text
        ) from error

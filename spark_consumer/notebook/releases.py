"""The releases of an output as a pandas frame, read from its manifests."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.program.extras import Extra
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import US_PER_MS, US_PER_SECOND
from tidegate.spark_consumer.checkpoint.json_files import JsonFiles, LocalFolder, local_path
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US
from tidegate.spark_consumer.core.sink_names import CHANGELOG
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    first_manifest,
    manifest_name,
    newest_manifest,
    read_manifest,
)

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyspark.sql import SparkSession


EXTRA = "notebook"
"""The extra that brings pandas and matplotlib."""

LAST = 1_000
"""How many releases are read unless the caller says so."""

ROWS_OF = "rows."
"""How the name of a column with the rows of one table begins."""

_COUNTING = (CHANGELOG, "parquet")
"""The sinks whose versions count the rows that a release has brought."""
_READERS = 8
"""A manifest is small: nearly all of its time is spent waiting for the storage."""


class ReleaseFiles(JsonFiles, Protocol):
    """The folder of an output, which also knows when each file was written."""

    @property
    def root(self) -> str:
        """The folder's address, for errors."""
        ...

    def written_ms(self, name: str) -> int | None:
        """Return when a file was written last, in milliseconds since 1970; None without it."""
        ...


@dataclass(frozen=True, slots=True)
class Released:
    """A release and when its manifest was written last; None: not known."""

    manifest: Manifest
    published_us: int | None


def releases(
    spark: SparkSession | None, output: str | os.PathLike[str], *, last: int = LAST
) -> DataFrame:
    """Return the newest releases of an output as a pandas frame, a row for each, oldest first.

    `release`, `after` and `through` are its number and bounds.  `published` is when its manifest
    was last written: with the release, and again when the mirrors took it as the last of several.
    `lag_s` is the seconds from `through` to `published`, `rows` the number of its changes, and
    `rows.<table>` that of each table, which only a changelog or Parquet files have; otherwise it is
    missing.

    `output` is a folder, or a schema that a query registered its tables in (`catalog_schema`).
    Without a session (None) it is a folder on this machine.  The newest `last` releases whose
    manifests are kept are read.  Raises ConfigError if there is none, and if pandas is missing.
    """
    return releases_in(_files(spark, os.fspath(output)), last=last)


def releases_in(files: ReleaseFiles, *, last: int = LAST) -> DataFrame:
    """Do as `releases` for the folder of an output."""
    Extra(EXTRA, ("pandas",)).require()
    if last < 1:
        raise ConfigError(
            "releases: last must be 1 or more", hint="Leave it out for the last thousand", last=last
        )
    released = _read(files, last=last)
    if not released:
        raise ConfigError(
            "the output has no release manifest",
            hint="Check the address; a new output has its first release after some seconds",
            output=str(files.root),
        )
    return _frame(released)


def _read(files: ReleaseFiles, *, last: int) -> list[Released]:
    """Return the newest releases whose manifests are kept, oldest first; none without one."""
    newest = newest_manifest(files, watermark_us=sys.maxsize)
    if newest is None:
        return []

    def read(number: int) -> Released | None:
        manifest = read_manifest(files, number)
        if manifest is None:
            return None
        written_ms = files.written_ms(manifest_name(number))
        return Released(manifest, None if written_ms is None else written_ms * US_PER_MS)

    first = max(first_manifest(files), newest.release - last + 1, 0)
    with ThreadPoolExecutor(_READERS, thread_name_prefix="tidegate-releases") as pool:
        released = pool.map(read, range(first, newest.release + 1))
        return [release for release in released if release is not None]


def _frame(released: list[Released]) -> DataFrame:
    """Return releases as a pandas frame; `releases` says which columns it has."""
    import pandas as pd  # noqa: PLC0415 - an extra, checked by those who call

    manifests = [release.manifest for release in released]
    columns: dict[str, Any] = {
        "release": pd.array([manifest.release for manifest in manifests], dtype="int64"),
        "after": _times(_known(manifest.after_us) for manifest in manifests),
        "through": _times(manifest.through_us for manifest in manifests),
        "published": _times(release.published_us for release in released),
        "lag_s": pd.array([_lag_s(release) for release in released], dtype="float64"),
        "rows": pd.array([manifest.rows for manifest in manifests], dtype="int64"),
    }
    tables = sorted({table for manifest in manifests for table in manifest.tables})
    for table in tables:
        rows = [_rows(manifest, table) for manifest in manifests]
        columns[f"{ROWS_OF}{table}"] = pd.array(rows, dtype="Int64")
    return pd.DataFrame(columns)


def _times(values: Any) -> Any:
    import numpy as np  # noqa: PLC0415 - pandas brings it
    import pandas as pd  # noqa: PLC0415 - an extra, checked by those who call

    # Microseconds: a watermark may be later than the year 2262, where nanoseconds end.
    times = [np.datetime64("NaT") if us is None else np.datetime64(us, "us") for us in values]
    return pd.DatetimeIndex(np.array(times, dtype="datetime64[us]"), tz="UTC")


def _known(us: int) -> int | None:
    return None if us <= BEFORE_EVERYTHING_US else us


def _lag_s(release: Released) -> float | None:
    if release.published_us is None:
        return None
    return (release.published_us - release.manifest.through_us) / US_PER_SECOND


def _rows(manifest: Manifest, table: str) -> int | None:
    """Return how many rows a release brought to a table: none before the table was known."""
    sinks = manifest.tables.get(table)
    if sinks is None or not manifest.rows:
        return 0
    counts = (sinks[sink].rows for sink in _COUNTING if sink in sinks)
    return next((rows for rows in counts if rows is not None), None)


def _files(spark: SparkSession | None, address: str) -> ReleaseFiles:
    if spark is None:
        path = local_path(address)
        if path is None:
            raise ConfigError(
                "releases: without a session, outputs on this machine only",
                hint="Give a session: releases(spark, …)",
                output=address,
            )
        return LocalFolder(path)
    from tidegate.spark_consumer.checkpoint.storage import Storage  # noqa: PLC0415 - needs py4j
    from tidegate.spark_consumer.classic_session import require_classic  # noqa: PLC0415 - as above
    from tidegate.spark_consumer.sinks.delta.catalog import (  # noqa: PLC0415 - needs pyspark
        output_of,
    )

    require_classic(spark)
    return Storage(spark, output_of(spark, address))

"""One release, brought to every sink in turn; its manifest says that it is whole.

A release may be written again: sinks know it by its number, and the manifest is replaced by an
equal one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from tidegate.schemas.errors import invariant
from tidegate.schemas.order_key import first_key_after
from tidegate.spark_consumer.spark.manifest import Manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from structlog.typing import FilteringBoundLogger

    from tidegate.spark_consumer.spark.sink import Release, Sink, TableVersion
    from tidegate.spark_consumer.spark.storage import Storage

__all__ = ["write_release"]


def write_release(
    release: Release, *, sinks: Iterable[Sink], output: Storage, log: FilteringBoundLogger
) -> int:
    """Write a release and its manifest; return its size in changes.

    Raises InvariantViolation, before anything is written, if its rows are not what it promises.
    """
    count = _checked_count(release)
    tables: dict[str, dict[str, TableVersion]] = {}
    for sink in sinks:
        log.debug("step", step=f"sink-{sink.name}", release=release.number)
        for table, version in sink.write(release).items():
            tables.setdefault(table, {})[sink.name] = version
    log.debug("step", step="manifest", release=release.number)
    manifest = Manifest(
        release=release.number,
        query_id=release.query_id,
        batch=release.batch,
        after_us=release.after_us,
        through_us=release.through_us,
        rows=count,
        tables=tables,
    )
    write_manifest(output, manifest)
    return count


def _checked_count(release: Release) -> int:
    found = release.rows.agg(
        F.count("*").alias("rows"),
        F.min("order_key").alias("first"),
        F.max("order_key").alias("last"),
        F.max("ordinal").alias("ordinal_max"),
    ).collect()[0]
    count = int(found["rows"])
    if count:
        invariant(
            bytes(found["first"]) >= first_key_after(release.after_us)
            and bytes(found["last"]) < first_key_after(release.through_us),
            "a release holds changes outside its bounds",
            release=release.number,
        )
        invariant(
            found["ordinal_max"] == count - 1,
            "a release's ordinals are not dense",
            release=release.number,
        )
    return count

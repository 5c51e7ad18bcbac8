"""Delta tables outside of the releases: late changes, late events, dead letters.

Each batch or release appends to them once.  The protocol excludes *late changes*, those at or below
a watermark that was already released.  If one appears all the same, it is kept as raw bytes with
its coordinates and the watermark that it missed; it is never dropped and never enters a release.

*Late events* are changes of files that came after their time was released.  They are in every sink,
at the earliest time that was open; a reader that follows the releases in their order sees them
after newer changes.  An event is late if its time is before the earliest time that was open when it
was read; its record sequence has that time.

*Dead letters* are records of data topics that are not changes, unchanged.  A record without an
order key is set aside by the batch that reads it, a record that cannot be decoded by the release
that it would be in.  Topic, topic partition and offset name the record.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns
from tidegate.schemas.source_order import (
    CHANGES_BEGIN_WITH,
    SOURCE_CHANGE_TYPE,
    SOURCE_ORDER,
    SOURCE_READ_METHOD,
    SOURCE_TIMESTAMP,
    SOURCE_UUID,
)
from tidegate.spark_consumer.core.topic_schemas import row_columns
from tidegate.spark_consumer.errors import DEAD_LETTERS
from tidegate.spark_consumer.sinks.delta.log_files import DeltaHistory
from tidegate.spark_consumer.sinks.port import AnyTable, CollectedTable, Release

_RECENT = 16
"""The number of newest commits that are read first; other writers may have committed since."""

_FOLDER = "late"

LATE_EVENTS = "late_events"
"""Name and folder of the table."""

_ROW = "tidegate_row"
_BACKFILL = "backfill"
"""In the read method of each row of a backfill."""

_COLUMNS = ("topic", "topic_partition", "offset", "key", "value", "headers", "reason")


def append_once(
    rows: DataFrame, path: str, *, application: str, version: int, commit: Mapping[str, object]
) -> int:
    """Append rows unless the application has appended this version, or a later one.

    The table is created with the first rows.  `commit` identifies the commit among all of the
    table.  Returns how many rows it has added, now or before, by Delta's own count.
    """
    metadata = json.dumps({"tidegate": commit})
    (
        rows.coalesce(1)
        .write.format("delta")
        .mode("append")
        .option("delta.enableDeletionVectors", "false")
        .option("mergeSchema", "true")  # an older program's table lacks later columns
        .option("txnAppId", application)
        .option("txnVersion", version)
        .option("userMetadata", metadata)
        .save(path)
    )
    return _added(DeltaHistory(rows.sparkSession, path), metadata)


def _added(history: DeltaHistory, metadata: str) -> int:
    for limit in (_RECENT, None):
        for commit in history.recent(limit):
            if commit.user_metadata == metadata:
                return int(commit.metrics.get("numOutputRows", "0"))
    return 0


class DeltaLateTable:
    """A Delta table below the output, created with the first late change."""

    def __init__(self, output: str) -> None:
        self._path = f"{output}/{_FOLDER}"

    def write(self, rows: DataFrame, *, query_id: str, batch: int, watermark_us: int) -> int:
        """Append a batch's late changes; repeating the batch changes nothing.

        Returns how many rows the commit of the batch has added, by Delta's own count.
        """
        late = (
            rows.withColumn("batch", F.lit(batch).cast("long"))
            .withColumn("watermark_us", F.lit(watermark_us).cast("long"))
            .coalesce(1)
            .sortWithinPartitions("order_key")
        )
        return append_once(
            late,
            self._path,
            application=f"{query_id}/{_FOLDER}",
            version=batch,
            commit={"query_id": query_id, "sink": _FOLDER, "batch": batch},
        )


class DeltaLateEvents:
    """A Delta table below the output, created with the first late event."""

    def __init__(self, output: str) -> None:
        self._path = f"{output}/{LATE_EVENTS}"

    def write(self, release: Release) -> int:
        """Append a release's late events; repeating the release changes nothing.

        Returns how many late events of the release the table has.
        """
        rows: DataFrame | None = None
        for late in _late_events(release):
            rows = late if rows is None else rows.unionByName(late)
        if rows is None:
            return 0
        return append_once(
            rows.coalesce(1).sortWithinPartitions("ordinal"),
            self._path,
            application=f"{release.query_id}/{LATE_EVENTS}",
            version=release.number,
            commit={"query_id": release.query_id, "sink": LATE_EVENTS, "release": release.number},
        )


def is_late(change: Mapping[str, Any]) -> bool:
    """Whether a collected change of a table with `SOURCE_ORDER` is a late event."""
    row = change["old_values"] if change["new_values"] is None else change["new_values"]
    at = row[SOURCE_TIMESTAMP]
    if at is None or not row[SOURCE_ORDER].startswith(CHANGES_BEGIN_WITH):
        return False
    if _BACKFILL in (row.get(SOURCE_READ_METHOD) or ""):
        return False
    at_us = at if isinstance(at, int) else parse_rfc3339_ns(at) // NS_PER_US
    return bool(at_us < int(change["record_sequence"].partition("-")[0], 16))


def _late_events(release: Release) -> Iterator[DataFrame]:
    """Yield the late events of each table with at least one."""
    for table in release.tables.values():
        columns = row_columns(table.schemas.reader_schema)
        # The producer may leave the time out (`columns_left_out`): then lateness is unknown.
        if not table.rows or SOURCE_ORDER not in columns or SOURCE_TIMESTAMP not in columns:
            continue
        if isinstance(table, CollectedTable):
            ordinals = [change["ordinal"] for change in table.changes if is_late(change)]
            if ordinals:
                yield _named(table.frame.where(F.col("ordinal").isin(ordinals)), table, release)
            continue
        late = _named(_changes(table.frame, columns), table, release).where(_is_late())
        if not late.isEmpty():
            yield late


def _changes(frame: DataFrame, columns: Collection[str]) -> DataFrame:
    """Return a table's changes without the rows of a backfill, which may have a place among them.

    The producer may leave the column out that says so (`columns_left_out`).
    """
    if SOURCE_READ_METHOD not in columns:
        return frame
    method = F.coalesce("new_values", "old_values")[SOURCE_READ_METHOD]
    return frame.where(~F.coalesce(method, F.lit("")).contains(_BACKFILL))


def _is_late() -> Any:
    """Condition of `is_late`, over the columns of the table of late events."""
    is_change = F.col(SOURCE_ORDER).startswith(CHANGES_BEGIN_WITH)
    return is_change & (F.col("source_timestamp") < F.col("first_open"))


def _named(changes: DataFrame, table: AnyTable, release: Release) -> DataFrame:
    """Return changes with the columns of the table of late events."""
    columns = row_columns(table.schemas.reader_schema)

    def text(name: str) -> Any:
        """Return a column of the row; the producer may leave it out (`columns_left_out`)."""
        return F.col(_ROW)[name] if name in columns else F.lit(None).cast("string")

    first_open = F.conv(F.substring_index("record_sequence", "-", 1), 16, 10).cast("long")
    # A time that is text in this stream may be of a year that Spark does not have.
    return changes.withColumn(_ROW, F.coalesce("new_values", "old_values")).select(
        F.lit(release.number).cast("long").alias("release"),
        "ordinal",
        F.lit(table.schemas.table).alias("table"),
        F.col("commit_timestamp").try_cast("timestamp").alias("commit_timestamp"),
        F.col(_ROW)[SOURCE_TIMESTAMP].try_cast("timestamp").alias("source_timestamp"),
        F.timestamp_micros(first_open).alias("first_open"),
        F.col(_ROW)[SOURCE_ORDER].alias(SOURCE_ORDER),
        text(SOURCE_UUID).alias(SOURCE_UUID),
        text(SOURCE_CHANGE_TYPE).alias(SOURCE_CHANGE_TYPE),
        F.to_json("key").alias("key"),
    )


class DeltaDeadLetters:
    """A Delta table below the output, created with the first dead letter."""

    def __init__(self, output: str) -> None:
        self._path = f"{output}/{DEAD_LETTERS}"

    def write(self, rows: DataFrame, *, query_id: str, batch: int, release: int | None) -> int:
        """Append the dead letters of a batch, or of one of its releases; a repetition adds nothing.

        Returns how many rows that commit has added, by Delta's own count.
        """
        of_release = {} if release is None else {"release": release}
        records = (
            rows.select(
                F.lit(query_id).alias("query_id"),
                F.lit(batch).cast("long").alias("batch"),
                F.lit(release).cast("long").alias("release"),
                *_COLUMNS,
            )
            .coalesce(1)
            .sortWithinPartitions("topic", "topic_partition", "offset")
        )
        return append_once(
            records,
            self._path,
            application=f"{query_id}/{DEAD_LETTERS}/{'batch' if release is None else 'release'}",
            version=batch if release is None else release,
            commit={"query_id": query_id, "sink": DEAD_LETTERS, "batch": batch, **of_release},
        )

"""The table of late events: changes of files that came after their time was released.

They are in every sink, at the earliest time that was open; what follows the releases in their
order sees them behind newer changes.  The table names them: an event is late if its own time is
before the first one that was open when it was read, which its record sequence says.
"""

from __future__ import annotations

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
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.delta.newest import is_ordered_by_column
from tidegate.spark_consumer.sinks.delta.side_table import append_once
from tidegate.spark_consumer.sinks.port import AnyTable, Release

LATE_EVENTS = "late_events"
"""Name and folder of the table."""

_ROW = "tidegate_row"
_BACKFILL = "backfill"
"""In the read method of each row of a backfill."""


class DeltaLateEvents:
    """A Delta table below the output, created with the first late event."""

    def __init__(self, output: str) -> None:
        """Take the output's folder."""
        self._path = f"{output}/{LATE_EVENTS}"

    def write(self, release: Release) -> int:
        """Append a release's late events; repeating the release changes nothing.

        Returns how many of the release the table has.
        """
        rows: DataFrame | None = None
        for found in _late_events(release):
            rows = found if rows is None else rows.unionByName(found)
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
    """Yield those of each table that has some."""
    for one in release.tables.values():
        columns = row_columns(one.schemas.reader_schema)
        # The producer may leave the time out (`columns_left_out`): then nothing says what is late.
        if not one.rows or not is_ordered_by_column(columns) or SOURCE_TIMESTAMP not in columns:
            continue
        if isinstance(one, CollectedTable):
            ordinals = [change["ordinal"] for change in one.changes if is_late(change)]
            if ordinals:
                yield _named(one.frame.where(F.col("ordinal").isin(ordinals)), one, release)
            continue
        found = _named(_changes(one.frame, columns), one, release).where(_is_late())
        if not found.isEmpty():
            yield found


def _changes(frame: DataFrame, columns: Collection[str]) -> DataFrame:
    """Return a table's changes without the rows of a backfill, which may have a place among them.

    The producer may leave the column out that says so (`columns_left_out`).
    """
    if SOURCE_READ_METHOD not in columns:
        return frame
    method = F.coalesce("new_values", "old_values")[SOURCE_READ_METHOD]
    return frame.where(~F.coalesce(method, F.lit("")).contains(_BACKFILL))


def _is_late() -> Any:
    """Condition, over the columns of the table: what `is_late` says."""
    is_change = F.col(SOURCE_ORDER).startswith(CHANGES_BEGIN_WITH)
    return is_change & (F.col("source_timestamp") < F.col("first_open"))


def _named(changes: DataFrame, one: AnyTable, release: Release) -> DataFrame:
    """Return the table's columns."""
    columns = row_columns(one.schemas.reader_schema)

    def text(name: str) -> Any:
        """Return a column of the row; the producer may leave it out (`columns_left_out`)."""
        return F.col(_ROW)[name] if name in columns else F.lit(None).cast("string")

    first_open = F.conv(F.substring_index("record_sequence", "-", 1), 16, 10).cast("long")
    # A time that is text in this stream may be of a year that Spark does not have.
    return changes.withColumn(_ROW, F.coalesce("new_values", "old_values")).select(
        F.lit(release.number).cast("long").alias("release"),
        "ordinal",
        F.lit(one.schemas.table).alias("table"),
        F.col("commit_timestamp").try_cast("timestamp").alias("commit_timestamp"),
        F.col(_ROW)[SOURCE_TIMESTAMP].try_cast("timestamp").alias("source_timestamp"),
        F.timestamp_micros(first_open).alias("first_open"),
        F.col(_ROW)[SOURCE_ORDER].alias(SOURCE_ORDER),
        text(SOURCE_UUID).alias(SOURCE_UUID),
        text(SOURCE_CHANGE_TYPE).alias(SOURCE_CHANGE_TYPE),
        F.to_json("key").alias("key"),
    )

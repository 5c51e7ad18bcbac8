"""Progress rows of a batch, brought to the driver in portions and decoded.

A batch of live traffic has few rows and collects them all.  In a long history the executors first
select the rows that count, by Kafka keys alone: the newest record of each key, as a compaction
would, and of each slot's heartbeats that name a minute the first, and the last in each of
`MINUTES_KEPT` intervals.  Announcements and markers are never superseded, so they need no
comparison.  The selected rows come to the driver slot by slot, a part of the slots at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.window import Window

from tidegate.lineage.frontier import ProgressRow
from tidegate.lineage.snapshot_queue import SNAPSHOTS_WAITING_MAX
from tidegate.schemas.progress_codec import KEY_SCHEMA
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.wire_format import HEADER_BYTES
from tidegate.spark_consumer.batch.rows import IS_PROGRESS
from tidegate.spark_consumer.sinks.decoding import avro_column

_Row = tuple[int, int, bytes | None]


ROWS_TAKEN_WHOLE_MAX = 5_000
"""Up to this many offsets, choosing would cost more than collecting all rows."""

MINUTES_KEPT = SNAPSHOTS_WAITING_MAX
"""Intervals of a slot's history that keep a heartbeat: the frontier keeps no more snapshots."""

PORTION_BYTES = 1 << 20
"""How many encoded bytes are decoded at a time; decoded they take some twenty times as much."""

_PARTS = 32
"""Parts of the slots; one at a time is in the driver's memory."""

_PLACE = ["topic_partition", "offset"]


class ProgressReader:
    """Decodes progress rows; caches the writer schemas."""

    def __init__(self, schema_of: Callable[[int], Mapping[str, Any]]) -> None:
        """Take a function that returns the schema of an id."""
        self._decoder = ProgressDecoder(schema_of)

    def read(self, rows: DataFrame, *, offsets: int) -> Iterator[list[ProgressRow]]:
        """Yield portions of the progress rows of a batch that spans `offsets` of them.

        In each slot a portion continues where the portion before it ended.  Raises
        UnreadableProgress for a row that cannot be decoded.
        """
        progress = rows.where(IS_PROGRESS).select(*_PLACE, "key", "value")
        if offsets > ROWS_TAKEN_WHOLE_MAX:
            chosen = _thinned(progress).repartition(_PARTS, "topic_partition")
            return self._portions(chosen.sortWithinPartitions(*_PLACE).toLocalIterator())
        return self.decode(progress.select(*_PLACE, "value").collect())

    def decode(self, rows: Iterable[_Row]) -> Iterator[list[ProgressRow]]:
        """Yield portions of rows that were collected in any order, as `read` does."""
        # A null value is a tombstone, which only compaction reads.
        present = ((slot, offset, value) for slot, offset, value in rows if value is not None)
        return self._portions(sorted(present))

    def _portions(self, rows: Iterable[tuple[int, int, bytes]]) -> Iterator[list[ProgressRow]]:
        portion: list[ProgressRow] = []
        size = 0
        for slot, offset, value in rows:
            record = self._decoder.decode_at(bytes(value), slot=slot, offset=offset)
            portion.append(ProgressRow(slot, offset, record))
            size += len(value)
            if size >= PORTION_BYTES:
                yield portion
                portion, size = [], 0
        if portion:
            yield portion


def _thinned(progress: DataFrame) -> DataFrame:
    """Return slot, offset and value of the rows that count in a long history."""
    progress = progress.withColumn("name", name_of_record())
    is_single = F.expr(
        "coalesce(name.kind IN ('PARTITION_ANNOUNCED', 'PARTITION_FINISHED'), FALSE)"
    )
    newest = (
        progress.where(~is_single)
        .groupBy("topic_partition", "key")
        .agg(
            F.max("offset").alias("offset"),
            F.max_by(F.col("value").isNull(), "offset").alias("is_removed"),
        )
        .where("NOT is_removed")
        .withColumn("minute", _minute())
    )
    by_minute = Window.partitionBy("topic_partition", F.col("minute").isNull())
    rank = F.dense_rank().over(by_minute.orderBy("minute"))
    ranked = newest.withColumn("rank", rank).withColumn("ranks", F.max("rank").over(by_minute))
    interval = F.floor(F.col("rank") * MINUTES_KEPT / F.col("ranks"))
    before = F.floor((F.col("rank") - 1) * MINUTES_KEPT / F.col("ranks"))
    is_kept = F.col("minute").isNull() | (F.col("rank") == 1) | (interval > before)
    kept = ranked.where(is_kept).select(*_PLACE, F.expr("TRUE").alias("is_kept"))
    chosen = progress.join(F.broadcast(kept), _PLACE, "left").where(
        (is_single | F.col("is_kept")) & F.col("value").isNotNull()
    )
    return chosen.select(*_PLACE, "value")


def name_of_record() -> Column:
    """Return the decoded Kafka key; null where it is of a later version."""
    body = F.expr(f"substring(key, {HEADER_BYTES + 1})")
    return avro_column(body, KEY_SCHEMA, {"mode": "PERMISSIVE"})


def _minute() -> Column:
    """Return the minute that a heartbeat's key names; null for all other keys."""
    name = name_of_record()
    of_minutes = (name["kind"] == "SLOT_WATERMARK") | (name["kind"] == "SLOT_PROGRESS")
    return F.when(of_minutes, name["detail"].try_cast("long"))

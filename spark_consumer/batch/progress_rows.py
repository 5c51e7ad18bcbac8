"""Progress rows of a batch, collected on the driver and decoded.

A batch of live traffic has few and collects all.  In a backlog the executors first drop what a
compaction would: the newest record of each Kafka key stays, so one snapshot per slot and minute,
and every announcement and marker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812

from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.spark_consumer.batch.rows import IS_PROGRESS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyspark.sql import DataFrame

__all__ = ["ROWS_TAKEN_WHOLE_MAX", "ProgressReader"]

ROWS_TAKEN_WHOLE_MAX = 5_000
"""Up to this many offsets, a shuffle would cost more than collecting all rows."""


class ProgressReader:
    """Decodes progress rows; caches the writer schemas."""

    def __init__(self, schema_of: Callable[[int], Mapping[str, Any]]) -> None:
        """Take a function that returns the schema of an id."""
        self._decoder = ProgressDecoder(schema_of)

    def read(self, rows: DataFrame, *, offsets: int) -> list[ProgressRow]:
        """Return the progress rows of a batch that spans so many offsets of the progress topic.

        Raises SchemaError for one that cannot be decoded.
        """
        progress = rows.where(IS_PROGRESS).select("topic_partition", "offset", "key", "value")
        if offsets > ROWS_TAKEN_WHOLE_MAX:
            progress = progress.groupBy("topic_partition", "key").agg(
                F.max("offset").alias("offset"), F.max_by("value", "offset").alias("value")
            )
        return self.decode(progress.select("topic_partition", "offset", "value").collect())

    def decode(self, rows: Iterable[tuple[int, int, bytes | None]]) -> list[ProgressRow]:
        """Return progress rows of (slot, offset, value); raises SchemaError as `read` does."""
        return [
            ProgressRow(slot, offset, self._decoder.decode(bytes(value)))
            for slot, offset, value in rows
            # A null value is a tombstone, which only compaction reads.
            if value is not None
        ]

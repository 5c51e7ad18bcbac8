"""The table of dead letters: records of data topics that are no changes, as they stand in Kafka.

A record without an order key is set aside with the batch that reads it, one that cannot be decoded
with the release that it would be in.  Topic, topic partition and offset name the record.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.core.dead_letters import DEAD_LETTERS
from tidegate.spark_consumer.sinks.delta.side_table import append_once

_COLUMNS = ("topic", "topic_partition", "offset", "key", "value", "headers", "reason")


class DeltaDeadLetters:
    """A Delta table below the output, created with the first dead letter."""

    def __init__(self, output: str) -> None:
        """Take the output's folder."""
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

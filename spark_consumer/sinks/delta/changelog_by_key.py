"""Every change as a row, appended per source table by the batch that reads it.

It waits for no watermark.  Rows are in Kafka's order, which is commit order for each key: by topic
partition and offset within a batch, in ascending batches.  One commit per table and batch.  Exactly
once: the sink skips a batch that the table has, and Delta ignores a repeated one of the same query.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from tidegate.spark_consumer.core.cadence import CHANGELOG_BY_KEY
from tidegate.spark_consumer.sinks.delta.keyed_tables import KeyedTables, commit_of
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import DecodedTable, Release, TableVersion
from tidegate.spark_consumer.sinks.released_frame import KAFKAS_ORDER, in_order
from tidegate.spark_consumer.sinks.tables import for_each_table

_OF_A_RELEASE = ("release", "ordinal")
_PROPERTIES = {"delta.dataSkippingStatsColumns": "batch,commit_timestamp,topic_partition,offset"}


class DeltaChangelogByKeySink:
    """Appends to `<output>/changelog_by_key/<table>`; a `BatchSink`."""

    name = CHANGELOG_BY_KEY

    def __init__(
        self, spark: SparkSession, output: str, *, layout: TableLayout | None = None
    ) -> None:
        """Take the output's address, and the layout of new tables."""
        self._spark = spark
        self._tables = KeyedTables(
            output, folder=self.name, sink=self.name, properties=_PROPERTIES, layout=layout
        )

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._tables.open(self._spark, query_id=query_id, release_max=release_max)

    def take(self, batch: HandedBatch) -> None:
        """Append what the tables lack; raises SchemaError for a column whose type changed."""
        commit = commit_of(batch, self.name)
        changed = [topic for topic, one in batch.tables.items() if one.rows]
        for one in batch.tables.values():
            if one.rows or not self._tables.log(one.spark, one.schemas.table).exists:
                self._tables.prepare(
                    one.spark, one.schemas.table, schema=_schema(one), commit=commit
                )

        def append(topic: str) -> None:
            one = batch.tables[topic]
            if self._tables.log(one.spark, one.schemas.table).written(commit) is None:
                rows = in_order(one.frame, rows=one.rows, by=KAFKAS_ORDER)
                self._tables.append(rows, one.schemas.table, commit=commit)

        for_each_table(self._spark, changed, append)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write nothing; return the tables' versions, which have all changes of the release."""
        return self._tables.versions(self._spark, release)


def _schema(one: DecodedTable) -> StructType:
    changes = [field for field in one.schema if field.name not in _OF_A_RELEASE]
    return StructType([StructField("batch", LongType()), *changes])

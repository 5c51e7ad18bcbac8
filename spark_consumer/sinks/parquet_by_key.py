"""Every change as a row in Parquet files, by the batch that reads it: a folder for each.

`<output>/parquet_by_key/<table>/<batch, 12 digits>`; a folder is whole when it holds `_SUCCESS`,
and is not written again.  It waits for no watermark.  Rows are in Kafka's order, which is commit
order for each key: by topic partition and offset within a folder, in ascending folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.spark_consumer.core.cadence import PARQUET_BY_KEY
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.parquet import OutputFolder, ReleaseFolders
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.released_frame import KAFKAS_ORDER, in_order
from tidegate.spark_consumer.sinks.tables import for_each_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ParquetByKeySink:
    """Writes the folders of a batch; a `BatchSink`."""

    name = PARQUET_BY_KEY

    def __init__(self, spark: SparkSession, output: OutputFolder) -> None:
        """Take the output of the query."""
        self._spark = spark
        self._folders = ReleaseFolders(output, folder=self.name)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse files of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._folders.open(query_id=query_id, release_max=release_max)

    def take(self, batch: HandedBatch) -> None:
        """Write what is not there yet; a table without a change gets no folder."""
        changed = [topic for topic, one in batch.tables.items() if one.rows]
        if changed:
            self._folders.begin(batch)

        def write(topic: str) -> None:
            one = batch.tables[topic]
            path = f"{self.name}/{one.schemas.table}/{batch.number:012d}"
            self._folders.write(path, lambda: in_order(one.frame, rows=one.rows, by=KAFKAS_ORDER))

        for_each_table(self._spark, changed, write)

    def write(self, release: Release) -> Mapping[str, TableVersion]:  # noqa: ARG002 - the port's
        """Do nothing: the release's changes were written with their batches."""
        return {}

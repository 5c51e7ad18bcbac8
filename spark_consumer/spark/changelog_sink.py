"""Every change as a row, appended per source table in commit order.

One commit per table and release; within it one file by default, sorted by ordinal, so that reading
the files in the order of releases gives the commit order without a sort.  Once: Delta refuses a
repeated release of the same query, and this sink does not try one that the table already has.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.spark_consumer.spark.commit_log import Commit
from tidegate.spark_consumer.spark.decode import count_rows_by_topic, decode_changes
from tidegate.spark_consumer.spark.delta_tables import SinkTables, for_each_table
from tidegate.spark_consumer.spark.sink import TableVersion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, SparkSession

    from tidegate.spark_consumer.spark.sink import Release

__all__ = ["DeltaChangelogSink"]


class DeltaChangelogSink:
    """Appends to `<output>/changelog/<table>`."""

    name = "changelog"

    def __init__(self, spark: SparkSession, output: str, *, files_per_release: int = 1) -> None:
        """Take where to write, and how many files a large release of a table may be split into.

        With several files, file order (`part-00000`, …) and the order in them are the commit order.
        """
        self._spark = spark
        self._tables = SinkTables(output, folder="changelog", sink=self.name)
        self._files_per_release = files_per_release

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._tables.open(self._spark, query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Append what is not there yet; returns every table's version at this release.

        Raises SchemaError for a column whose type changed.
        """
        spark = release.rows.sparkSession
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        rows = count_rows_by_topic(release)
        changes = {topic: decode_changes(release, topic) for topic in release.topics}
        names = {topic: schemas.table for topic, schemas in release.topics.items()}
        for topic, frame in changes.items():
            self._tables.prepare(spark, names[topic], schema=frame.schema, commit=commit)

        def append(topic: str) -> None:
            log = self._tables.log(spark, names[topic])
            if log.written(spark, commit) is None:
                self._tables.append(self._sorted(changes[topic]), names[topic], commit=commit)

        for_each_table(spark, [topic for topic in changes if rows.get(topic)], append)
        return {
            table: TableVersion(
                self._tables.path(table),
                self._tables.log(spark, table).version_at(spark, release.number),
                rows.get(topic, 0),
            )
            for topic, table in names.items()
        }

    def _sorted(self, changes: DataFrame) -> DataFrame:
        if self._files_per_release == 1:
            return changes.coalesce(1).sortWithinPartitions("ordinal")
        spread = changes.repartitionByRange(self._files_per_release, "ordinal")
        return spread.sortWithinPartitions("ordinal")

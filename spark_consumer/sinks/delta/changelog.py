"""Every change as a row, appended per source table in commit order.

One commit per table and release.  Reading the files in the order of releases, and those of one
release by their names (`part-00000`, …), gives the commit order without a sort; a table with few
changes has one file.  Exactly once: the sink skips a release that the table has, and Delta ignores
a repeated one of the same query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.spark_consumer.core.cadence import CHANGELOG
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.port import (
    AnyTable,
    CollectedTable,
    DecodedTable,
    Release,
    TableVersion,
)
from tidegate.spark_consumer.sinks.tables import Commit, for_each_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay


_ROWS_OF_SEVERAL_FILES = 100_000
"""A table with fewer changes in a release gets one file, however many tasks made the release."""

_PROPERTIES = {
    # In commit order files differ in these alone; the least and the greatest text of each column
    # cost a seventh of the writing.
    "delta.dataSkippingStatsColumns": "release,ordinal,commit_timestamp",
}


class DeltaChangelogSink:
    """Appends to `<output>/changelog/<table>`."""

    name = CHANGELOG

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        direct: DirectWay | None = None,
        layout: TableLayout | None = None,
    ) -> None:
        """Take the output's address, how small releases are written without Spark, and a layout."""
        self._spark = spark
        self._tables = SinkTables(
            output,
            folder="changelog",
            sink=self.name,
            direct=direct,
            properties=_PROPERTIES,
            layout=layout,
        )

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._tables.open(self._spark, query_id=query_id, release_max=release_max)

    def heads(self) -> Mapping[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return self._tables.heads()

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Append what the tables lack; return every table's version at this release.

        Raises SchemaError for a column whose type changed.
        """
        if not release.tables:
            return {}
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        spark = next(iter(release.tables.values())).spark
        for one in release.tables.values():
            if one.rows or not self._tables.log(spark, one.schemas.table).exists:
                self._tables.prepare(spark, one.schemas.table, schema=one.schema, commit=commit)

        def append(topic: str) -> None:
            one = release.tables[topic]
            log = self._tables.log(spark, one.schemas.table)
            if log.written(commit) is not None:
                return
            if isinstance(one, CollectedTable):
                self._tables.append_changes(
                    one, one.changes, commit=commit, frame=lambda: _one_file(one.frame)
                )
            else:
                self._tables.append(sorted_changes(one), one.schemas.table, commit=commit)

        changed = [topic for topic, one in release.tables.items() if one.rows]
        for_each_table(spark, changed, append)
        return {
            one.schemas.table: TableVersion(
                self._tables.path(one.schemas.table),
                self._tables.log(spark, one.schemas.table).version_at(release.number),
                one.rows,
            )
            for one in release.tables.values()
        }


def sorted_changes(one: AnyTable) -> DataFrame:
    """Return the changes as they are written: a sorted file of each task that has some."""
    is_ordered = isinstance(one, DecodedTable) and one.is_ordered
    if is_ordered and one.rows >= _ROWS_OF_SEVERAL_FILES:
        return one.frame
    return _one_file(one.frame)


def _one_file(changes: DataFrame) -> DataFrame:
    return changes.coalesce(1).sortWithinPartitions("ordinal")

"""Every change as a row of an Iceberg table, in one snapshot per table and release.

The rows are those of the Delta changelog.  Order is the columns `release` and `ordinal`; a table
with few changes has one file per release, in that order.  Exactly once: the sink skips a release
that the table has, and Iceberg publishes one snapshot of a name only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegate.spark_consumer.core.cadence import ICEBERG_CHANGELOG
from tidegate.spark_consumer.sinks.delta.changelog import sorted_changes
from tidegate.spark_consumer.sinks.iceberg.place import IcebergPlace
from tidegate.spark_consumer.sinks.iceberg.tables import IcebergTables
from tidegate.spark_consumer.sinks.port import AnyTable, Release, TableVersion
from tidegate.spark_consumer.sinks.tables import Commit, for_each_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


KIND = "changelog"

_PROPERTIES = {
    # Rows stay in the order and in the files of their tasks.
    "write.distribution-mode": "none",
    # In commit order files differ in these alone.
    "write.metadata.metrics.default": "none",
    **{
        f"write.metadata.metrics.column.{column}": "full"
        for column in ("release", "ordinal", "commit_timestamp")
    },
}


class IcebergChangelogSink:
    """Appends to `<namespace>_changelog.<table>`."""

    name = ICEBERG_CHANGELOG

    def __init__(self, spark: SparkSession, output: str, place: IcebergPlace) -> None:
        """Take the output's address, and where its Iceberg tables are."""
        self._spark = spark
        self._tables = IcebergTables(
            output, place, kind=KIND, sink=self.name, properties=_PROPERTIES
        )

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._tables.open(self._spark, query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Append what the tables lack; return every table's snapshot at this release.

        Raises SchemaError for a column whose type changed.
        """
        if not release.tables:
            return {}
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        spark = next(iter(release.tables.values())).spark
        for one in release.tables.values():
            if one.rows or not self._tables.log(spark, one.schemas.table).exists:
                self._tables.prepare(spark, one.schemas.table, schema=one.schema, commit=commit)
        changed = [topic for topic, one in release.tables.items() if one.rows]
        with self._tables.staging(spark, commit=commit):
            for_each_table(
                spark, changed, lambda topic: self._append(release.tables[topic], commit)
            )
        return {
            one.schemas.table: TableVersion(
                self._tables.path(one.schemas.table),
                self._tables.log(spark, one.schemas.table).version_at(release.number),
                one.rows,
            )
            for one in release.tables.values()
        }

    def _append(self, one: AnyTable, commit: Commit) -> None:
        spark, table = one.spark, one.schemas.table

        def stage() -> None:
            self._tables.stage_rows(sorted_changes(one), table, commit=commit)

        self._tables.write(spark, table, stage, commit=commit)

"""Sinks that append: a kind of rows, the time at which they are written, and a writer.

- Rows are changes, one table for each source table, or transactions: one table with a row for each,
  whose `changes` are an array over all source tables, sorted by `ordinal`.  Keys and values in it
  are JSON text, because tables have other columns, so that any reader opens the table.
- They are written with their release, or by the batch that reads them, before the watermark has
  passed them.  A batch's rows are in Kafka's order, which is commit order for each key: by topic
  partition and offset within a batch, in ascending batches.
- A writer is the tables of a format, or folders of files (`RowWriter`).

Exactly once: a writer skips a release, or a batch, that it has.  A table gets one commit for each.
Reading its files in the order of releases, and those of one release by their names (`part-00000`,
…), gives the commit order without a sort; a table with few changes has one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructField, StructType

from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.port import (
    AnyTable,
    CollectedTable,
    DecodedTable,
    Release,
    TableVersion,
)
from tidegate.spark_consumer.sinks.released_frame import (
    KAFKAS_ORDER,
    TRANSACTION_FIELDS,
    WIDE_ROWS,
    in_order,
    json_transactions_of,
)
from tidegate.spark_consumer.sinks.sql import session_settings
from tidegate.spark_consumer.sinks.tables import Commit, RowWriter, TableRows, for_each_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TRANSACTIONS = "transactions"
"""Name of the sink of transactions, and of its table in the output."""

_ROWS_OF_SEVERAL_FILES = 100_000
"""A table with fewer changes in a release gets one file, however many tasks made the release."""

_RELEASE_COLUMNS = ("release", "ordinal")

_Given = TypeVar("_Given", Release, HandedBatch)


@dataclass(frozen=True, slots=True)
class Rows(Generic[_Given]):
    """A kind of rows that are appended.

    Files are in the order of `bounded`, and differ in these columns alone: the least and the
    greatest text of each other column would cost a seventh of the writing.  `settings` are those of
    the session while rows are made and written.
    """

    of: Callable[[_Given], Sequence[TableRows]]
    bounded: tuple[str, ...]
    settings: Mapping[str, str] = field(default_factory=dict)


class _Appending(Generic[_Given]):
    def __init__(
        self, spark: SparkSession, name: str, rows: Rows[_Given], writer: RowWriter
    ) -> None:
        self.name = name
        self._spark = spark
        self._rows: Rows[_Given] = rows
        self._tables = writer

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse rows of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._tables.open(self._spark, query_id=query_id, release_max=release_max)

    def _append(self, given: _Given, *, commit: Commit) -> dict[str, TableVersion]:
        writer, tables = self._tables, self._rows.of(given)
        if not tables:
            return {}
        for table in tables:
            writer.begin(table, commit=commit)
        changed = {table.topic: table for table in tables if table.rows}
        spark = tables[0].spark
        with session_settings(spark, self._rows.settings), writer.staging(spark, commit=commit):
            for_each_table(
                spark, list(changed), lambda topic: writer.append(changed[topic], commit=commit)
            )
        return {
            source: version
            for table in tables
            for source, version in writer.versions(table, commit=commit).items()
        }


class AppendSink(_Appending[Release]):
    """Appends the rows of each release."""

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Append the missing rows; return each table's version at this release.

        Raises SchemaError for a column whose type changed.
        """
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        return self._append(release, commit=commit)


class ChangelogSink(AppendSink):
    """Appends to Delta tables that are maintained between two batches; a `TableSink`."""

    def heads(self) -> Mapping[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return self._tables.heads()


class BatchAppendSink(_Appending[HandedBatch]):
    """Appends the rows of each batch; a `BatchSink`."""

    def take(self, batch: HandedBatch) -> None:
        """Append the missing rows; raises SchemaError for a column whose type changed."""
        self._append(batch, commit=Commit.of_batch(batch, self.name))

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write nothing; return the tables' versions, which have all changes of the release."""
        return self._tables.batch_versions(self._spark, release)


def sorted_changes(table: AnyTable) -> DataFrame:
    """Return the changes in their written order: a sorted file of each task that has some."""
    is_ordered = isinstance(table, DecodedTable) and table.is_ordered
    if is_ordered and table.rows >= _ROWS_OF_SEVERAL_FILES:
        return table.frame
    return table.frame.coalesce(1).sortWithinPartitions("ordinal")


def _changes(release: Release) -> list[TableRows]:
    return [_changes_of_table(topic, table) for topic, table in release.tables.items()]


def _changes_of_table(topic: str, table: AnyTable) -> TableRows:
    name = table.schemas.table
    return TableRows(
        topic=topic,
        table=name,
        spark=table.spark,
        schema=lambda: table.schema,
        frame=lambda: sorted_changes(table),
        sources={name: table.rows},
        changes=table.changes if isinstance(table, CollectedTable) else None,
    )


def _batch_changes(batch: HandedBatch) -> list[TableRows]:
    return [_batch_changes_of_table(topic, table) for topic, table in batch.tables.items()]


def _batch_changes_of_table(topic: str, table: DecodedTable) -> TableRows:
    name = table.schemas.table
    return TableRows(
        topic=topic,
        table=name,
        spark=table.spark,
        schema=lambda: _batch_schema(table),
        frame=lambda: in_order(table.frame, rows=table.rows, by=KAFKAS_ORDER),
        sources={name: table.rows},
    )


def _batch_schema(table: DecodedTable) -> StructType:
    changes = [field for field in table.schema if field.name not in _RELEASE_COLUMNS]
    return StructType([StructField("batch", LongType()), *changes])


def _transactions(release: Release) -> list[TableRows]:
    if not release.tables:
        return []
    spark = next(iter(release.tables.values())).spark
    rows = TableRows(
        topic=TRANSACTIONS,
        table=TRANSACTIONS,
        spark=spark,
        schema=lambda: cast("StructType", StructType.fromDDL(TRANSACTION_FIELDS)),
        frame=lambda: json_transactions_of(release, spark),
        sources={table.schemas.table: table.rows for table in release.tables.values()},
        is_counted=False,
    )
    return [rows]


CHANGE_ROWS = Rows(_changes, bounded=("release", "ordinal", "commit_timestamp"))
BATCH_ROWS = Rows(
    _batch_changes, bounded=("batch", "commit_timestamp", "topic_partition", "offset")
)
TRANSACTION_ROWS = Rows(
    _transactions,
    bounded=("release", "first_ordinal", "commit_timestamp"),
    settings=WIDE_ROWS,
)

"""The history: every version of each row, with its time (a slowly changing dimension, type 2).

`<output>/history/<table>` has the columns of the mirror, and three of our own, whose names may
begin with a prefix.  `valid_from` and `valid_to` are the commit timestamps of the change that made
the version and of the one that ended it, and `is_current` says that none has.  At any time `t` from
the stream's start to the release that the table has, exactly one row of each key that existed
then has `valid_from <= t AND (valid_to IS NULL OR t < valid_to)`.  The versions without an end are
the mirror's rows.

An INSERT opens a version and ends the one before it, an UPDATE opens one in which the columns that
it did not capture are unchanged, a DELETE ends one.  An UPDATE of a row that the table lacks (the
stream started after the row's INSERT) opens none: it goes to `<output>/history_incomplete/<table>`.
The effect of a release depends on its changes alone, not on how many releases are taken at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StructType

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.sink_names import HISTORY
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.merge.fold import fold_each_row
from tidegate.spark_consumer.sinks.merge.scope import key_names, mirror_columns
from tidegate.spark_consumer.sinks.merge.sink import DeltaMergingSink, MergeOptions, merge_settings
from tidegate.spark_consumer.sinks.merge.versions import (
    HistoryColumns,
    StagedRows,
    merge_rows,
    merge_staged,
    stage,
    stage_rows,
)
from tidegate.spark_consumer.sinks.port import AnyTable, CollectedTable
from tidegate.spark_consumer.sinks.sql import checkpointed, free, session_settings
from tidegate.spark_consumer.sinks.tables import Commit, for_each_table

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable


@dataclass(frozen=True, slots=True)
class _Staged:
    """A checkpointed frame of `stage`, and how many of its rows are versions and lost UPDATEs."""

    frame: DataFrame
    versions: int
    lost: int


class DeltaHistorySink(DeltaMergingSink):
    """Merges into `<output>/history/<table>`.

    `write` and `merge` also raise ConfigError for a table with a column of a reserved name.
    """

    name = HISTORY
    incomplete = "history_incomplete"

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        columns: HistoryColumns | None = None,
        **options: Unpack[MergeOptions],
    ) -> None:
        """Take the output's address, and the names of our columns."""
        self._columns = columns or HistoryColumns()
        self._admitted: dict[str, TopicSchemas] = {}
        super().__init__(spark, output, part=self._columns.current, **options)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Open as every merging sink; raises ConfigError for tables of another prefix."""
        super().open(query_id=query_id, release_max=release_max)
        for table in self._tables.names(Storage(self._spark, self._output)):
            if self._tables.log(self._spark, table).exists:
                partitions = self._tables.partition_columns(self._spark, table)
                self._columns.require_same(partitions, table=table)
                return  # one prefix is that of all

    def admit(self, tables: Iterable[TopicSchemas]) -> None:
        """Raise ConfigError for a table with a column of a reserved name."""
        for schemas in tables:
            if self._admitted.get(schemas.table) is not schemas:
                self._columns.require_free(schemas)
                self._admitted[schemas.table] = schemas

    def _schema(self, table: AnyTable) -> StructType:
        return self._columns.schema(table)

    def _merge_directly(
        self, opened: Mapping[str, tuple[CollectedTable, DirectTable]], *, commit: Commit
    ) -> None:
        staged: dict[str, StagedRows] = {}
        for topic, (table, history) in opened.items():
            if not history.has(commit):
                columns, keys = mirror_columns(table.schemas), key_names(table.schemas)
                folded = fold_each_row(table.changes, columns)
                staged[topic] = stage_rows(
                    history, folded, columns=columns, keys=keys, version_columns=self._columns
                )
        # First: whether the table lacks a row can be seen as long as it is without the release.
        for topic, rows in staged.items():
            table, _ = opened[topic]
            lost = [change for change in table.changes if change["ordinal"] in rows.lost]
            self._incomplete.append_rows(table, lost, commit=commit)

        def merge(topic: str) -> None:
            table, history = opened[topic]
            columns, keys = mirror_columns(table.schemas), key_names(table.schemas)
            rows = staged[topic].rows
            merge_rows(
                history,
                rows,
                columns=columns,
                keys=keys,
                version_columns=self._columns,
                commit=commit,
            )
            self._tables.log(table.spark, table.schemas.table).follow()

        for_each_table(self._spark, list(staged), merge)

    def _merge_by_spark(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        spark = next(iter(tables.values())).spark
        waiting = {
            topic: table for topic, table in tables.items() if not self._has(table, commit=commit)
        }
        if not waiting:
            return
        files = self._files(waiting)
        staged: dict[str, _Staged] = {}

        def stage_table(topic: str) -> None:
            staged[topic] = self._staged(waiting[topic])

        def merge(topic: str) -> None:
            if staged[topic].versions:
                self._merge_table(waiting[topic], staged[topic].frame, files=files)

        with session_settings(spark, {"spark.sql.shuffle.partitions": str(files)}):
            for_each_table(spark, list(waiting), stage_table)
        # First: whether the table lacks a row can be seen as long as it is without the release.
        for topic, table in waiting.items():
            if staged[topic].lost:
                self._set_aside(table, staged[topic].frame, commit=commit)
        with (
            session_settings(spark, merge_settings(files, commit)),
            # Delta would send all rows of a partition to one task, which writes one file.
            session_settings(
                spark, {"spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false"}
            ),
        ):
            for_each_table(spark, list(waiting), merge)
        for of_table in staged.values():
            free(of_table.frame)

    def _has(self, table: AnyTable, *, commit: Commit) -> bool:
        """Whether the table has the release, by all commits up to now."""
        log = self._tables.log(table.spark, table.schemas.table)
        log.follow()
        return log.written(commit) is not None

    def _staged(self, table: AnyTable) -> _Staged:
        spark, name = table.spark, table.schemas.table
        # The version that was looked at: another run may commit the release in the meantime.
        reader = spark.read.format("delta").option(
            "versionAsOf", self._tables.log(spark, name).head
        )
        current = reader.load(self._tables.address(name)).where(F.col(self._columns.is_current))
        staged = stage(
            table.frame,
            current,
            columns=mirror_columns(table.schemas),
            keys=key_names(table.schemas),
            version_columns=self._columns,
            rows=table.rows,
        )
        versions = F.count_if(F.col("closes") | F.col("opens"))
        checkpoint, counts = checkpointed(staged, versions=versions, lost=F.count_if("is_lost"))
        return _Staged(checkpoint, **counts)

    def _set_aside(self, table: AnyTable, staged: DataFrame, *, commit: Commit) -> None:
        """Append the UPDATEs of rows that the table lacks to the incomplete table."""
        lost = staged.where("is_lost").select(F.col("ordinal").alias("of_ordinal")).alias("lost")
        is_lost = F.expr("c.ordinal = lost.of_ordinal")
        changes = table.frame.alias("c").join(lost, is_lost, "left_semi")
        self._incomplete.append_frame(table, changes, commit=commit)

    def _merge_table(self, table: AnyTable, staged: DataFrame, *, files: int) -> None:
        name = table.schemas.table
        merge_staged(
            DeltaTable.forPath(table.spark, self._tables.address(name)),
            staged,
            columns=mirror_columns(table.schemas),
            keys=key_names(table.schemas),
            version_columns=self._columns,
            files=files,
        )
        self._tables.log(table.spark, name).follow()

"""Every source table as it was at the watermark: one MERGE per table and release.

An INSERT replaces the row, a DELETE removes it, an UPDATE changes the columns that it captured.  An
UPDATE of a row that the mirror lacks (the stream started after the row's INSERT) never creates one:
its changes go to `<output>/incomplete/<table>`.  An UPDATE before an INSERT or DELETE of the same
key and release has no effect.  Exactly once: a release that a table's commits name is not merged
again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from delta.tables import DeltaTable
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StructType

from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.core.topic_schemas import row_columns
from tidegate.spark_consumer.sinks.delta.commit_log import Commit, CommitLog
from tidegate.spark_consumer.sinks.delta.fold import (
    DELETE,
    PATCH,
    REPLACE,
    captured_flag,
    fold,
    folded_value,
)
from tidegate.spark_consumer.sinks.delta.tables import (
    SinkTables,
    for_each_table,
    session_settings,
)
from tidegate.spark_consumer.sinks.port import TableVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
    from tidegate.spark_consumer.sinks.port import DecodedTable, Release

__all__ = ["DeltaMirrorSink"]

_log = structlog.get_logger(__name__)


class DeltaMirrorSink:
    """Merges into `<output>/mirror/<table>`.

    `incomplete_changes` counts the changes that went to the incomplete tables since `open`.
    """

    name = "mirror"

    def __init__(self, spark: SparkSession, output: str) -> None:
        """Take the output's address."""
        self._spark = spark
        self._tables = SinkTables(output, folder="mirror", sink=self.name)
        self._incomplete = SinkTables(output, folder="incomplete", sink="incomplete")
        self.incomplete_changes = 0

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        for tables in (self._tables, self._incomplete):
            tables.open(self._spark, query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Merge what the tables lack; return every table's version at this release.

        Raises SchemaError for a column whose type changed.
        """
        if not release.tables:
            return {}
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        # The session of the frames: within a streaming query it is not the one of the sink.
        spark = next(iter(release.tables.values())).frame.sparkSession
        for one in release.tables.values():
            schema = _mirror_schema(one.frame)
            self._tables.prepare(spark, one.schemas.table, schema=schema, commit=commit)
        unmatched_updates: dict[str, DataFrame] = {}

        def merge(topic: str) -> None:
            folded = self._merge_table(release.tables[topic], commit=commit)
            if folded is not None:
                unmatched_updates[topic] = folded

        changed = [topic for topic, one in release.tables.items() if one.rows]
        files = [
            self._tables.files_of_merge(spark, one.schemas.table, rows=one.rows)
            for one in map(release.tables.__getitem__, changed)
        ]
        # MERGE takes these from the session only; all tables of a release share them.
        settings = {
            "spark.databricks.delta.commitInfo.userMetadata": commit.metadata,
            "spark.databricks.delta.write.txnAppId": commit.application,
            "spark.databricks.delta.write.txnVersion": str(commit.release),
            # The fold is materialised once, by `_merge_table`, which also counts it.
            "spark.databricks.delta.merge.materializeSource": "none",
            "spark.sql.shuffle.partitions": str(max(files, default=1)),
        }
        with session_settings(spark, settings):
            for_each_table(spark, changed, merge)
        # Outside of the MERGE's settings, which would mark the incomplete table's commits.
        for topic, folded in unmatched_updates.items():
            self._set_aside(release.tables[topic], folded, commit=commit)
            _unpersist(folded)
        return {
            one.schemas.table: TableVersion(
                self._tables.path(one.schemas.table),
                self._tables.log(spark, one.schemas.table).version_at(release.number),
            )
            for one in release.tables.values()
        }

    def _merge_table(self, one: DecodedTable, *, commit: Commit) -> DataFrame | None:
        """Merge one table; return its fold if an UPDATE in it matched no row."""
        spark, table = one.frame.sparkSession, one.schemas.table
        columns = row_columns(one.schemas.reader_schema)
        log = self._tables.log(spark, table)
        seen = Observation()
        folded = (
            fold(one.frame, columns)
            .observe(
                seen,
                F.count_if(F.col("action") != DELETE).alias("rows"),
                F.count_if((F.col("action") == DELETE) & F.col("updated_after_base")).alias("lost"),
            )
            .localCheckpoint(eager=True)
        )
        if log.written(commit) is None:
            mirror = DeltaTable.forPath(spark, self._tables.address(table))
            _merge(mirror, folded, columns=columns, keys=_key_names(one.schemas))
            log.follow()
        counted = seen.get
        if counted["lost"] or _merged_rows(log, commit) < counted["rows"]:
            return folded
        _unpersist(folded)
        return None

    def _set_aside(self, one: DecodedTable, folded: DataFrame, *, commit: Commit) -> None:
        """Append the UPDATEs without a row to the incomplete table, unless it has the release.

        A release never inserts a key that it only updates, so the mirror after the release lacks
        exactly the keys that it lacked before.
        """
        changes, schemas = one.frame, one.schemas
        spark, table = changes.sparkSession, schemas.table
        aside = Commit(commit.query_id, "incomplete", commit.release, commit.through_us)
        version = self._tables.log(spark, table).version_at(commit.release)
        mirror = spark.read.format("delta").option("versionAsOf", version)
        known = mirror.load(self._tables.address(table)).select(_key_struct(_key_names(schemas)))
        patched = folded.where(F.col("action") == PATCH).select("key", "base_ordinal").alias("p")
        unknown = patched.join(known.alias("m"), F.expr("p.key <=> m.key"), "left_anti")
        after_delete = folded.where((F.col("action") == DELETE) & F.col("updated_after_base"))
        lost = unknown.unionByName(after_delete.select("key", "base_ordinal")).alias("lost")
        rows = (
            changes.alias("c")
            .where("c.mod_type = 'UPDATE'")
            .join(
                lost,
                F.expr("c.key <=> lost.key and c.ordinal > coalesce(lost.base_ordinal, -1)"),
                "left_semi",
            )
            .coalesce(1)
            .sortWithinPartitions("ordinal")
            .localCheckpoint(eager=True)
        )
        side, count = self._incomplete, rows.count()
        if count and side.log(spark, table).written(aside) is None:
            side.prepare(spark, table, schema=changes.schema, commit=aside)
            side.append(rows, table, commit=aside)
            self.incomplete_changes += count
            log = _log.bind(table=table, release=commit.release, changes=count)
            log.warning("updates of rows that the mirror lacks", stored_in=side.path(table))
        _unpersist(rows)


def _merged_rows(log: CommitLog, commit: Commit) -> int:
    """Return how many rows the release's MERGE inserted or updated, by its own metrics."""
    written = log.written(commit)
    if written is None:  # the MERGE changed nothing, and made no commit
        return 0
    parts = ("numTargetRowsInserted", "numTargetRowsUpdated")
    return sum(int(written.metrics.get(part, "0")) for part in parts)


def _merge(
    mirror: DeltaTable, folded: DataFrame, *, columns: Sequence[str], keys: Sequence[str]
) -> None:
    """Apply folded changes; keys are also equal where both are null."""
    same_key = " AND ".join(f"t.`{key}` <=> s.key.`{key}`" for key in keys)
    positions = {column: n for n, column in enumerate(columns)}
    # A table of key columns only has nothing to patch, but a MERGE must assign something.
    assigned = [column for column in columns if column not in keys] or list(keys)
    changed: dict[str, str | Column] = {
        f"`{column}`": F.expr(
            f"CASE WHEN s.{captured_flag(positions[column])} "
            f"THEN s.{folded_value(positions[column])} ELSE t.`{column}` END"
        )
        for column in assigned
    }
    inserted: dict[str, str | Column] = {
        f"`{column}`": F.col(f"s.{folded_value(n)}") for column, n in positions.items()
    }
    (
        mirror.alias("t")
        .merge(folded.alias("s"), same_key)
        .whenMatchedDelete(f"s.action = '{DELETE}'")
        .whenMatchedUpdate(set=changed)
        .whenNotMatchedInsert(f"s.action = '{REPLACE}'", values=inserted)
        .execute()
    )


def _mirror_schema(changes: DataFrame) -> StructType:
    row = changes.schema["new_values"].dataType
    if not isinstance(row, StructType):
        message = "new_values is not a record"
        raise SchemaError(message, type=row.simpleString())
    return row


def _key_names(schemas: TopicSchemas) -> list[str]:
    return [field["name"] for field in schemas.key_schema["fields"]]


def _key_struct(keys: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"`{key}`") for key in keys)).alias("key")


def _unpersist(checkpointed: DataFrame) -> None:
    """Free a local checkpoint now, not at the next garbage collection."""
    checkpointed._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001, FBT003

"""Every source table as it was at W: one MERGE per table and release.

An INSERT replaces the row, a DELETE removes it, an UPDATE changes the columns that it captured.  An
UPDATE of a row that the mirror never had (a stream that began after the row) never invents one: its
changes go to `<output>/incomplete/<table>`, counted.  An UPDATE that an INSERT or DELETE of the
same release makes void leaves no trace.  Once: a release that a table's commits name is not merged
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
from tidegate.spark_consumer.spark.commit_log import Commit
from tidegate.spark_consumer.spark.decode import count_rows_by_topic, decode_changes, row_columns
from tidegate.spark_consumer.spark.delta_tables import (
    SinkTables,
    for_each_table,
    session_settings,
)
from tidegate.spark_consumer.spark.mirror_fold import (
    DELETE,
    PATCH,
    REPLACE,
    captured_flag,
    fold,
    folded_value,
)
from tidegate.spark_consumer.spark.sink import TableVersion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from tidegate.spark_consumer.spark.sink import Release, TopicSchemas

__all__ = ["DeltaMirrorSink"]

_log = structlog.get_logger(__name__)


class DeltaMirrorSink:
    """Merges into `<output>/mirror/<table>`.

    `incomplete_changes` counts, since `open`, the changes that went to the side tables.
    """

    name = "mirror"

    def __init__(self, spark: SparkSession, output: str) -> None:
        """Take where to write."""
        self._spark = spark
        self._tables = SinkTables(output, folder="mirror", sink=self.name)
        self._incomplete = SinkTables(output, folder="incomplete", sink="incomplete")
        self.incomplete_changes = 0

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        for tables in (self._tables, self._incomplete):
            tables.open(self._spark, query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Merge what is not there yet; returns every table's version at this release.

        Raises SchemaError for a column whose type changed.
        """
        spark = release.rows.sparkSession
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        rows = count_rows_by_topic(release)
        changes = {topic: decode_changes(release, topic) for topic in release.topics}
        for topic, schemas in release.topics.items():
            self._tables.prepare(
                spark, schemas.table, schema=_mirror_schema(changes[topic]), commit=commit
            )

        homeless: dict[str, DataFrame] = {}

        def merge(topic: str) -> None:
            folded = self._merge_table(changes[topic], release.topics[topic], commit=commit)
            if folded is not None:
                homeless[topic] = folded

        # MERGE takes these from the session only; all tables of a release share them.
        settings = {
            "spark.databricks.delta.commitInfo.userMetadata": commit.metadata,
            "spark.databricks.delta.write.txnAppId": commit.application,
            "spark.databricks.delta.write.txnVersion": str(commit.release),
            # The folded changes are materialised once, by us: counting them comes with it.
            "spark.databricks.delta.merge.materializeSource": "none",
        }
        with session_settings(spark, settings):
            for_each_table(spark, [topic for topic in changes if rows.get(topic)], merge)
        # Not under the settings of the MERGE: they would be taken for the side table's.
        for topic, folded in homeless.items():
            schemas = release.topics[topic]
            self._set_aside(changes[topic], folded, schemas=schemas, commit=commit)
            _forget(folded)
        return {
            schemas.table: TableVersion(
                self._tables.path(schemas.table),
                self._tables.log(spark, schemas.table).version_at(spark, release.number),
            )
            for schemas in release.topics.values()
        }

    def _merge_table(
        self, changes: DataFrame, schemas: TopicSchemas, *, commit: Commit
    ) -> DataFrame | None:
        """Merge one table; returns its folded changes if an UPDATE among them found no row."""
        spark, table = changes.sparkSession, schemas.table
        columns = row_columns(schemas.reader_schema)
        log = self._tables.log(spark, table)
        seen = Observation()
        folded = (
            fold(changes, columns)
            .observe(
                seen,
                F.count_if(F.col("action") != DELETE).alias("rows"),
                F.count_if((F.col("action") == DELETE) & F.col("updated_after_base")).alias("lost"),
            )
            .localCheckpoint(eager=True)
        )
        if log.written(spark, commit) is None:
            mirror = DeltaTable.forPath(spark, self._tables.address(table))
            _merge(mirror, folded, columns=columns, keys=_key_names(schemas))
            log.follow()
        counted = seen.get
        if counted["lost"] or self._arrived(table, commit, spark=spark) < counted["rows"]:
            return folded
        _forget(folded)
        return None

    def _arrived(self, table: str, commit: Commit, *, spark: SparkSession) -> int:
        """Return how many rows the release's MERGE inserted or updated, by its own metrics."""
        written = self._tables.log(spark, table).written(spark, commit)
        if written is None:  # nothing to change: no commit
            return 0
        parts = ("numTargetRowsInserted", "numTargetRowsUpdated")
        return sum(int(written.metrics.get(part, "0")) for part in parts)

    def _set_aside(
        self, changes: DataFrame, folded: DataFrame, *, schemas: TopicSchemas, commit: Commit
    ) -> None:
        """Write the UPDATEs without a row to the side table; also on a replay, which may lack them.

        No key that was only updated is inserted by its release, so the mirror after the release
        lacks exactly the keys that it lacked before.
        """
        spark, table = changes.sparkSession, schemas.table
        aside = Commit(commit.query_id, "incomplete", commit.release, commit.through_us)
        version = self._tables.log(spark, table).version_at(spark, commit.release)
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
        if count and side.log(spark, table).written(spark, aside) is None:
            side.prepare(spark, table, schema=changes.schema, commit=aside)
            side.append(rows, table, commit=aside)
            self.incomplete_changes += count
            log = _log.bind(table=table, release=commit.release, changes=count)
            log.warning("updates of rows that the mirror never had", side=side.path(table))
        _forget(rows)


def _merge(
    mirror: DeltaTable, folded: DataFrame, *, columns: Sequence[str], keys: Sequence[str]
) -> None:
    """Apply folded changes; keys are equal also where both are null."""
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
        message = "a change record whose new_values is no record"
        raise SchemaError(message, type=row.simpleString())
    return row


def _key_names(schemas: TopicSchemas) -> list[str]:
    return [field["name"] for field in schemas.key_schema["fields"]]


def _key_struct(keys: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"`{key}`") for key in keys)).alias("key")


def _forget(checkpointed: DataFrame) -> None:
    """Free a local checkpoint now and not at the next garbage collection."""
    checkpointed._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001, FBT003

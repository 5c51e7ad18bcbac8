"""Every source table as it was at the watermark: one MERGE per table and release, or several.

An INSERT replaces the row, a DELETE removes it, an UPDATE changes the columns that it captured.  An
UPDATE of a row that the mirror lacks (the stream started after the row's INSERT) never creates one:
its changes go to `<output>/incomplete/<table>`.  An UPDATE before an INSERT or DELETE of the same
key and merge has no effect.  Exactly once: a release that a table's commits name is not merged
again.  Where the mirror takes several releases at once, they come from the changelog, as one that
has the number of the last.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from delta.tables import DeltaTable
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.core.cadence import MIRROR
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.delta.changelog_reader import ORDINALS, ChangelogReader
from tidegate.spark_consumer.sinks.delta.commit_log import Commit, CommitLog
from tidegate.spark_consumer.sinks.delta.direct_merge import merge_folded, unmatched_updates
from tidegate.spark_consumer.sinks.delta.fold import (
    DELETE,
    PATCH,
    REPLACE,
    captured_flag,
    fold,
    folded_value,
)
from tidegate.spark_consumer.sinks.delta.mirror_scope import (
    MirrorScope,
    left_out,
    mirror_columns,
    mirror_schema,
)
from tidegate.spark_consumer.sinks.delta.row_fold import FoldedRow, fold_rows
from tidegate.spark_consumer.sinks.delta.tables import (
    SinkTables,
    for_each_table,
    session_settings,
)
from tidegate.spark_consumer.sinks.observed import observed
from tidegate.spark_consumer.sinks.port import TableVersion

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
    from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
    from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
    from tidegate.spark_consumer.sinks.port import AnyTable, Merge, Release

__all__ = ["DeltaMirrorSink"]

_log = structlog.get_logger(__name__)

_MERGED = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    # The same in a commit of delta-rs.
    "num_target_rows_inserted",
    "num_target_rows_updated",
)


class DeltaMirrorSink:
    """Merges into `<output>/mirror/<table>`.

    `incomplete_changes` counts the changes that went to the incomplete tables since `open`.
    """

    name = MIRROR

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        direct: DirectWay | None = None,
        accepted: Iterable[str] = (),
    ) -> None:
        """Take the output's address, and how small releases are written without Spark.

        `accepted` says what mirrors are written in spite of, as the setting `mirror_accepts`.
        """
        self._spark = spark
        self._scope = MirrorScope(accepted)
        self._tables = SinkTables(output, folder="mirror", sink=self.name, direct=direct)
        self._incomplete = SinkTables(output, folder="incomplete", sink="incomplete", direct=direct)
        self._changelog = ChangelogReader(spark, output, direct=direct)
        self.incomplete_changes = 0

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        for tables in (self._tables, self._incomplete):
            tables.open(self._spark, query_id=query_id, release_max=release_max)
        self._changelog.open(query_id=query_id)

    def merge(self, merge: Merge) -> Mapping[str, TableVersion]:
        """Merge several releases as `write` does one; raises also ChangesNotConserved.

        That is for a changelog that does not hold what was released.
        """
        return self.write(self._changelog.release(merge))

    def versions(self, release: int, tables: Iterable[TopicSchemas]) -> Mapping[str, TableVersion]:
        """Return the version of each of the tables at a release, of those that it had by then."""
        found = {}
        for schemas in tables:
            log = self._tables.log(self._spark, schemas.table)
            version = log.find_version(release) if log.exists else None
            if version is not None:
                path = self._tables.path(schemas.table)
                found[schemas.table] = TableVersion(path, version, left_out=left_out(schemas))
        return found

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Merge what the tables lack; return every table's version at this release.

        Raises SchemaError for a column whose type changed, and FilteredMirror if the change stream
        leaves out what a mirror needs.
        """
        if not release.tables:
            return {}
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        spark = next(iter(release.tables.values())).spark
        for one in release.tables.values():
            schema, table = mirror_schema(one), one.schemas.table
            if one.rows or not self._tables.log(spark, table).exists:
                self._scope.require(one.schemas, partial(self._tables.columns, spark, table))
                self._tables.prepare(spark, table, schema=schema, commit=commit)
        changed = [topic for topic, one in release.tables.items() if one.rows]
        rest = self._merge_directly(release, changed, commit=commit)
        if rest:
            self._merge_by_spark(release, rest, commit=commit)
        return {
            one.schemas.table: TableVersion(
                self._tables.path(one.schemas.table),
                self._tables.log(spark, one.schemas.table).version_at(release.number),
                left_out=left_out(one.schemas),
            )
            for one in release.tables.values()
        }

    def _merge_directly(
        self, release: Release, changed: Sequence[str], *, commit: Commit
    ) -> list[str]:
        """Merge what delta-rs may; return the topics that are left to Spark."""
        opened: dict[str, tuple[CollectedTable, DirectTable]] = {}
        for topic in changed:
            one = release.tables[topic]
            mirror = self._opened(one)
            if isinstance(one, CollectedTable) and mirror is not None:
                opened[topic] = one, mirror
        unmatched: dict[str, list[FoldedRow]] = {}

        def merge(topic: str) -> None:
            one, mirror = opened[topic]
            unmatched[topic] = self._merge_rows(one, mirror, commit=commit)

        for_each_table(self._spark, list(opened), merge)
        for topic, folded in unmatched.items():
            if folded:
                self._set_rows_aside(opened[topic][0], folded, commit=commit)
        return [topic for topic in changed if topic not in opened]

    def _opened(self, one: AnyTable, *, version: int | None = None) -> DirectTable | None:
        """Return the mirror's table for delta-rs, or None if Spark writes it."""
        direct, table = self._tables.direct, one.schemas.table
        if direct is None or not isinstance(one, CollectedTable):
            return None
        keys, schema = _key_names(one.schemas), mirror_schema(one)
        return direct.mirror(self._tables.path(table), schema=schema, keys=keys, version=version)

    def _merge_rows(
        self, one: CollectedTable, mirror: DirectTable, *, commit: Commit
    ) -> list[FoldedRow]:
        """Merge one table by delta-rs; return its fold if an UPDATE in it matched no row."""
        columns, keys = mirror_columns(one.schemas), _key_names(one.schemas)
        log = self._tables.log(one.spark, one.schemas.table)
        folded = fold_rows(one.changes, columns)
        if log.written(commit) is None:
            merge_folded(mirror, folded, columns=columns, keys=keys, commit=commit)
            log.follow()
        kept = [row for row in folded if row.action != DELETE]
        lost = any(row.action == DELETE and row.updated_after_base for row in folded)
        return folded if lost or _merged_rows(log, commit) < len(kept) else []

    def _set_rows_aside(
        self, one: CollectedTable, folded: Sequence[FoldedRow], *, commit: Commit
    ) -> None:
        """Append the UPDATEs without a row to the incomplete table, as `_set_aside` does."""
        version = self._tables.log(one.spark, one.schemas.table).version_at(commit.release)
        mirror = self._opened(one, version=version)
        if mirror is None:
            frame = fold(one.frame, mirror_columns(one.schemas))
            self._set_aside(one, frame, commit=commit)
            return
        lost = unmatched_updates(mirror, folded, keys=_key_names(one.schemas))
        bases = {tuple(row.key.values()): row for row in lost}
        changes = [
            change
            for change in one.changes
            if change["mod_type"] == "UPDATE"
            and (base := bases.get(tuple(change["key"].values()))) is not None
            and base.is_after_base(change["ordinal"])
        ]
        rows = [{**change, "ordinal": change["ordinal"] % ORDINALS} for change in changes]
        self._append_aside(
            one,
            len(rows),
            lambda aside: self._incomplete.append_changes(
                one, rows, commit=aside, frame=lambda: _as_released(_only(one.frame, changes))
            ),
            commit=commit,
        )

    def _merge_by_spark(self, release: Release, changed: Sequence[str], *, commit: Commit) -> None:
        spark = release.tables[changed[0]].spark
        unmatched: dict[str, DataFrame] = {}

        def merge(topic: str) -> None:
            folded = self._merge_table(release.tables[topic], commit=commit)
            if folded is not None:
                unmatched[topic] = folded

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
        for topic, folded in unmatched.items():
            self._set_aside(release.tables[topic], folded, commit=commit)
            _unpersist(folded)

    def _merge_table(self, one: AnyTable, *, commit: Commit) -> DataFrame | None:
        """Merge one table; return its fold if an UPDATE in it matched no row."""
        spark, table = one.spark, one.schemas.table
        columns = mirror_columns(one.schemas)
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
        counted = observed(seen)
        if counted["lost"] or _merged_rows(log, commit) < counted["rows"]:
            return folded
        _unpersist(folded)
        return None

    def _set_aside(self, one: AnyTable, folded: DataFrame, *, commit: Commit) -> None:
        """Append the UPDATEs without a row to the incomplete table, unless it has the release.

        A release never inserts a key that it only updates, so the mirror after the release lacks
        exactly the keys that it lacked before.
        """
        changes, schemas = one.frame, one.schemas
        spark, table = one.spark, schemas.table
        version = self._tables.log(spark, table).version_at(commit.release)
        mirror = spark.read.format("delta").option("versionAsOf", version)
        known = mirror.load(self._tables.address(table)).select(_key_struct(_key_names(schemas)))
        # Under names of their own: Spark takes columns that both sides of a join have for one.
        base = (F.col("key").alias("of_key"), F.col("base_ordinal").alias("after_ordinal"))
        patched = folded.where(F.col("action") == PATCH).select(*base).alias("p")
        unknown = patched.join(known.alias("m"), F.expr("p.of_key <=> m.key"), "left_anti")
        after_delete = folded.where((F.col("action") == DELETE) & F.col("updated_after_base"))
        lost = unknown.unionByName(after_delete.select(*base)).alias("lost")
        rows = _as_released(
            changes.alias("c")
            .where("c.mod_type = 'UPDATE'")
            .join(
                lost,
                F.expr("c.key <=> lost.of_key and c.ordinal > coalesce(lost.after_ordinal, -1)"),
                "left_semi",
            )
            .coalesce(1)
            .sortWithinPartitions("ordinal")
        ).localCheckpoint(eager=True)
        self._append_aside(
            one,
            rows.count(),
            lambda aside: self._incomplete.append(rows, table, commit=aside),
            commit=commit,
        )
        _unpersist(rows)

    def _append_aside(
        self, one: AnyTable, count: int, append: Callable[[Commit], None], *, commit: Commit
    ) -> None:
        side, table = self._incomplete, one.schemas.table
        aside = Commit(commit.query_id, "incomplete", commit.release, commit.through_us)
        if count and side.log(one.spark, table).written(aside) is None:
            side.prepare(one.spark, table, schema=one.schema, commit=aside)
            append(aside)
            self.incomplete_changes += count
            log = _log.bind(table=table, release=commit.release, changes=count)
            log.warning("updates of rows that the mirror lacks", stored_in=side.path(table))


def _merged_rows(log: CommitLog, commit: Commit) -> int:
    """Return how many rows the release's MERGE inserted or updated, by its own metrics."""
    written = log.written(commit)
    if written is None:  # the MERGE changed nothing, and made no commit
        return 0
    return sum(int(written.metrics.get(part, "0")) for part in _MERGED)


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


def _key_names(schemas: TopicSchemas) -> list[str]:
    return [field["name"] for field in schemas.key_schema["fields"]]


def _key_struct(keys: Sequence[str]) -> Column:
    return F.struct(*(F.col(f"`{key}`") for key in keys)).alias("key")


def _as_released(changes: DataFrame) -> DataFrame:
    """Return changes of several releases with the ordinals that they were released with."""
    return changes.withColumn("ordinal", F.col("ordinal") % ORDINALS)


def _only(frame: DataFrame, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    ordinals = [row["ordinal"] for row in rows]
    return frame.where(F.col("ordinal").isin(ordinals)).coalesce(1).sortWithinPartitions("ordinal")


def _unpersist(checkpointed: DataFrame) -> None:
    """Free a local checkpoint now, not at the next garbage collection."""
    checkpointed._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001, FBT003

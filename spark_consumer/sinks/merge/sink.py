"""Base classes of the sinks that merge releases: for every format, and for Delta's two writers.

A subclass defines the columns of its tables and the merge of a release, for Delta by delta-rs and
by Spark.  Several releases at once come from the Delta changelog, merged as one release with the
number of the last.  Exactly once: a release that a table's commits name is not merged again.

UPDATEs of rows that the tables lack go to side tables.  The stream began after these rows were
inserted, so that the columns which an UPDATE did not capture are unknown.  Such UPDATEs are kept
unchanged, with the release and the ordinal of their release.

The mirror by key takes batches before their release and has no side table: `by_key`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypedDict, Unpack

import structlog
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.core.sink_names import HISTORY
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.delta.changelog_reader import ORDINALS, ChangelogReader
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.merge.fold import DELETE, PATCH
from tidegate.spark_consumer.sinks.merge.scope import MirrorScope, key_names, left_out
from tidegate.spark_consumer.sinks.port import (
    AnyTable,
    CollectedTable,
    Merge,
    Release,
    TableVersion,
)
from tidegate.spark_consumer.sinks.sql import free
from tidegate.spark_consumer.sinks.tables import Commit, LoggedTables, TableRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable


_log = structlog.get_logger(__name__)


class MergeOptions(TypedDict, total=False):
    """Options of each sink that merges into Delta tables."""

    direct: DirectWay | None
    """How small releases are written without Spark."""
    accepted: Iterable[str]
    """Accepted gaps of the change stream, as in the setting `mirror_accepts`."""
    layout: TableLayout | None
    """The layout of new tables."""


class IncompleteTables:
    """The side tables of a sink, with the UPDATEs of rows that its tables lack."""

    def __init__(self, tables: LoggedTables, *, sink: str, merging_sink: str) -> None:
        """Take the side tables, the sink that their commits name, and the sink that merges."""
        self._tables = tables
        self._sink = sink
        self._merging_sink = merging_sink

    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:
        """Check every existing table, as `LoggedTables.open` does."""
        self._tables.open(spark, query_id=query_id, release_max=release_max)

    def heads(self) -> dict[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return self._tables.heads()

    def append_rows(
        self, table: CollectedTable, changes: Sequence[Mapping[str, Any]], *, commit: Commit
    ) -> None:
        """Append changes of a small release, unless the table has those of the release."""
        rows = [{**change, "ordinal": change["ordinal"] % ORDINALS} for change in changes]
        self._append(
            table,
            len(rows),
            lambda: _as_released(_only(table.frame, changes)),
            rows,
            commit=commit,
        )

    def append_frame(self, table: AnyTable, changes: DataFrame, *, commit: Commit) -> None:
        """Append changes of a release in commit order, unless the table has those of the release.

        One job computes the frame.
        """
        in_order = changes.coalesce(1).sortWithinPartitions("ordinal")
        rows = _as_released(in_order).localCheckpoint(eager=True)
        self._append(table, rows.count(), lambda: rows, commit=commit)
        free(rows)

    def _append(
        self,
        table: AnyTable,
        count: int,
        frame: Callable[[], DataFrame],
        changes: Sequence[Mapping[str, Any]] | None = None,
        *,
        commit: Commit,
    ) -> None:
        if not count:
            return
        side, spark, name = self._tables, table.spark, table.schemas.table
        aside = Commit(commit.query_id, self._sink, commit.release, commit.through_us)
        rows = TableRows(
            topic=name,
            table=name,
            spark=spark,
            schema=lambda: table.schema,
            frame=frame,
            sources={name: count},
            changes=changes,
        )
        side.begin(rows, commit=aside)
        with side.staging(spark, commit=aside):
            is_new = side.append(rows, commit=aside)
        if is_new:
            log = _log.bind(table=name, release=commit.release, changes=count)
            if self._merging_sink == HISTORY:
                log.warning("updates of rows that the history lacks", stored_in=side.path(name))
            else:
                log.warning("updates of rows that the mirror lacks", stored_in=side.path(name))


def lost_updates(changes: DataFrame, folded: DataFrame, keys: DataFrame) -> DataFrame:
    """Return the UPDATEs among changes that change no row; `folded` is the fold of the same.

    `keys` has a column `key` with each key of the mirror, before these changes or after them: a
    fold never inserts a key that it only updates.
    """
    # Under other names: Spark takes columns that both sides of a join have for one.
    base = (F.col("key").alias("of_key"), F.col("base_ordinal").alias("after_ordinal"))
    patched = folded.where(F.col("action") == PATCH).select(*base).alias("p")
    unknown = patched.join(keys.alias("m"), F.expr("p.of_key <=> m.key"), "left_anti")
    after_delete = folded.where((F.col("action") == DELETE) & F.col("updated_after_base"))
    lost = unknown.unionByName(after_delete.select(*base)).alias("lost")
    return (
        changes.alias("c")
        .where("c.mod_type = 'UPDATE'")
        .join(
            lost,
            F.expr("c.key <=> lost.of_key and c.ordinal > coalesce(lost.after_ordinal, -1)"),
            "left_semi",
        )
    )


def _as_released(changes: DataFrame) -> DataFrame:
    """Return changes with the ordinals of their releases, without what a merge of several added."""
    return changes.withColumn("ordinal", F.col("ordinal") % ORDINALS)


def _only(frame: DataFrame, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    ordinals = [row["ordinal"] for row in rows]
    return frame.where(F.col("ordinal").isin(ordinals)).coalesce(1).sortWithinPartitions("ordinal")


class TableMergingSink(ABC):
    """Merges into one table for each source table, with a side table; a `MergingSink`."""

    name: ClassVar[str]
    _tables: LoggedTables

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        tables: LoggedTables,
        incomplete: IncompleteTables,
        scope: MirrorScope,
        direct: DirectWay | None = None,
    ) -> None:
        """Take the output's address, the tables, and the side tables.

        `scope` checks the omissions of the change stream, and `direct` reads small parts of the
        changelog without Spark.
        """
        self._spark = spark
        self._tables = tables
        self._incomplete = incomplete
        self._scope = scope
        self._changelog = ChangelogReader(spark, output, direct=direct)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        for tables in (self._tables, self._incomplete):
            tables.open(self._spark, query_id=query_id, release_max=release_max)
        self._changelog.open(query_id=query_id)

    def merge(self, merge: Merge) -> Mapping[str, TableVersion]:
        """Merge several releases as `write` merges one.

        Raises also ChangesNotConserved if the changelog does not hold the released changes.
        """
        return self.write(self._changelog.release(merge))

    def versions(self, release: int, tables: Iterable[TopicSchemas]) -> Mapping[str, TableVersion]:
        """Return the version at a release of each of the tables that existed by then."""
        versions = {}
        for schemas in tables:
            log = self._tables.log(self._spark, schemas.table)
            version = log.find_version(release) if log.exists else None
            if version is not None:
                path = self._tables.path(schemas.table)
                versions[schemas.table] = TableVersion(path, version, left_out=left_out(schemas))
        return versions

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Merge the changes that the tables lack; return every table's version at this release.

        Raises SchemaError for a column whose type changed, and FilteredMirror if the change stream
        leaves out what the tables need.
        """
        if not release.tables:
            return {}
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        spark = next(iter(release.tables.values())).spark
        for table in release.tables.values():
            schema, name = self._schema(table), table.schemas.table
            if table.rows or not self._tables.log(spark, name).exists:
                self._scope.require(table.schemas, partial(self._tables.columns, spark, name))
                self._tables.prepare(spark, name, schema=schema, commit=commit)
        changed = {topic: table for topic, table in release.tables.items() if table.rows}
        if changed:
            self._merge_changed(changed, commit=commit)
        return {
            table.schemas.table: TableVersion(
                self._tables.path(table.schemas.table),
                self._tables.log(spark, table.schemas.table).version_at(release.number),
                left_out=left_out(table.schemas),
            )
            for table in release.tables.values()
        }

    @abstractmethod
    def _schema(self, table: AnyTable) -> StructType:
        """Return the columns of the sink's table and their types."""

    @abstractmethod
    def _merge_changed(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        """Merge the tables with changes, by topic, unless they have the release.

        There is one at least, and all are of one session.
        """


class DeltaMergingSink(TableMergingSink):
    """Merges into `<output>/<name>/<table>`; a `MergingSink`."""

    incomplete: ClassVar[str]
    """The name of the folder of the side tables."""
    _tables: SinkTables

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        part: Mapping[str, Any] | None = None,
        **options: Unpack[MergeOptions],
    ) -> None:
        """Take the output's address.

        `part` is the partition, by column, that holds every row which a merge may change, where it
        is not all of the table: tables are partitioned by these columns.
        """
        direct = options.get("direct")
        self._output = output
        self._part = dict(part or {})
        tables = SinkTables(
            output,
            self.name,
            sink=self.name,
            direct=direct,
            partitioned_by=tuple(self._part),
            layout=options.get("layout"),
        )
        side = SinkTables(output, self.incomplete, sink=self.incomplete, direct=direct)
        super().__init__(
            spark,
            output,
            tables=tables,
            incomplete=IncompleteTables(side, sink=self.incomplete, merging_sink=self.name),
            scope=MirrorScope(options.get("accepted", ()), sink=self.name),
            direct=direct,
        )

    def heads(self) -> Mapping[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return {**self._tables.heads(), **self._incomplete.heads()}

    def _merge_changed(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        opened: dict[str, tuple[CollectedTable, DirectTable]] = {}
        for topic, table in tables.items():
            opened_table = self._opened(table)
            if isinstance(table, CollectedTable) and opened_table is not None:
                opened[topic] = table, opened_table
        self._merge_directly(opened, commit=commit)
        rest = {topic: table for topic, table in tables.items() if topic not in opened}
        if rest:
            self._merge_by_spark(rest, commit=commit)

    @abstractmethod
    def _merge_directly(
        self, opened: Mapping[str, tuple[CollectedTable, DirectTable]], *, commit: Commit
    ) -> None:
        """Merge tables by delta-rs, by topic."""

    @abstractmethod
    def _merge_by_spark(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        """Merge tables by Spark, by topic; there is one at least, and all are of one session."""

    def _opened(self, table: AnyTable, *, version: int | None = None) -> DirectTable | None:
        """Return the sink's table for delta-rs, or None if Spark writes it."""
        direct = self._tables.direct
        if direct is None or not isinstance(table, CollectedTable):
            return None
        return direct.mirror(
            self._tables.path(table.schemas.table),
            schema=self._schema(table),
            keys=key_names(table.schemas),
            version=version,
            part=self._part,
        )

    def _files(self, tables: Mapping[str, AnyTable]) -> int:
        """Return how many files the MERGE of each of these tables writes at most."""
        return max(
            self._tables.files_of_merge(
                table.spark, table.schemas.table, rows=table.rows, part=self._part
            )
            for table in tables.values()
        )


def merge_settings(files: int, commit: Commit) -> dict[str, str]:
    """Return what MERGE takes from the session only; all tables of a release share it."""
    return {
        "spark.databricks.delta.commitInfo.userMetadata": commit.metadata,
        "spark.databricks.delta.write.txnAppId": commit.application,
        "spark.databricks.delta.write.txnVersion": str(commit.release),
        # The source is materialised once, before the MERGE, which also counts it.
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.sql.shuffle.partitions": str(files),
    }


def expressions(values: Mapping[str, str]) -> dict[str, str | Column]:
    """Return values of a MERGE's clause, which are SQL, as PySpark takes them."""
    return {name: F.expr(value) for name, value in values.items()}

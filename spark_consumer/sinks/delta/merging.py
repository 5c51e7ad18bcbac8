"""What the sinks that merge have in common: one folder of tables, a side table, the changelog.

A subclass says which columns its tables have and how a release is merged into them, by delta-rs and
by Spark.  Exactly once: a release that a table's commits name is not merged again.  Where several
releases are taken at once, they come from the changelog, as one that has the number of the last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.delta.changelog_reader import ChangelogReader
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.incomplete import IncompleteTables
from tidegate.spark_consumer.sinks.delta.mirror_scope import MirrorScope, left_out
from tidegate.spark_consumer.sinks.delta.tables import SinkTables, session_settings
from tidegate.spark_consumer.sinks.port import TableVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Column, SparkSession
    from pyspark.sql.types import StructType

    from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
    from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
    from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
    from tidegate.spark_consumer.sinks.delta.layout import TableLayout
    from tidegate.spark_consumer.sinks.port import AnyTable, Merge, Release

__all__ = ["DeltaMergingSink", "key_names", "key_struct"]


class DeltaMergingSink(ABC):
    """Merges into `<output>/<name>/<table>`; a `MergingSink`."""

    name: ClassVar[str]

    part: ClassVar[Mapping[str, Any]] = {}
    """The partition, by column, that holds every row which a merge may change; empty: all of it.

    Tables are partitioned by these columns.
    """

    incomplete: ClassVar[str]
    """The name of the folder of the side tables."""

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        direct: DirectWay | None = None,
        accepted: Iterable[str] = (),
        layout: TableLayout | None = None,
    ) -> None:
        """Take the output's address, and how small releases are written without Spark.

        `accepted` says what tables are written in spite of, as the setting `mirror_accepts`;
        `layout` is that of new tables.
        """
        self._spark = spark
        self._scope = MirrorScope(accepted, of=self.name)
        self._tables = SinkTables(
            output,
            folder=self.name,
            sink=self.name,
            direct=direct,
            partitioned_by=tuple(self.part),
            layout=layout,
        )
        self._incomplete = IncompleteTables(
            output, name=self.incomplete, of=self.name, direct=direct
        )
        self._changelog = ChangelogReader(spark, output, direct=direct)

    @property
    def incomplete_changes(self) -> int:
        """How many changes went to the incomplete tables since `open`."""
        return self._incomplete.changes

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        for tables in (self._tables, self._incomplete):
            tables.open(self._spark, query_id=query_id, release_max=release_max)
        self._changelog.open(query_id=query_id)

    def heads(self) -> Mapping[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return {**self._tables.heads(), **self._incomplete.heads()}

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
        leaves out what the tables need.
        """
        if not release.tables:
            return {}
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        spark = next(iter(release.tables.values())).spark
        for one in release.tables.values():
            schema, table = self._schema(one), one.schemas.table
            if one.rows or not self._tables.log(spark, table).exists:
                self._scope.require(one.schemas, partial(self._tables.columns, spark, table))
                self._tables.prepare(spark, table, schema=schema, commit=commit)
        changed = [topic for topic, one in release.tables.items() if one.rows]
        opened: dict[str, tuple[CollectedTable, DirectTable]] = {}
        for topic in changed:
            one = release.tables[topic]
            found = self._opened(one)
            if isinstance(one, CollectedTable) and found is not None:
                opened[topic] = one, found
        self._merge_directly(opened, commit=commit)
        rest = {topic: release.tables[topic] for topic in changed if topic not in opened}
        if rest:
            self._merge_by_spark(rest, commit=commit)
        return {
            one.schemas.table: TableVersion(
                self._tables.path(one.schemas.table),
                self._tables.log(spark, one.schemas.table).version_at(release.number),
                left_out=left_out(one.schemas),
            )
            for one in release.tables.values()
        }

    @abstractmethod
    def _schema(self, one: AnyTable) -> StructType:
        """Return the columns of the sink's table and their types."""

    @abstractmethod
    def _merge_directly(
        self, opened: Mapping[str, tuple[CollectedTable, DirectTable]], *, commit: Commit
    ) -> None:
        """Merge tables by delta-rs, by topic."""

    @abstractmethod
    def _merge_by_spark(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        """Merge tables by Spark, by topic; there is one at least, and all are of one session."""

    def _opened(self, one: AnyTable, *, version: int | None = None) -> DirectTable | None:
        """Return the sink's table for delta-rs, or None if Spark writes it."""
        direct = self._tables.direct
        if direct is None or not isinstance(one, CollectedTable):
            return None
        return direct.mirror(
            self._tables.path(one.schemas.table),
            schema=self._schema(one),
            keys=key_names(one.schemas),
            version=version,
            part=self.part,
        )

    def _files(self, tables: Mapping[str, AnyTable]) -> int:
        """Return how many files the MERGE of each of these tables writes at most."""
        return max(
            self._tables.files_of_merge(one.spark, one.schemas.table, rows=one.rows, part=self.part)
            for one in tables.values()
        )

    @contextmanager
    def _merging(self, spark: SparkSession, *, files: int, commit: Commit) -> Iterator[None]:
        """Set what MERGE takes from the session only; all tables of a release share it."""
        settings = {
            "spark.databricks.delta.commitInfo.userMetadata": commit.metadata,
            "spark.databricks.delta.write.txnAppId": commit.application,
            "spark.databricks.delta.write.txnVersion": str(commit.release),
            # The source is materialised once, before the MERGE, which also counts it.
            "spark.databricks.delta.merge.materializeSource": "none",
            "spark.sql.shuffle.partitions": str(files),
        }
        with session_settings(spark, settings):
            yield


def key_names(schemas: TopicSchemas) -> list[str]:
    """Return the key's columns, in primary key order."""
    return [field["name"] for field in schemas.key_schema["fields"]]


def key_struct(keys: Sequence[str]) -> Column:
    """Return a table's key as a decoded change has it."""
    return F.struct(*(F.col(f"`{key}`") for key in keys)).alias("key")

"""What the sinks that merge have in common, whatever the format of their tables.

A subclass says which columns its tables have and how a release is merged into them.  Where several
releases are taken at once, they come from the Delta changelog, as one that has the number of the
last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.delta.changelog_reader import ChangelogReader
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.mirror_scope import MirrorScope, left_out
from tidegate.spark_consumer.sinks.port import AnyTable, Merge, Release, TableVersion

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


class TableLog(Protocol):
    """What a table holds of our releases."""

    @property
    def exists(self) -> bool:
        """Whether the table is there."""

    def find_version(self, release: int) -> int | None:
        """Return the table's version after a release, None if it had none by then."""

    def version_at(self, release: int) -> int:
        """Return the table's version after a release that it has."""


class OpenedTables(Protocol):
    """Tables that are checked before anything is written."""

    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""


class MergedTables(OpenedTables, Protocol):
    """The tables of one sink, by source table."""

    def path(self, table: str) -> str:
        """Return what a manifest names a table."""

    def log(self, spark: SparkSession, table: str) -> TableLog:
        """Return a table's log; the table may not exist."""

    def columns(self, spark: SparkSession, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, none if it does not exist."""

    def prepare(
        self, spark: SparkSession, table: str, *, schema: StructType, commit: Commit
    ) -> None:
        """Create the table, or add the columns that it lacks; SchemaError for another type."""


_Tables = TypeVar("_Tables", bound=MergedTables)
_Side = TypeVar("_Side", bound=OpenedTables)


class TableMergingSink(ABC, Generic[_Tables, _Side]):
    """Merges into one table for each source table, with a side table; a `MergingSink`."""

    name: ClassVar[str]

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        tables: _Tables,
        incomplete: _Side,
        scope: MirrorScope,
        direct: DirectWay | None = None,
    ) -> None:
        """Take the output's address, the tables, and the side tables.

        `scope` says what the change stream may leave out, and `direct` is how small parts of the
        changelog are read without Spark.
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
        changed = {topic: one for topic, one in release.tables.items() if one.rows}
        if changed:
            self._merge_changed(changed, commit=commit)
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
    def _merge_changed(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        """Merge the tables with changes, by topic, unless they have the release.

        There is one at least, and all are of one session.
        """

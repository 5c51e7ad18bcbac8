"""The Iceberg tables of one sink: created, widened, and written in commits that name releases.

A release is written in two steps.  Spark stages it: a snapshot that no reader sees, under a name
that states the release.  Then one commit makes it the current snapshot and sets the properties that
state the release.  Iceberg refuses a second snapshot of one name, so that of two runs which write
the same release one publishes it; and a run that is killed between the steps leaves a snapshot that
disturbs no reader and that Iceberg's maintenance removes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.errors import CommitOvertaken
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace, JavaCatalog
from tidegate.spark_consumer.sinks.iceberg.snapshot_log import (
    SnapshotLog,
    owner_properties,
    release_properties,
)
from tidegate.spark_consumer.sinks.manifest import newest_manifest
from tidegate.spark_consumer.sinks.spark_types import as_nullable, as_type, lacks_columns
from tidegate.spark_consumer.sinks.sql import session_settings, text_literal
from tidegate.spark_consumer.sinks.tables import Commit, LoggedTables, TableRows, files_of_merge

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType


_STAGES = {"write.wap.enabled": "true"}
"""With this property Iceberg stages a session's writes under a name, instead of publishing them."""

_PROPERTIES = {
    **_STAGES,
    "format-version": "2",
    # Each commit writes the whole list of snapshots again.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
}

_ATTEMPTS = 4


class IcebergTables(LoggedTables):
    """Every table of a sink in one namespace, each with its log."""

    def __init__(
        self,
        output: str,
        place: IcebergPlace,
        *,
        kind: str,
        sink: str,
        properties: Mapping[str, str] | None = None,
        in_manifests: bool = True,
    ) -> None:
        """Take the output's address, the kind of the tables and the sink's name.

        New tables get `properties` in addition to the common ones.  `in_manifests` says whether
        manifests name these tables under the sink's name.
        """
        self._output = output.rstrip("/")
        self._place = place
        self._kind = kind
        self._sink = sink
        self._in_manifests = in_manifests
        self._properties = {**_PROPERTIES, **(properties or {})}
        self._query_id = ""
        self._logs: dict[str, SnapshotLog] = {}
        self._schemas: dict[str, StructType] = {}
        self._catalogs: dict[str, JavaCatalog] = {}

    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:
        """Check every existing table."""
        self._query_id = query_id
        self._logs, self._schemas, self._catalogs = {}, {}, {}
        for name in self._catalog(spark).names():
            self.log(spark, name).refuse_beyond(release_max)
        if not self._in_manifests:
            return
        newest = newest_manifest(Storage(spark, self._output), watermark_us=sys.maxsize)
        if newest is None or newest.query_id != query_id:
            return
        for name, version in newest.versions(self._sink).items():
            self.log(spark, name).require_version(version, release=newest.release)

    def path(self, table: str) -> str:
        """Return a table's name in manifests."""
        return self._place.path(self._kind, table)

    def identifier(self, table: str) -> str:
        """Return a table's whole name, as SQL takes it."""
        return self._place.identifier(self._kind, table)

    def log(self, spark: SparkSession, table: str) -> SnapshotLog:
        """Return a table's log, loaded once."""
        if table not in self._logs:
            invariant(self._query_id, "sink was written to before open()", sink=self._sink)
            log = SnapshotLog(self.identifier(table), query_id=self._query_id, sink=self._sink)
            log.load(self._catalog(spark).table(table))
            self._logs[table] = log
        return self._logs[table]

    def columns(self, spark: SparkSession, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, none if it does not exist."""
        if not self.log(spark, table).exists:
            return ()
        return tuple(spark.table(self.identifier(table)).columns)

    def prepare(
        self, spark: SparkSession, table: str, *, schema: StructType, commit: Commit
    ) -> None:
        """Create the table, or add the columns that it lacks."""
        wanted, log = as_nullable(schema), self.log(spark, table)
        if self._schemas.get(table) == wanted and log.exists:
            return
        java = self._catalog(spark).table(table)
        if not log.exists:
            self._create(spark, table, wanted, commit)
        log.load(java)
        if lacks_columns(spark.table(self.identifier(table)).schema, wanted, table=table):
            java.widen(wanted)
        if java.current() is None:  # also after a kill: each version in a manifest is a snapshot
            java.publish(None, owner_properties(commit), marker=commit.preparation)
            log.load(java)
        self._schemas[table] = wanted

    def write(
        self,
        spark: SparkSession,
        table: str,
        stage: Callable[[], None],
        *,
        commit: Commit,
        may_change_nothing: bool = False,
    ) -> bool:
        """Publish the writes of `stage` as a release's commit, unless the table has the release.

        `stage` runs within `staging`, and again if another commit came first or maintenance removed
        the staged snapshot.  With `may_change_nothing` it may commit nothing.  Returns whether this
        call published the release.  Raises CommitOvertaken if each attempt was overtaken.
        """
        log, java = self.log(spark, table), self._catalog(spark).table(table)
        for _ in range(_ATTEMPTS):
            log.load(java)
            if log.has(commit):
                return False
            if java.properties().get("write.wap.enabled") != "true":
                java.set_properties(_STAGES)
            before = java.commits()
            stage()
            staged = java.staged(commit.metadata)
            if staged is None and not (may_change_nothing and java.commits() == before):
                continue
            if java.publish(staged, release_properties(commit), marker=commit.metadata):
                log.load(java)
                invariant(log.has(commit), "a write left no release", table=self.path(table))
                return True
        log.load(java)
        if log.has(commit):
            return False
        raise CommitOvertaken(
            "other writers have committed to a table during each attempt to write to it",
            hint="Run maintenance of the table less often; a restart repeats the release",
            table=self.identifier(table),
        )

    @contextmanager
    def staging(
        self, spark: SparkSession, *, commit: Commit, files: int | None = None
    ) -> Iterator[None]:
        """Stage the session's writes within the block, which all tables of a release share.

        A MERGE writes `files` files at most.
        """
        settings = {"spark.wap.id": commit.metadata}
        if files is not None:
            settings["spark.sql.shuffle.partitions"] = str(files)
        with session_settings(spark, settings):
            yield

    def append(self, rows: TableRows, *, commit: Commit) -> bool:
        """Append rows within `staging`; columns that they lack are null."""
        name = self.identifier(rows.table)

        def stage() -> None:
            frame = rows.frame()
            fitting = as_type(frame, frame.sparkSession.table(name).schema)
            # For readers; Tidegate itself uses the name.  A MERGE takes no options.
            option = "snapshot-property.tidegate-release"
            fitting.writeTo(name).option(option, str(commit.release)).append()

        return self.write(rows.spark, rows.table, stage, commit=commit)

    def files_of_merge(self, spark: SparkSession, table: str, *, rows: int) -> int:
        """Return how many files a MERGE of `rows` changes writes at most, from the table's size."""
        java = self._catalog(spark).table(table)
        size = java.bytes() if java.load() else 0
        return files_of_merge(size, rows)

    def _catalog(self, spark: SparkSession) -> JavaCatalog:
        """Return the catalog of a session; a streaming query has another session.

        A catalog may cache tables: SQL reads the version that was loaded through the same catalog.
        """
        session = str(spark._jsparkSession.sessionUUID())  # noqa: SLF001 - each batch has another object of pyspark's
        if session not in self._catalogs:
            self._catalogs[session] = JavaCatalog(spark, self._place, self._kind)
        return self._catalogs[session]

    def _create(self, spark: SparkSession, table: str, schema: StructType, commit: Commit) -> None:
        types = spark._jvm.org.apache.spark.sql.types  # type: ignore[union-attr]  # noqa: SLF001 - pyspark writes no DDL
        columns = types.DataType.fromJson(schema.json()).toDDL()
        every = {**self._properties, **owner_properties(commit)}
        properties = ", ".join(
            f"{text_literal(name)} = {text_literal(value)}" for name, value in every.items()
        )
        namespace = self._place.namespace_identifier(self._kind)
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {namespace}")
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {self.identifier(table)} ({columns}) USING iceberg "
            f"TBLPROPERTIES ({properties})"
        )

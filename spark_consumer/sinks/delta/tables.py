"""The Delta tables of one sink: created, widened, and appended to with commits that name releases.

Owns table properties, session settings and schema checks; `commit_log` finds the commits again.
Invariant: exactly one commit per table and release carries rows, and its metadata says so.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StructType

from tidegate.schemas.errors import ConfigError, invariant
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.log_files import DeltaHistory
from tidegate.spark_consumer.sinks.manifest import Manifest, newest_manifest
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.spark_types import as_nullable, lacks_columns
from tidegate.spark_consumer.sinks.sql import quoted, session_settings
from tidegate.spark_consumer.sinks.tables import Commit, LoggedTables, TableRows, files_of_merge

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay


DELTA_SESSION_SETTINGS: Mapping[str, str] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    # Every write reads the table's state (its list of files and transactions): with few files, the
    # fifty tasks of Delta's default cost far more than the write.
    "spark.databricks.delta.snapshotPartitions": "1",
    # The rows of a file are in commit order; a rewrite by Delta would mix them.
    "spark.databricks.delta.optimizeWrite.enabled": "false",
    "spark.databricks.delta.autoCompact.enabled": "false",
    # Spark's own form of 96 bits holds nanoseconds, and other readers overflow in the year 1 or
    # 9999.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}
"""Settings of a session for the sinks; a cluster may set more than this."""

TABLE_PROPERTIES: Mapping[str, str] = {
    # Any reader opens the tables, also those that know neither deletion vectors nor column mapping.
    "delta.enableDeletionVectors": "false",
    "delta.columnMapping.mode": "none",
    # A checkpoint of the log doubles the time of its release; by default every tenth has one.
    "delta.checkpointInterval": "100",
}


class SinkTables(LoggedTables):
    """Every table of a sink below `<output>/<folder>/`, each with its commit log."""

    def __init__(
        self,
        output: str,
        folder: str,
        *,
        sink: str,
        direct: DirectWay | None = None,
        properties: Mapping[str, str] | None = None,
        partitioned_by: Sequence[str] = (),
        layout: TableLayout | None = None,
        is_single: bool = False,
        is_by_batch: bool = False,
    ) -> None:
        """Take the output's address (a path or a URI), the folder in it and the sink's name.

        With `direct`, delta-rs writes small releases if it may.  New tables get `properties` in
        addition to `TABLE_PROPERTIES`, and are partitioned by these columns; `layout` is added by
        the settings.  `is_single`: the folder is the sink's only table, and manifests name it for
        each source table.  `is_by_batch`: commits have numbers of batches.
        """
        self._is_single = is_single
        self._is_by_batch = is_by_batch
        self._layout = layout or TableLayout()
        self.direct = direct
        self._partitioned_by = tuple(partitioned_by)
        self._properties = {**TABLE_PROPERTIES, **(properties or {}), **self._layout.properties}
        self._output = output.rstrip("/")
        self._folder = folder
        self._sink = sink
        self._query_id = ""
        self._logs: dict[str, CommitLog] = {}
        self._schemas: dict[str, StructType] = {}
        self._partitions: dict[str, tuple[str, ...]] = {}

    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:
        """Check every existing table."""
        self._query_id = query_id
        self._logs = {}
        self._schemas = {}
        self._partitions = {}
        files = Storage(spark, self._output)
        for name in self.names(files):
            self._refuse_beyond(self.log(spark, name), release_max)
        newest = newest_manifest(files, watermark_us=sys.maxsize)
        if newest is None or newest.query_id != query_id:
            return
        for name, version in newest.versions(self._sink).items():
            self.log(spark, name).require_version(
                version, release=newest.release, stands_at=self._stands_at(newest, name)
            )

    def _stands_at(self, manifest: Manifest, table: str) -> int:
        """Return the number of the last commit that a table of a manifest may have."""
        if self._is_by_batch:
            return manifest.batch
        release = manifest.tables[table][self._sink].release
        return manifest.release if release is None else release

    def _refuse_beyond(self, log: CommitLog, number_max: int) -> None:
        """Raise ConfigError for a table that holds a later release, or batch."""
        if not self._is_by_batch:
            log.refuse_beyond(number_max)
        elif log.newest_release > number_max:
            raise ConfigError(
                "a table holds a later batch than this checkpoint knows",
                hint=(
                    "Restore the checkpoint of the query that wrote it; if it is lost, begin "
                    "with an empty --output and an empty --checkpoint"
                ),
                table=log.path,
                batch_in_table=log.newest_release,
                batch_in_checkpoint=number_max,
            )

    def names(self, files: Storage) -> Sequence[str]:
        """Return the names of the tables that may be there."""
        return [self._folder] if self._is_single else files.table_names(self._folder)

    def path(self, table: str) -> str:
        """Return a table's path relative to the output."""
        return self._folder if self._is_single else f"{self._folder}/{table}"

    def address(self, table: str) -> str:
        """Return a table's path as Spark takes it."""
        return f"{self._output}/{self.path(table)}"

    def heads(self) -> dict[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        logs = self._logs.items()
        return {self.path(table): log.head for table, log in logs if log.exists}

    def batch_versions(self, spark: SparkSession, release: Release) -> dict[str, TableVersion]:
        """Return each table's version after the release's batch, of the tables that exist.

        Batches ascend, so that version has every change of the release, and newer ones too.
        """
        versions = {}
        for table in (given.schemas.table for given in release.tables.values()):
            log = self.log(spark, table)
            version = log.find_version(release.batch) if log.exists else None
            if version is not None:
                versions[table] = TableVersion(self.path(table), version)
        return versions

    def columns(self, spark: SparkSession, table: str) -> tuple[str, ...]:
        """Return the names of a table's columns, none if it does not exist."""
        if not self.log(spark, table).exists:
            return ()
        return tuple(DeltaTable.forPath(spark, self.address(table)).toDF().columns)

    def partition_columns(self, spark: SparkSession, table: str) -> tuple[str, ...]:
        """Return the columns that a table is partitioned by; it exists, and they never change."""
        if table not in self._partitions:
            detail = DeltaTable.forPath(spark, self.address(table)).detail()
            (row,) = detail.select("partitionColumns").collect()
            self._partitions[table] = tuple(row["partitionColumns"])
        return self._partitions[table]

    def log(self, spark: SparkSession, table: str) -> CommitLog:
        """Return a table's log, loaded once."""
        table = self._folder if self._is_single else table
        if table not in self._logs:
            invariant(self._query_id, "sink was written to before open()", sink=self._sink)
            address = self.address(table)
            log = CommitLog(
                DeltaHistory(spark, address), address, query_id=self._query_id, sink=self._sink
            )
            log.load()
            self._logs[table] = log
        return self._logs[table]

    def files_of_merge(
        self,
        spark: SparkSession,
        table: str,
        *,
        rows: int,
        part: Mapping[str, Any] | None = None,
    ) -> int:
        """Return how many files a MERGE of `rows` changes writes at most, from the table's size.

        `part` names the partition, by column, if only the rows of one are rewritten.
        """
        size = self._part_bytes(spark, table, part) if part else self._bytes(spark, table)
        return files_of_merge(size, rows)

    def _bytes(self, spark: SparkSession, table: str) -> int:
        detail = DeltaTable.forPath(spark, self.address(table)).detail().select("sizeInBytes")
        return int(detail.collect()[0]["sizeInBytes"] or 0)

    def _part_bytes(self, spark: SparkSession, table: str, part: Mapping[str, Any]) -> int:
        """Return the size of a partition's files, which is Spark's estimate for reading it."""
        rows = spark.read.format("delta").load(self.address(table))
        for column, value in part.items():
            rows = rows.where(F.col(quoted(column)) == F.lit(value))
        plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001 - not public in pyspark
        return int(str(plan.stats().sizeInBytes()))

    def prepare(
        self, spark: SparkSession, table: str, *, schema: StructType, commit: Commit
    ) -> None:
        """Create the table, or add the columns that it lacks."""
        wanted = as_nullable(schema)
        self.log(spark, table).require_present()
        if self._schemas.get(table) == wanted:
            return
        log, address = self.log(spark, table), self.address(table)
        if not log.exists:
            self._create(spark, table, wanted, metadata=commit.preparation)
        elif lacks_columns(DeltaTable.forPath(spark, address).toDF().schema, wanted, table=table):
            nothing: DataFrame = spark.createDataFrame([], wanted)
            writer = nothing.write.format("delta").mode("append").option("mergeSchema", "true")
            writer.option("userMetadata", commit.preparation).save(address)
        log.follow()
        self._schemas[table] = wanted

    def _create(
        self, spark: SparkSession, table: str, schema: StructType, *, metadata: str
    ) -> None:
        """Create a table; raises ConfigError if its layout names a column that it does not have."""
        clusters = self._layout.cluster_columns(table, schema)
        partitions = (*self._partitioned_by, *self._layout.partition_columns(table, schema))
        if self.direct and not clusters and not self._layout.has_features:
            self.direct.create(
                self.path(table),
                schema=schema,
                properties=self._properties,
                metadata=metadata,
                partitioned_by=partitions,
            )
            return
        builder = DeltaTable.createIfNotExists(spark).location(self.address(table))
        builder = builder.addColumns(schema)
        if partitions:
            builder = builder.partitionedBy(*partitions)
        if clusters:
            builder = builder.clusterBy(*clusters)
        for name, value in self._properties.items():
            builder = builder.property(name, value)
        setting = {"spark.databricks.delta.commitInfo.userMetadata": metadata}
        with session_settings(spark, setting):
            builder.execute()

    def append(self, rows: TableRows, *, commit: Commit) -> bool:
        """Append rows in one commit, unless the table has it: a few by delta-rs, if it may.

        Delta itself ignores a repetition of the same release (`txnAppId`, `txnVersion`).
        """
        log = self.log(rows.spark, rows.table)
        if log.written(commit) is not None:
            return False
        if not self._append_directly(rows, commit=commit):
            (
                rows.frame()
                .write.format("delta")
                .mode("append")
                .option("txnAppId", commit.application)
                .option("txnVersion", commit.release)
                .option("userMetadata", commit.metadata)
                .save(self.address(rows.table))
            )
        log.follow()
        invariant(log.written(commit), "an append left no commit", table=log.path)
        return True

    def _append_directly(self, rows: TableRows, *, commit: Commit) -> bool:
        if self.direct is None or rows.changes is None:
            return False
        schema = rows.schema()
        opened = self.direct.table(self.path(rows.table), schema=schema)
        if opened is None:
            return False
        opened.append(opened.rows(rows.changes, schema.fieldNames()), commit=commit)
        return True

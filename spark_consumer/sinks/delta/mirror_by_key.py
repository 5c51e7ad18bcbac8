"""Every source table's rows, merged by the batch that reads their changes: the newest per row.

It waits for no watermark, so a transaction may be in the tables in part.  Rows agree with the
source table once everything up to a commit time was read.  Exactly once: a batch that a table's
commits name is not merged again.  The order is Kafka's, or that of a column where the table's
source has one (`newest`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import structlog
from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.core.hand_over import MIRROR_BY_KEY
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.fold import fold, folded_value
from tidegate.spark_consumer.sinks.delta.incomplete import free
from tidegate.spark_consumer.sinks.delta.key_merge import ORDER_KEY, key_merge, keyed_schema
from tidegate.spark_consumer.sinks.delta.keyed_tables import KeyedTables, commit_of
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.merging import key_names
from tidegate.spark_consumer.sinks.delta.mirror_scope import MirrorScope, mirror_columns
from tidegate.spark_consumer.sinks.delta.newest import with_source_order
from tidegate.spark_consumer.sinks.delta.partitions import refuse_lost_texts, text_columns
from tidegate.spark_consumer.sinks.delta.tables import fold_settings, for_each_table
from tidegate.spark_consumer.sinks.handed_batch import HandedBatch
from tidegate.spark_consumer.sinks.observed import observed
from tidegate.spark_consumer.sinks.port import DecodedTable, Release, TableVersion
from tidegate.spark_consumer.sinks.session_settings import session_settings
from tidegate.spark_consumer.sinks.sql_names import quoted

_MERGED = ("numTargetRowsInserted", "numTargetRowsUpdated")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Folded:
    """A checkpointed fold, and how many rows it has."""

    frame: DataFrame
    rows: int


class DeltaMirrorByKeySink:
    """Merges into `<output>/mirror_by_key/<table>`; a `BatchSink`."""

    name = MIRROR_BY_KEY

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        *,
        accepted: Iterable[str] = (),
        layout: TableLayout | None = None,
    ) -> None:
        """Take the output's address, what `mirror_accepts` names, and the layout of new tables."""
        self._spark = spark
        self._scope = MirrorScope(accepted)
        self._tables = KeyedTables(output, folder=self.name, sink=self.name, layout=layout)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse tables of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._tables.open(self._spark, query_id=query_id, release_max=release_max)

    def take(self, batch: HandedBatch) -> None:
        """Merge what the tables lack.

        Raises SchemaError for a column whose type changed, FilteredMirror if the change stream
        leaves out what the tables need, and ConfigError for a column with the name of one of ours.
        """
        commit = commit_of(batch, self.name)
        changed = [topic for topic, one in batch.tables.items() if one.rows]
        for one in batch.tables.values():
            spark, table, schema = one.spark, one.schemas.table, keyed_schema(one)
            if one.rows or not self._tables.log(spark, table).exists:
                self._scope.require(one.schemas, partial(self._tables.columns, spark, table))
                self._tables.prepare(spark, table, schema=schema, commit=commit)
        lacking = [topic for topic in changed if self._lacks(batch.tables[topic], commit)]
        if not lacking:
            return
        # The session of the batch's frames: a streaming query has one of its own.
        spark, folds = batch.tables[lacking[0]].spark, dict[str, _Folded]()
        tables = [batch.tables[topic] for topic in lacking]
        files = max(
            self._tables.files_of_merge(spark, one.schemas.table, rows=one.rows) for one in tables
        )

        def fold_table(topic: str) -> None:
            folds[topic] = _folded(batch.tables[topic])

        def merge(topic: str) -> None:
            self._merge(batch.tables[topic], folds[topic], commit=commit)

        # A fold reads the batch alone, a MERGE the table too, which may be large.
        with session_settings(spark, fold_settings(files, tables)):
            for_each_table(spark, lacking, fold_table)
        with session_settings(spark, _settings(files, commit=commit)):
            for_each_table(spark, lacking, merge)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write nothing; return the tables' versions, which have all changes of the release."""
        return self._tables.versions(self._spark, release)

    def _lacks(self, one: DecodedTable, commit: Commit) -> bool:
        return self._tables.log(one.spark, one.schemas.table).written(commit) is None

    def _merge(self, one: DecodedTable, done: _Folded, *, commit: Commit) -> None:
        table, folded = one.schemas.table, done.frame
        log, columns = self._tables.log(one.spark, table), mirror_columns(one.schemas)
        keys = key_names(one.schemas)
        partitions = self._tables.partition_columns(one.spark, table)
        texts = text_columns(keyed_schema(one), partitions)
        # A row without values, of a DELETE, has its key too.
        values = {name: folded_value(columns.index(name)) for name in texts if name not in keys}
        values |= {name: f"key.{quoted(name)}" for name in texts if name in keys}
        address = self._tables.address(table)
        refuse_lost_texts(table, folded, values, address=address, partitions=partitions)
        mirror = DeltaTable.forPath(one.spark, address)
        clauses = key_merge(columns=columns, keys=keys, existing=mirror.toDF().columns)
        (
            mirror.alias("t")
            .merge(folded.alias("s"), clauses.same_key)
            .whenMatchedUpdate(clauses.is_newer, set=_expressions(clauses.changed))
            .whenNotMatchedInsert(values=_expressions(clauses.inserted))
            .execute()
        )
        log.follow()
        written = log.written(commit)
        metrics = {} if written is None else written.metrics
        older = done.rows - sum(int(metrics.get(part, "0")) for part in _MERGED)
        if older:
            _log.warning("changes older than their rows", table=table, batch=commit.release,
                         rows=older)  # fmt: skip
        free(folded)


def _folded(one: DecodedTable) -> _Folded:
    columns, seen = mirror_columns(one.schemas), Observation()
    changes = with_source_order(one.frame, columns).withColumn("ordinal", F.col(ORDER_KEY))
    folded = fold(changes, columns, newest=[ORDER_KEY], with_places=True)
    folded = folded.observe(seen, F.count("*").alias("rows")).localCheckpoint(eager=True)
    return _Folded(folded, observed(seen)["rows"])


def _settings(files: int, *, commit: Commit) -> Mapping[str, str]:
    """Return what MERGE takes from the session only; all tables of a batch share it."""
    return {
        "spark.databricks.delta.commitInfo.userMetadata": commit.metadata,
        "spark.databricks.delta.write.txnAppId": commit.application,
        "spark.databricks.delta.write.txnVersion": str(commit.release),
        # The source is materialised once, before the MERGE, which also counts it.
        "spark.databricks.delta.merge.materializeSource": "none",
        "spark.sql.shuffle.partitions": str(files),
    }


def _expressions(values: Mapping[str, str]) -> dict[str, str | Column]:
    return {name: F.expr(value) for name, value in values.items()}

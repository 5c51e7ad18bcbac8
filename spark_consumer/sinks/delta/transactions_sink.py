"""Every transaction as a row of one table, `<output>/transactions`: the changelog by transaction.

`changes` is an array with the transaction's changes over all tables, sorted by `ordinal`; keys and
values are JSON text, because tables have other columns, so that any reader of Delta opens the
table.  One commit per release, in commit order.  Exactly once as the changelog is: the sink skips a
release that the table has, and Delta ignores a repeated one of the same query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.port import Release, TableVersion
from tidegate.spark_consumer.sinks.released_frame import (
    TRANSACTION_FIELDS,
    json_transactions_of,
    wide_rows,
)
from tidegate.spark_consumer.sinks.tables import Commit

TRANSACTIONS = "transactions"
"""Name of the sink, and of its table in the output."""

_PROPERTIES = {"delta.dataSkippingStatsColumns": "release,first_ordinal,commit_timestamp"}


class DeltaTransactionsSink:
    """Appends to `<output>/transactions`."""

    name = TRANSACTIONS

    def __init__(self, spark: SparkSession, output: str) -> None:
        """Take the output's address."""
        self._spark = spark
        self._table = _OneTable(output, folder="", sink=self.name, properties=_PROPERTIES)

    def open(self, *, query_id: str, release_max: int) -> None:
        """Refuse a table of another query, or ahead of this one's checkpoint, with ConfigError."""
        self._table.open(self._spark, query_id=query_id, release_max=release_max)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Append what the table lacks; return its version for every source table."""
        if not release.tables:
            return {}
        spark = next(iter(release.tables.values())).spark
        commit = Commit(release.query_id, self.name, release.number, release.through_us)
        log = self._table.log(spark, TRANSACTIONS)
        if release.rows or not log.exists:
            schema = cast("StructType", StructType.fromDDL(TRANSACTION_FIELDS))
            self._table.prepare(spark, TRANSACTIONS, schema=schema, commit=commit)
        if release.rows and log.written(commit) is None:
            with wide_rows(spark):
                rows = json_transactions_of(release, spark)
                self._table.append(rows, TRANSACTIONS, commit=commit)
        version = TableVersion(TRANSACTIONS, log.version_at(release.number))
        return {one.schemas.table: version for one in release.tables.values()}


class _OneTable(SinkTables):
    """A sink's only table, under any name: manifests name it for each source table."""

    def path(self, table: str) -> str:  # noqa: ARG002 - as the others' tables
        return TRANSACTIONS

    def log(self, spark: SparkSession, table: str) -> CommitLog:  # noqa: ARG002 - likewise
        return super().log(spark, TRANSACTIONS)

    def names(self, files: Storage) -> Sequence[str]:  # noqa: ARG002 - it is not looked for
        return (TRANSACTIONS,)

"""Reads several releases of the changelog, for a mirror that takes them at once.

A release's rows stay in the changelog, so a mirror that lacks any number of releases needs nothing
else: neither the run that released them, nor Kafka.  Their number is compared with the rows that
the changelog's commits added; if another writer has changed its rows and `adopt` accepted that, the
mirror takes the changed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.errors import invariant
from tidegate.spark_consumer.core.sink_names import CHANGELOG
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.errors import ChangesNotConserved
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog, WrittenCommit
from tidegate.spark_consumer.sinks.delta.log_files import DeltaHistory
from tidegate.spark_consumer.sinks.port import (
    AnyTable,
    CollectedTable,
    DecodedTable,
    Merge,
    Release,
)
from tidegate.spark_consumer.sinks.spark_types import as_type, change_type

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay


ORDINALS = 2**36
"""More than the changes of a release: ordinals of later releases follow those of earlier ones."""

_ROWS_ADDED = ("numOutputRows", "num_added_rows")
"""The same in a commit of Spark's and of delta-rs."""


class ChangelogReader:
    """Reads `<output>/changelog/<table>`."""

    def __init__(
        self, spark: SparkSession, output: str, *, direct: DirectWay | None = None
    ) -> None:
        self._spark = spark
        self._output = output.rstrip("/")
        self._direct = direct
        self._query_id = ""
        self._logs: dict[str, CommitLog] = {}

    def open(self, *, query_id: str) -> None:
        """Take the query that writes the changelog; reads nothing yet."""
        self._query_id = query_id
        self._logs = {}

    def release(self, merge: Merge) -> Release:
        """Return the merge's releases as one that has the number of the last.

        Ordinals number the changes in commit order, with gaps.  Raises ChangesNotConserved if the
        changelog lacks changes, or has too many.
        """
        tables = {name: self._table(table, merge) for name, table in merge.tables.items()}
        return Release(
            number=merge.through,
            after_us=merge.through_us,
            through_us=merge.through_us,
            query_id=merge.query_id,
            batch=merge.batch,
            rows=sum(table.rows for table in tables.values()),
            tables=tables,
        )

    def _table(self, schemas: TopicSchemas, merge: Merge) -> AnyTable:
        log = self._log(schemas.table)
        carriers = log.carriers(after=merge.after, through=merge.through)
        # Delta may have deleted a carrier: then only the rows show what was appended.
        knows_all = log.knows_after(merge.after)
        if not carriers and (knows_all or 0 <= log.newest_release <= merge.after):
            return DecodedTable(self._spark, lambda: self._frame(schemas, merge), 0, schemas)
        expected = None
        if knows_all and not log.has_adopted_since(carriers[0].version):
            expected = _rows_added(carriers)
        few = self._few(schemas, merge, expected)
        if few is not None:
            _require(len(few.changes), expected, schemas, merge)
            return few
        frame = self._frame(schemas, merge)
        count = frame.select("release").count()
        _require(count, expected, schemas, merge)
        return DecodedTable(self._spark, lambda: frame, count, schemas)

    def _few(
        self, schemas: TopicSchemas, merge: Merge, expected: int | None
    ) -> CollectedTable | None:
        """Return the changes in memory if they are few, and may be read without Spark."""
        direct = self._direct
        if direct is None or expected is None or expected > direct.rows_max:
            return None
        path = f"{CHANGELOG}/{schemas.table}"
        rows = direct.changes(path, after=merge.after, through=merge.through)
        if rows is None:
            return None
        changes = [
            {**row, "ordinal": _place(row["release"] - merge.after - 1, row["ordinal"])}
            for row in rows
        ]
        changes.sort(key=lambda row: row["ordinal"])
        frame = lambda: self._frame(schemas, merge)  # noqa: E731 - a callback
        return CollectedTable(self._spark, frame, changes, schemas)

    def _frame(self, schemas: TopicSchemas, merge: Merge) -> DataFrame:
        rows = self._spark.read.format("delta").load(self._address(schemas.table))
        inside = (F.col("release") > merge.after) & (F.col("release") <= merge.through)
        first = (F.col("release") - F.lit(merge.after + 1)) * F.lit(ORDINALS)
        changes = rows.where(inside).withColumn("ordinal", first + F.col("ordinal"))
        return as_type(changes, change_type(schemas))

    def _address(self, table: str) -> str:
        return f"{self._output}/{CHANGELOG}/{table}"

    def _log(self, table: str) -> CommitLog:
        """Return a changelog's commits, including the newest."""
        if table in self._logs:
            self._logs[table].follow()
        else:
            history, address = DeltaHistory(self._spark, self._address(table)), self._address(table)
            log = CommitLog(history, address, query_id=self._query_id, sink=CHANGELOG)
            log.load()
            self._logs[table] = log
        return self._logs[table]


def _place(release: int, ordinal: int) -> int:
    invariant(ordinal < ORDINALS, "a release has too many changes", ordinal=ordinal)
    return release * ORDINALS + ordinal


def _rows_added(commits: Sequence[WrittenCommit]) -> int | None:
    """Return how many rows the commits have added, None if one of them does not say."""
    counts = [
        next((commit.metrics[name] for name in _ROWS_ADDED if name in commit.metrics), None)
        for commit in commits
    ]
    return None if None in counts else sum(int(rows or 0) for rows in counts)


def _require(rows: int, expected: int | None, schemas: TopicSchemas, merge: Merge) -> None:
    if expected is None or rows == expected:
        return
    raise ChangesNotConserved(
        "the changelog does not hold the changes that the mirror has yet to take",
        hint="Nothing was merged; restore the changelog table, or start with a new output",
        table=schemas.table,
        after_release=merge.after,
        through_release=merge.through,
        rows=rows,
        expected=expected,
    )

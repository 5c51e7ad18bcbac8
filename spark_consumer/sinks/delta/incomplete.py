"""The side tables of a sink that merges: UPDATEs of rows that its tables lack.

The stream began after these rows were inserted, so that what an UPDATE did not capture is unknown.
Such UPDATEs are kept as the changes that they are, with the release and the ordinal that they were
released with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.core.cadence import HISTORY
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.delta.changelog_reader import ORDINALS
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.fold import DELETE, PATCH
from tidegate.spark_consumer.sinks.delta.tables import SinkTables
from tidegate.spark_consumer.sinks.port import AnyTable

_log = structlog.get_logger(__name__)


class IncompleteTables:
    """Appends to `<output>/<name>/<table>`; `changes` counts what it has appended since `open`."""

    def __init__(self, output: str, *, name: str, of: str, direct: DirectWay | None = None) -> None:
        """Take the output's address, the name of the folder, and that of the sink that merges."""
        self._tables = SinkTables(output, folder=name, sink=name, direct=direct)
        self._name = name
        self._of = of
        self.changes = 0

    def open(self, spark: SparkSession, *, query_id: str, release_max: int) -> None:
        """Check every existing table, as `SinkTables.open` does."""
        self._tables.open(spark, query_id=query_id, release_max=release_max)

    def heads(self) -> dict[str, int]:
        """Return the newest version of each table that was read, by its path in the output."""
        return self._tables.heads()

    def append_rows(
        self, one: CollectedTable, changes: Sequence[Mapping[str, Any]], *, commit: Commit
    ) -> None:
        """Append changes of a small release, unless the table has those of the release."""
        rows = [{**change, "ordinal": change["ordinal"] % ORDINALS} for change in changes]
        self._append(
            one,
            len(rows),
            lambda aside: self._tables.append_changes(
                one, rows, commit=aside, frame=lambda: _as_released(_only(one.frame, changes))
            ),
            commit=commit,
        )

    def append_frame(self, one: AnyTable, changes: DataFrame, *, commit: Commit) -> None:
        """Append changes of a release in commit order, unless the table has those of the release.

        One job computes the frame.
        """
        rows = released(changes).localCheckpoint(eager=True)
        self._append(
            one,
            rows.count(),
            lambda aside: self._tables.append(rows, one.schemas.table, commit=aside),
            commit=commit,
        )
        free(rows)

    def _append(
        self, one: AnyTable, count: int, append: Callable[[Commit], None], *, commit: Commit
    ) -> None:
        side, table = self._tables, one.schemas.table
        aside = Commit(commit.query_id, self._name, commit.release, commit.through_us)
        if count and side.log(one.spark, table).written(aside) is None:
            side.prepare(one.spark, table, schema=one.schema, commit=aside)
            append(aside)
            self.changes += count
            log = _log.bind(table=table, release=commit.release, changes=count)
            if self._of == HISTORY:
                log.warning("updates of rows that the history lacks", stored_in=side.path(table))
            else:
                log.warning("updates of rows that the mirror lacks", stored_in=side.path(table))


def lost_updates(changes: DataFrame, folded: DataFrame, known: DataFrame) -> DataFrame:
    """Return the UPDATEs among changes that change no row; `folded` is the fold of the same.

    `known` has a column `key` with each key of the mirror, before these changes or after them: a
    fold never inserts a key that it only updates.
    """
    # Under names of their own: Spark takes columns that both sides of a join have for one.
    base = (F.col("key").alias("of_key"), F.col("base_ordinal").alias("after_ordinal"))
    patched = folded.where(F.col("action") == PATCH).select(*base).alias("p")
    unknown = patched.join(known.alias("m"), F.expr("p.of_key <=> m.key"), "left_anti")
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


def released(changes: DataFrame) -> DataFrame:
    """Return changes in commit order, in one task, with the ordinals of their own releases."""
    return _as_released(changes.coalesce(1).sortWithinPartitions("ordinal"))


def free(checkpointed: DataFrame) -> None:
    """Free a local checkpoint now, not at the next garbage collection."""
    checkpointed._jdf.queryExecution().logical().rdd().unpersist(False)  # noqa: SLF001, FBT003


def _as_released(changes: DataFrame) -> DataFrame:
    """Return changes of several releases with the ordinals that they were released with."""
    return changes.withColumn("ordinal", F.col("ordinal") % ORDINALS)


def _only(frame: DataFrame, rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    ordinals = [row["ordinal"] for row in rows]
    return frame.where(F.col("ordinal").isin(ordinals)).coalesce(1).sortWithinPartitions("ordinal")

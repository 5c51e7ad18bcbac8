"""Every source table as it was at the watermark, in Iceberg: one MERGE per table and release.

Rows are those of the Delta mirror: folded per key and column, deletes removed, absent columns left
as they are.  UPDATEs of rows that the mirror lacks go to a side table, before the MERGE: what the
mirror lacks is seen only before it has the release, so a mirror that has it needs nothing more.
Where the mirror takes several releases at once, they come from the Delta changelog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import uuid4

import structlog
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StructType

from tidegate.spark_consumer.core.cadence import ICEBERG_MIRROR, MIRROR
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.iceberg.place import IcebergPlace
from tidegate.spark_consumer.sinks.iceberg.tables import IcebergTables
from tidegate.spark_consumer.sinks.merge.fold import DELETE, PATCH, fold, newest_changes
from tidegate.spark_consumer.sinks.merge.mirror import merge_clauses
from tidegate.spark_consumer.sinks.merge.scope import (
    MirrorScope,
    key_names,
    key_struct,
    mirror_columns,
    mirror_schema,
)
from tidegate.spark_consumer.sinks.merge.sink import TableMergingSink, lost_updates, released
from tidegate.spark_consumer.sinks.port import AnyTable
from tidegate.spark_consumer.sinks.sql import for_rows, free, observed, session_settings
from tidegate.spark_consumer.sinks.tables import Commit, for_each_table

KIND = "mirror"
INCOMPLETE = "incomplete"

_log = structlog.get_logger(__name__)


class IcebergMirrorSink(TableMergingSink[IcebergTables, IcebergTables]):
    """Merges into `<namespace>_mirror.<table>`; a `MergingSink`."""

    name = ICEBERG_MIRROR

    def __init__(
        self,
        spark: SparkSession,
        output: str,
        place: IcebergPlace,
        *,
        direct: DirectWay | None = None,
        accepted: Iterable[str] = (),
    ) -> None:
        """Take the output's address, and where its Iceberg tables are.

        `direct` is how small parts of the changelog are read without Spark, and `accepted` says
        what tables are written in spite of, as the setting `mirror_accepts`.
        """
        super().__init__(
            spark,
            output,
            tables=IcebergTables(output, place, kind=KIND, sink=self.name),
            incomplete=IcebergTables(
                output, place, kind=INCOMPLETE, sink=self.name, in_manifests=False
            ),
            scope=MirrorScope(accepted, of=MIRROR),
            direct=direct,
        )
        self.incomplete_changes = 0
        """How many changes went to the incomplete tables."""

    def _schema(self, one: AnyTable) -> StructType:
        return mirror_schema(one)

    def _merge_changed(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        changed = [
            one
            for one in tables.values()
            if not self._tables.log(one.spark, one.schemas.table).has(commit)
        ]
        folds = {one.schemas.table: self._fold(one, commit=commit) for one in changed}
        if changed:
            self._merge_all(changed[0].spark, changed, folds, commit=commit)

    def _merge_all(
        self,
        spark: SparkSession,
        changed: list[AnyTable],
        folds: Mapping[str, DataFrame],
        *,
        commit: Commit,
    ) -> None:
        files = max(
            self._tables.files_of_merge(spark, one.schemas.table, rows=one.rows) for one in changed
        )
        by_table = {one.schemas.table: one for one in changed}
        with self._tables.staging(spark, commit=commit, files=files):
            for_each_table(
                spark,
                list(folds),
                lambda table: self._merge(by_table[table], folds[table], commit=commit),
            )
        for folded in folds.values():
            free(folded)

    def _fold(self, one: AnyTable, *, commit: Commit) -> DataFrame:
        """Fold one table's changes, and set those aside that change no row."""
        seen, columns = Observation(), mirror_columns(one.schemas)
        action = F.col("action")
        lost_perhaps = (action == PATCH) | ((action == DELETE) & F.col("updated_after_base"))
        folded = fold(newest_changes(one.frame, columns), columns)
        folded = folded.observe(seen, F.count_if(lost_perhaps).alias("lost_perhaps"))
        with session_settings(one.spark, for_rows(one.rows)):
            folded = folded.localCheckpoint(eager=True)
        if observed(seen)["lost_perhaps"]:
            self._set_aside(one, folded, commit=commit)
        return folded

    def _set_aside(self, one: AnyTable, folded: DataFrame, *, commit: Commit) -> None:
        spark, schemas, side = one.spark, one.schemas, self._incomplete
        mirror = spark.table(self._tables.identifier(schemas.table))
        known = mirror.select(key_struct(key_names(schemas)))
        rows = released(lost_updates(one.frame, folded, known)).localCheckpoint(eager=True)
        if count := rows.count():
            side.prepare(spark, schemas.table, schema=one.schema, commit=commit)

            def stage() -> None:
                side.stage_rows(rows, schemas.table, commit=commit)

            with side.staging(spark, commit=commit):
                is_new = side.write(spark, schemas.table, stage, commit=commit)
            if is_new:
                self.incomplete_changes += count
                log = _log.bind(table=schemas.table, release=commit.release, changes=count)
                stored_in = side.path(schemas.table)
                log.warning("updates of rows that the mirror lacks", stored_in=stored_in)
        free(rows)

    def _merge(self, one: AnyTable, folded: DataFrame, *, commit: Commit) -> None:
        spark, table = one.spark, one.schemas.table
        name = self._tables.identifier(table)
        clauses = merge_clauses(
            columns=mirror_columns(one.schemas),
            keys=key_names(one.schemas),
            existing=spark.table(name).columns,
        )
        view = f"tidegate_{uuid4().hex}"

        def stage() -> None:
            folded.createOrReplaceTempView(view)
            try:
                spark.sql(clauses.sql(name, view))
            finally:
                spark.catalog.dropTempView(view)

        self._tables.write(spark, table, stage, commit=commit, may_change_nothing=True)

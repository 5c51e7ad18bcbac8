"""Every source table as it was at the watermark, in Iceberg: one MERGE per table and release.

Rows are those of the Delta mirror: folded per key and column, deletes removed, absent columns left
unchanged.  UPDATEs of rows that the mirror lacks go to a side table before the MERGE: missing rows
can be seen only before the mirror has the release, so a mirror that has the release needs nothing
more.  Where the mirror takes several releases at once, they come from the Delta changelog.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import uuid4

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from tidegate.spark_consumer.core.sink_names import ICEBERG_MIRROR, MIRROR
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay
from tidegate.spark_consumer.sinks.iceberg.catalog import IcebergPlace
from tidegate.spark_consumer.sinks.iceberg.tables import IcebergTables
from tidegate.spark_consumer.sinks.merge.folded import Folded, folded_table
from tidegate.spark_consumer.sinks.merge.mirror import merge_clauses
from tidegate.spark_consumer.sinks.merge.scope import (
    MirrorScope,
    key_names,
    key_struct,
    mirror_columns,
    mirror_schema,
)
from tidegate.spark_consumer.sinks.merge.sink import (
    IncompleteTables,
    TableMergingSink,
    lost_updates,
)
from tidegate.spark_consumer.sinks.port import AnyTable
from tidegate.spark_consumer.sinks.sql import for_rows, session_settings
from tidegate.spark_consumer.sinks.tables import Commit, for_each_table

KIND = "mirror"
INCOMPLETE = "incomplete"


class IcebergMirrorSink(TableMergingSink):
    """Merges into `<namespace>_mirror.<table>`; a `MergingSink`."""

    name = ICEBERG_MIRROR
    _tables: IcebergTables

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
        side = IcebergTables(output, place, kind=INCOMPLETE, sink=self.name, in_manifests=False)
        super().__init__(
            spark,
            output,
            tables=IcebergTables(output, place, kind=KIND, sink=self.name),
            incomplete=IncompleteTables(side, sink=self.name, merging_sink=MIRROR),
            scope=MirrorScope(accepted, sink=MIRROR),
            direct=direct,
        )

    def _schema(self, table: AnyTable) -> StructType:
        return mirror_schema(table)

    def _merge_changed(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        changed = {
            table.schemas.table: table
            for table in tables.values()
            if not self._tables.log(table.spark, table.schemas.table).has(commit)
        }
        if not changed:
            return
        folds = {name: self._fold(table, commit=commit) for name, table in changed.items()}
        spark = next(iter(changed.values())).spark
        files = max(
            self._tables.files_of_merge(spark, name, rows=table.rows)
            for name, table in changed.items()
        )
        with self._tables.staging(spark, commit=commit, files=files):
            for_each_table(
                spark,
                list(folds),
                lambda name: self._merge(changed[name], folds[name].frame, commit=commit),
            )
        for folded in folds.values():
            folded.free()

    def _fold(self, table: AnyTable, *, commit: Commit) -> Folded:
        """Fold one table's changes, and set those aside that change no row."""
        with session_settings(table.spark, for_rows(table.rows)):
            folded = folded_table(table)
        if folded.patched or folded.lost:
            mirror = table.spark.table(self._tables.identifier(table.schemas.table))
            keys = mirror.select(key_struct(key_names(table.schemas)))
            self._incomplete.append_frame(
                table, lost_updates(table.frame, folded.frame, keys), commit=commit
            )
        return folded

    def _merge(self, table: AnyTable, folded: DataFrame, *, commit: Commit) -> None:
        spark, table_name = table.spark, table.schemas.table
        name = self._tables.identifier(table_name)
        clauses = merge_clauses(
            columns=mirror_columns(table.schemas),
            keys=key_names(table.schemas),
            existing=spark.table(name).columns,
        )
        view = f"tidegate_{uuid4().hex}"

        def stage() -> None:
            folded.createOrReplaceTempView(view)
            try:
                spark.sql(clauses.sql(name, view))
            finally:
                spark.catalog.dropTempView(view)

        self._tables.write(spark, table_name, stage, commit=commit, may_change_nothing=True)

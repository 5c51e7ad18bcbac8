"""The mirror: every source table at the watermark, by one MERGE per table and release, or several.

An INSERT replaces the row, a DELETE removes it, an UPDATE changes the columns that it captured.  An
UPDATE of a row that the mirror lacks (the stream started after the row's INSERT) never creates one:
its changes go to `<output>/incomplete/<table>`.  An UPDATE before an INSERT or DELETE of the same
key and merge has no effect.  Exactly once: a release that a table's commits name is not merged
again.  Several releases at once come from the changelog, merged as one release with the number of
the last.  A table whose source orders changes by a column has its own rules
(`fold.newest_changes`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import StructType

from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.core.sink_names import MIRROR
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog
from tidegate.spark_consumer.sinks.delta.layout import (
    refuse_lost_texts,
    refuse_lost_values,
    text_columns,
)
from tidegate.spark_consumer.sinks.merge.fold import (
    DELETE,
    PATCH,
    REPLACE,
    FoldedRow,
    captured_flag,
    fold_rows,
    folded_value,
    newest_rows,
)
from tidegate.spark_consumer.sinks.merge.folded import Folded, folded_frame, folded_table
from tidegate.spark_consumer.sinks.merge.scope import (
    key_names,
    key_struct,
    mirror_columns,
    mirror_schema,
)
from tidegate.spark_consumer.sinks.merge.sink import (
    DeltaMergingSink,
    expressions,
    lost_updates,
    merge_settings,
)
from tidegate.spark_consumer.sinks.port import AnyTable, CollectedTable
from tidegate.spark_consumer.sinks.sql import double_quoted, quoted, session_settings
from tidegate.spark_consumer.sinks.tables import Commit, fold_settings, for_each_table

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable


_MERGED = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    # The same in a commit of delta-rs.
    "num_target_rows_inserted",
    "num_target_rows_updated",
)


@dataclass(frozen=True, slots=True)
class MergeClauses:
    """Clauses over `t` (mirror) and `s` (fold).

    Columns are quoted; `changed` and `inserted` are values by column.
    """

    same_key: str
    is_deleted: str
    is_inserted: str
    changed: Mapping[str, str]
    inserted: Mapping[str, str]

    def sql(self, table: str, source: str) -> str:
        """Return the statement, for names that are quoted already."""
        assigned = ", ".join(f"t.{column} = {value}" for column, value in self.changed.items())
        return (
            f"MERGE INTO {table} t USING {source} s ON {self.same_key} "  # noqa: S608 - quoted names
            f"WHEN MATCHED AND {self.is_deleted} THEN DELETE WHEN MATCHED THEN UPDATE SET "
            f"{assigned} WHEN NOT MATCHED AND {self.is_inserted} THEN INSERT "
            f"({', '.join(self.inserted)}) VALUES ({', '.join(self.inserted.values())})"
        )


def merge_clauses(
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    existing: Sequence[str] = (),
    quote: Callable[[str], str] = quoted,
    same_key: str = "",
) -> MergeClauses:
    """Return the clauses for a fold of these columns; keys are also equal where both are null.

    With the column `SOURCE_ORDER` a row changes only if it has a lower value there.  A column that
    `existing` names and the fold lacks becomes null in a row that is inserted.  `quote` quotes a
    name for the engine, and `same_key` is the condition of one that has no structs.
    """
    folded = {column.lower() for column in columns}
    unfolded = [column for column in existing if column.lower() not in folded]
    positions = {column: n for n, column in enumerate(columns)}
    # A table of key columns only has nothing to patch, but a MERGE must assign something.
    assigned = [column for column in columns if column not in keys] or list(keys)
    newer = ""
    if SOURCE_ORDER in positions:
        newer = f" AND s.{folded_value(positions[SOURCE_ORDER])} > t.{quote(SOURCE_ORDER)}"
    return MergeClauses(
        same_key=same_key or " AND ".join(f"t.{quote(key)} <=> s.key.{quote(key)}" for key in keys),
        is_deleted=f"s.action = '{DELETE}'",
        is_inserted=f"s.action = '{REPLACE}'",
        changed={
            quote(column): f"CASE WHEN s.{captured_flag(positions[column])}{newer} "
            f"THEN s.{folded_value(positions[column])} ELSE t.{quote(column)} END"
            for column in assigned
        },
        inserted={
            **{quote(column): f"s.{folded_value(n)}" for column, n in positions.items()},
            **{quote(column): "NULL" for column in unfolded},
        },
    )


def merge_folded(
    mirror: DirectTable,
    folded: Sequence[FoldedRow],
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    commit: Commit,
) -> None:
    """Apply folded changes to the mirror, in one commit."""
    rows = _source(mirror, folded, columns=columns, keys=keys)
    clauses = merge_clauses(
        columns=columns, keys=keys, quote=double_quoted, same_key=same_key(rows, keys)
    )
    mirror.merge(
        rows,
        same_row=clauses.same_key,
        is_deleted=clauses.is_deleted,
        updated=clauses.changed,
        is_inserted=clauses.is_inserted,
        inserted=clauses.inserted,
        commit=commit,
    )


def unmatched_updates(
    mirror: DirectTable, folded: Sequence[FoldedRow], *, keys: Sequence[str]
) -> list[FoldedRow]:
    """Return the folded rows with UPDATEs of a missing row, by the mirror after the release.

    A release never inserts a key that it only updates, so the mirror after the release lacks
    exactly the keys that it lacked before.
    """
    patched = [row for row in folded if row.action == PATCH]
    first = keys[0]
    values = mirror.values(first, [row.key[first] for row in patched])
    in_mirror = set(as_tuples(mirror.find_rows(first, values, keys)))
    wanted = as_tuples(mirror.rows([row.key for row in patched], keys))
    lost = [row for row, key in zip(patched, wanted, strict=True) if key not in in_mirror]
    return lost + [row for row in folded if row.action == DELETE and row.updated_after_base]


def same_key(rows: Any, keys: Sequence[str]) -> str:
    """Return SQL that is true for a row `t` of the table and a row `s` of the same key.

    Rows of Arrow have the key in the columns `key_0`, …; keys are also equal where both are null.
    """
    return " AND ".join(
        # A join on `=` is hashed; on the other it may compare every pair of rows.
        f"(t.{double_quoted(key)} IS NOT DISTINCT FROM s.key_{n})"
        if rows[f"key_{n}"].null_count
        else f"(t.{double_quoted(key)} = s.key_{n})"
        for n, key in enumerate(keys)
    )


def as_tuples(rows: Any) -> list[tuple[Any, ...]]:
    """Return the values of each row of Arrow's, as Python has them."""
    return [tuple(row.values()) for row in rows.to_pylist()]


def _source(
    mirror: DirectTable,
    folded: Sequence[FoldedRow],
    *,
    columns: Sequence[str],
    keys: Sequence[str],
) -> Any:
    source: dict[str, Any] = {
        f"key_{n}": mirror.values(key, [row.key[key] for row in folded])
        for n, key in enumerate(keys)
    }
    source["action"] = mirror.texts([row.action for row in folded])
    for n, column in enumerate(columns):
        source[captured_flag(n)] = mirror.flags([row.captures(column) for row in folded])
        source[folded_value(n)] = mirror.values(column, [row.values.get(column) for row in folded])
    return mirror.together(source)


class DeltaMirrorSink(DeltaMergingSink):
    """Merges into `<output>/mirror/<table>`."""

    name = MIRROR
    incomplete = "incomplete"

    def _schema(self, table: AnyTable) -> StructType:
        return mirror_schema(table)

    def _merge_directly(
        self, opened: Mapping[str, tuple[CollectedTable, DirectTable]], *, commit: Commit
    ) -> None:
        unmatched: dict[str, list[FoldedRow]] = {}

        def merge(topic: str) -> None:
            table, mirror = opened[topic]
            unmatched[topic] = self._merge_rows(table, mirror, commit=commit)

        for_each_table(self._spark, list(opened), merge)
        for topic, folded in unmatched.items():
            if folded:
                self._set_rows_aside(opened[topic][0], folded, commit=commit)

    def _merge_rows(
        self, table: CollectedTable, mirror: DirectTable, *, commit: Commit
    ) -> list[FoldedRow]:
        """Merge one table by delta-rs; return its fold if an UPDATE in it matched no row."""
        columns, keys = mirror_columns(table.schemas), key_names(table.schemas)
        log = self._tables.log(table.spark, table.schemas.table)
        folded = fold_rows(newest_rows(table.changes, columns), columns)
        kept = [row for row in folded if row.action != DELETE]
        if log.written(commit) is None:
            names = mirror.partition_columns
            values = {name: [row.values.get(name) for row in kept] for name in names}
            address = self._tables.address(table.schemas.table)
            refuse_lost_values(table.schemas.table, values, address=address)
            merge_folded(mirror, folded, columns=columns, keys=keys, commit=commit)
            log.follow()
        lost = any(row.action == DELETE and row.updated_after_base for row in folded)
        return folded if lost or _merged_rows(log, commit) < len(kept) else []

    def _set_rows_aside(
        self, table: CollectedTable, folded: Sequence[FoldedRow], *, commit: Commit
    ) -> None:
        """Append the UPDATEs without a row to the incomplete table, as `_set_aside` does."""
        version = self._tables.log(table.spark, table.schemas.table).version_at(commit.release)
        mirror = self._opened(table, version=version)
        if mirror is None:
            self._set_aside(table, folded_frame(table, folded), commit=commit)
            return
        lost = unmatched_updates(mirror, folded, keys=key_names(table.schemas))
        bases = {tuple(row.key.values()): row for row in lost}
        changes = [
            change
            for change in table.changes
            if change["mod_type"] == "UPDATE"
            and (base := bases.get(tuple(change["key"].values()))) is not None
            and base.is_after_base(change["ordinal"])
        ]
        self._incomplete.append_rows(table, changes, commit=commit)

    def _merge_by_spark(self, tables: Mapping[str, AnyTable], *, commit: Commit) -> None:
        folds: dict[str, Folded] = {}
        unmatched: dict[str, Folded] = {}

        def fold_table(topic: str) -> None:
            folds[topic] = folded_table(tables[topic])

        def merge(topic: str) -> None:
            if self._merge_table(tables[topic], folds[topic], commit=commit):
                unmatched[topic] = folds[topic]
            else:
                folds[topic].free()

        spark, files = next(iter(tables.values())).spark, self._files(tables)
        # A fold reads the release alone, a MERGE the mirror too, which may be large.
        with session_settings(spark, fold_settings(files, tables.values())):
            for_each_table(spark, list(tables), fold_table)
        with session_settings(spark, merge_settings(files, commit)):
            for_each_table(spark, list(tables), merge)
        # Outside of the MERGE's settings, which would mark the incomplete table's commits.
        for topic, folded in unmatched.items():
            self._set_aside(tables[topic], folded.frame, commit=commit)
            folded.free()

    def _merge_table(self, table: AnyTable, done: Folded, *, commit: Commit) -> bool:
        """Merge one table; return whether an UPDATE in its fold matched no row."""
        spark, name, folded = table.spark, table.schemas.table, done.frame
        columns = mirror_columns(table.schemas)
        log = self._tables.log(spark, name)
        if log.written(commit) is None:
            partitions = self._tables.partition_columns(spark, name)
            texts = text_columns(self._schema(table), partitions)
            values = {name: folded_value(columns.index(name)) for name in texts}
            address, kept = self._tables.address(name), folded.where(F.col("action") != DELETE)
            refuse_lost_texts(name, kept, values, address=address, partitions=partitions)
            mirror = DeltaTable.forPath(spark, address)
            _merge(mirror, folded, columns=columns, keys=key_names(table.schemas))
            log.follow()
        return done.lost > 0 or _merged_rows(log, commit) < done.rows

    def _set_aside(self, table: AnyTable, folded: DataFrame, *, commit: Commit) -> None:
        """Append the UPDATEs without a row to the incomplete table, unless it has the release.

        A release never inserts a key that it only updates, so the mirror after the release lacks
        exactly the keys that it lacked before.
        """
        spark, schemas = table.spark, table.schemas
        version = self._tables.log(spark, schemas.table).version_at(commit.release)
        mirror = spark.read.format("delta").option("versionAsOf", version)
        reader = mirror.load(self._tables.address(schemas.table))
        keys = reader.select(key_struct(key_names(schemas)))
        updates = lost_updates(table.frame, folded, keys)
        self._incomplete.append_frame(table, updates, commit=commit)


def _merged_rows(log: CommitLog, commit: Commit) -> int:
    """Return how many rows the release's MERGE inserted or updated, by its own metrics."""
    written = log.written(commit)
    if written is None:  # the MERGE changed nothing, and made no commit
        return 0
    return sum(int(written.metrics.get(part, "0")) for part in _MERGED)


def _merge(
    mirror: DeltaTable, folded: DataFrame, *, columns: Sequence[str], keys: Sequence[str]
) -> None:
    """Apply folded changes; keys are also equal where both are null."""
    clauses = merge_clauses(columns=columns, keys=keys)
    (
        mirror.alias("t")
        .merge(folded.alias("s"), clauses.same_key)
        .whenMatchedDelete(clauses.is_deleted)
        .whenMatchedUpdate(set=expressions(clauses.changed))
        .whenNotMatchedInsert(clauses.is_inserted, values=expressions(clauses.inserted))
        .execute()
    )

"""A release's changes of one table as versions of its rows, and their MERGE, in both ways.

The last change of a key at a commit timestamp makes a version, unless the row is gone by then.  It
begins at that time and ends at the key's next change.  The key's first change ends the version that
the table has.  So several changes at one commit timestamp make one version, and a version that
would begin and end at the same time does not exist.

Our columns come first, so that Delta keeps the bounds of every file for them however wide the row
is, and a reader of one moment opens few files.  delta-rs keeps the values of earlier versions in
Arrow's form from the table's files to the table's files, so that none passes through a type with
other bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom
from pyspark.sql.types import BooleanType, StructField, StructType, TimestampType

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.merge.fold import (
    DELETE,
    PATCH,
    REPLACE,
    FoldedChange,
    captured_flag,
    fold_each,
    folded_value,
)
from tidegate.spark_consumer.sinks.merge.mirror import as_tuples, same_key
from tidegate.spark_consumer.sinks.merge.scope import key_struct, mirror_columns, mirror_schema
from tidegate.spark_consumer.sinks.port import AnyTable
from tidegate.spark_consumer.sinks.sql import double_quoted, quoted
from tidegate.spark_consumer.sinks.tables import Commit

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable


_VALID_FROM = "valid_from"
_VALID_TO = "valid_to"
_IS_CURRENT = "is_current"

_BROADCAST_ROWS_MAX = 100_000
"""The keys of as many changes go to every task, which then reads the table without a shuffle."""


@dataclass(frozen=True, slots=True)
class HistoryColumns:
    """The names of our columns, which all begin with a prefix: lower-case letters, digits, `_`."""

    prefix: str = ""

    @property
    def valid_from(self) -> str:
        """Commit timestamp of the change that made the version."""
        return f"{self.prefix}{_VALID_FROM}"

    @property
    def valid_to(self) -> str:
        """Commit timestamp of the change that ended the version, or null; no longer valid then."""
        return f"{self.prefix}{_VALID_TO}"

    @property
    def is_current(self) -> str:
        """Whether `valid_to` is null.

        The table is partitioned by it: a MERGE rewrites current versions and never those that have
        ended.
        """
        return f"{self.prefix}{_IS_CURRENT}"

    @property
    def names(self) -> tuple[str, str, str]:
        """All of them, in the order of the table."""
        return self.valid_from, self.valid_to, self.is_current

    @property
    def current(self) -> Mapping[str, Any]:
        """The partition of the current versions."""
        return {self.is_current: True}

    def require_free(self, schemas: TopicSchemas) -> None:
        """Raise ConfigError if a source table has a column with a reserved name."""
        own_names = set(self.names)
        taken = sorted(name for name in mirror_columns(schemas) if name.lower() in own_names)
        if taken:
            raise ConfigError(
                "a table has columns with names that its history table needs",
                hint=(
                    "Begin the output with another `history_prefix`, leave the columns out of the "
                    "stream (`columns_left_out` of the producer; a column that is dropped or "
                    "renamed stays in the topic), or write no history"
                ),
                table=schemas.table,
                columns=taken,
            )

    def require_same(self, partitions: tuple[str, ...], *, table: str) -> None:
        """Raise ConfigError for a history table that was begun with another prefix."""
        flags = [name for name in partitions if name.endswith(_IS_CURRENT)]
        if flags and self.is_current not in flags:
            prefix = flags[0].removesuffix(_IS_CURRENT)
            raise ConfigError(
                "history_prefix: the output's history tables were begun with another one",
                hint=f'Set history_prefix = "{prefix}", or begin a new output and checkpoint',
                table=table,
                column_in_table=flags[0],
                column_by_setting=self.is_current,
            )

    def schema(self, table: AnyTable) -> StructType:
        """Return the columns of a table's history and their types; raises as `require_free`."""
        self.require_free(table.schemas)
        kinds = (TimestampType(), TimestampType(), BooleanType())
        own_fields = [StructField(name, kind) for name, kind in zip(self.names, kinds, strict=True)]
        return StructType([*own_fields, *mirror_schema(table)])


def stage(
    changes: DataFrame,
    current: DataFrame,
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    version_columns: HistoryColumns,
    rows: int,
) -> DataFrame:
    """Return the changes that close, open or lack a version, with the values of opened versions.

    `current` are the table's current versions before the release; `rows` is the number of changes.
    Returns `key` struct; `ordinal`; `starts_at` and `ends_at` (null: current) of the opened
    version; the flags `closes` (it ends the version in the table), `opens`, and `is_lost` (an
    UPDATE of a row that the table lacks); and a value for each of `columns` and of `_stale`.
    """
    folds = fold_each(changes, columns).alias("c")
    stale = _stale(current, columns, version_columns)
    touched = changes.select(F.col("key").alias("touched_key")).distinct()
    if rows <= _BROADCAST_ROWS_MAX:
        touched = F.broadcast(touched)
    # Positional names: a table's own column may have a name that is used here.
    held = (
        current.select(
            key_struct(keys).alias("of_key"),
            F.expr("true").alias("is_held"),
            *(F.col(quoted(name)).alias(_held(n)) for n, name in enumerate([*columns, *stale])),
        )
        .join(touched, F.expr("of_key <=> touched_key"), "left_semi")
        .alias("h")
    )
    is_held = F.coalesce(F.col("is_held"), F.expr("false"))
    is_patch = F.col("action") == PATCH
    is_end = F.col("ends_at").isNull() | (F.col("ends_at") != F.col("starts_at"))
    is_deleted = F.col("action") == DELETE
    staged = folds.join(held, F.expr("c.key <=> h.of_key"), "left").select(
        "key",
        "ordinal",
        "starts_at",
        "ends_at",
        (F.col("is_first") & is_held).alias("closes"),
        (is_end & ((F.col("action") == REPLACE) | (is_patch & is_held))).alias("opens"),
        ((F.col("mod_type") == "UPDATE") & (is_deleted | (is_patch & ~is_held))).alias("is_lost"),
        *(
            F.when(F.col(captured_flag(n)), F.col(folded_value(n)))
            .otherwise(F.col(_held(n)))
            .alias(_value(n))
            for n in range(len(columns))
        ),
        *(
            F.when(is_patch, F.col(_held(n))).alias(_value(n))
            for n in range(len(columns), len(columns) + len(stale))
        ),
    )
    return staged.where("closes OR opens OR is_lost")


def merge_staged(
    history: DeltaTable,
    staged: DataFrame,
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    version_columns: HistoryColumns,
    files: int,
) -> None:
    """Close and open versions; keys are also equal where both are null.

    A change that does both is two rows of the source: one that matches the version in the table,
    and one that matches nothing and is inserted.
    """
    closing = staged.where("closes").withColumn("is_closing", F.expr("true"))
    opening = staged.where("opens").withColumn("is_closing", F.expr("false"))
    # As few tasks as files: each task writes one for itself.
    source = closing.unionByName(opening).coalesce(files)
    same_key = " AND ".join(f"t.{quoted(key)} <=> s.key.{quoted(key)}" for key in keys)
    written = [*columns, *_stale(history.toDF(), columns, version_columns)]
    inserted: dict[str, str | Column] = {
        version_columns.valid_from: F.col("s.starts_at"),
        version_columns.valid_to: F.col("s.ends_at"),
        version_columns.is_current: F.col("s.ends_at").isNull(),
        **{quoted(column): F.col(f"s.{_value(n)}") for n, column in enumerate(written)},
    }
    (
        history.alias("t")
        .merge(source.alias("s"), f"s.is_closing AND t.{version_columns.is_current} AND {same_key}")
        .whenMatchedDelete(f"t.{version_columns.valid_from} >= s.starts_at")
        .whenMatchedUpdate(
            set={
                version_columns.valid_to: F.col("s.starts_at"),
                version_columns.is_current: F.expr("false"),
            }
        )
        .whenNotMatchedInsert("NOT s.is_closing", values=inserted)
        .execute()
    )


def _stale(table: DataFrame, columns: Sequence[str], version_columns: HistoryColumns) -> list[str]:
    """Return the columns that no change writes any more; an UPDATE leaves them unchanged."""
    written = {name.lower() for name in (*version_columns.names, *columns)}
    return [name for name in table.columns if name.lower() not in written]


def _held(position: int) -> str:
    return f"held_{position}"


def _value(position: int) -> str:
    return f"final_{position}"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """The effect of a release on a history table.

    `rows` are the Arrow rows of the MERGE: versions that end and versions that begin.  `lost` are
    the ordinals of UPDATEs of rows that the table lacks.
    """

    rows: Any
    lost: frozenset[int]


def stage_rows(
    history: DirectTable,
    folded: Sequence[FoldedChange],
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    version_columns: HistoryColumns,
) -> StagedRows:
    """Return the versions that folded changes close and open; `history` is before the release."""
    values = history.values(keys[0], [change.state.key[keys[0]] for change in folded])
    current = history.find_rows(keys[0], values, columns, part=version_columns.current)
    place_of = {key: place for place, key in enumerate(as_tuples(current.select(list(keys))))}
    of_change = as_tuples(history.rows([change.state.key for change in folded], keys))
    places = [place_of.get(key) for key in of_change]
    changes = list(zip(folded, places, strict=True))
    closing = [change for change, place in changes if change.is_first and place is not None]
    opening = [
        (change, place) for change, place in changes if _opens(change, is_held=place is not None)
    ]
    rows = [*((change, None) for change in closing), *opening]
    source: dict[str, Any] = {
        "is_closing": history.flags([n < len(closing) for n in range(len(rows))]),
        "starts_at": history.values(
            version_columns.valid_from, [change.starts_at for change, _ in rows]
        ),
        "ends_at": history.values(version_columns.valid_to, [change.ends_at for change, _ in rows]),
    }
    for n, key in enumerate(keys):
        source[f"key_{n}"] = history.values(key, [change.state.key[key] for change, _ in rows])
    held = [place for _, place in rows]
    for n, column in enumerate(columns):
        captured = [change.state.captures(column) for change, _ in rows]
        new = history.values(column, [change.state.values.get(column) for change, _ in rows])
        source[folded_value(n)] = history.either(captured, new, current[column], held)
    lost = (
        change.ordinal for change, place in changes if _is_lost(change, is_held=place is not None)
    )
    return StagedRows(history.together(source), frozenset(lost))


def merge_rows(
    history: DirectTable,
    rows: Any,
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    version_columns: HistoryColumns,
    commit: Commit,
) -> None:
    """Close and open versions in one commit, unless the table has it or nothing would change."""
    is_current = version_columns.is_current
    history.merge(
        rows,
        same_row=f"s.is_closing AND t.{is_current} = true AND {same_key(rows, keys)}",
        is_deleted=f"t.{version_columns.valid_from} >= s.starts_at",
        updated={version_columns.valid_to: "s.starts_at", is_current: "false"},
        is_inserted="NOT s.is_closing",
        inserted={
            version_columns.valid_from: "s.starts_at",
            version_columns.valid_to: "s.ends_at",
            is_current: "s.ends_at IS NULL",
            **{double_quoted(column): f"s.{folded_value(n)}" for n, column in enumerate(columns)},
        },
        commit=commit,
    )


def _opens(change: FoldedChange, *, is_held: bool) -> bool:
    """Whether a version begins with a change: the last one of its key and commit timestamp."""
    is_alive = change.state.action == REPLACE or (change.state.action == PATCH and is_held)
    return is_alive and change.ends_at != change.starts_at


def _is_lost(change: FoldedChange, *, is_held: bool) -> bool:
    """Whether a change is an UPDATE of a row that is deleted, or was never inserted."""
    is_unknown = change.state.action == DELETE or (change.state.action == PATCH and not is_held)
    return change.mod_type == "UPDATE" and is_unknown

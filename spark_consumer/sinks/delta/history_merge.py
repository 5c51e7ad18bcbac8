"""A release's changes of one table as versions of its rows, and their MERGE by Spark.

The last change of a key at a commit timestamp makes a version, unless the row is gone by then.  It
begins at that time and ends at the key's next change.  The key's first change ends the version that
the table has.  So several changes at one commit timestamp make one version, and a version that
would begin and end at the same time is no row.
"""

from __future__ import annotations

from collections.abc import Sequence

from delta.tables import DeltaTable
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.sinks.delta.fold import (
    DELETE,
    PATCH,
    REPLACE,
    captured_flag,
    fold_each,
    folded_value,
)
from tidegate.spark_consumer.sinks.delta.history_columns import HistoryColumns
from tidegate.spark_consumer.sinks.delta.merging import key_struct
from tidegate.spark_consumer.sinks.sql_names import quoted

_BROADCAST_ROWS_MAX = 100_000
"""The keys of as many changes go to every task, which then reads the table without a shuffle."""


def stage(
    changes: DataFrame,
    current: DataFrame,
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    ours: HistoryColumns,
    rows: int,
) -> DataFrame:
    """Return the changes that close, open or lack a version, with the values of what they open.

    `current` are the table's current versions before the release; `rows` is how many changes there
    are.  Returns `key` struct; `ordinal`; `starts_at` and `ends_at` (null: current) of what the
    change opens; the flags `closes` (it ends the version in the table), `opens`, and `is_lost` (an
    UPDATE of a row that the table lacks); and a value for each of `columns` and of `_stale`.
    """
    each = fold_each(changes, columns).alias("c")
    stale = _stale(current, columns, ours)
    touched = changes.select(F.col("key").alias("touched_key")).distinct()
    if rows <= _BROADCAST_ROWS_MAX:
        touched = F.broadcast(touched)
    # Positional names: a table's own column may have the name of one of ours.
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
    staged = each.join(held, F.expr("c.key <=> h.of_key"), "left").select(
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
    ours: HistoryColumns,
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
    written = [*columns, *_stale(history.toDF(), columns, ours)]
    inserted: dict[str, str | Column] = {
        ours.valid_from: F.col("s.starts_at"),
        ours.valid_to: F.col("s.ends_at"),
        ours.is_current: F.col("s.ends_at").isNull(),
        **{quoted(column): F.col(f"s.{_value(n)}") for n, column in enumerate(written)},
    }
    (
        history.alias("t")
        .merge(source.alias("s"), f"s.is_closing AND t.{ours.is_current} AND {same_key}")
        .whenMatchedDelete(f"t.{ours.valid_from} >= s.starts_at")
        .whenMatchedUpdate(
            set={ours.valid_to: F.col("s.starts_at"), ours.is_current: F.expr("false")}
        )
        .whenNotMatchedInsert("NOT s.is_closing", values=inserted)
        .execute()
    )


def _stale(table: DataFrame, columns: Sequence[str], ours: HistoryColumns) -> list[str]:
    """Return the columns that no change writes any more; an UPDATE leaves them as they are."""
    known = {name.lower() for name in (*ours.names, *columns)}
    return [name for name in table.columns if name.lower() not in known]


def _held(position: int) -> str:
    return f"held_{position}"


def _value(position: int) -> str:
    return f"final_{position}"

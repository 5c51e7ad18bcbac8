"""A release's changes of one table, folded per key: how the mirror, or the history, has to change.

Folded per key and column, in order, since the key's last INSERT or DELETE: to one row per key, or
to one for each change, which has the key's state after it.  Native expressions
only, as SQL: for 300 columns PySpark's own operators need 130,000 calls of Java.

A column's value comes from the newest change that captured it; absent is not NULL.  Order is the
release's ordinal, which is dense in commit order and cheaper to compare than the order key.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.sinks.sql_names import quoted, text_literal

REPLACE = "replace"
"""The row becomes the folded values: the key's last INSERT or DELETE was an INSERT."""

PATCH = "patch"
"""The captured columns change, the others stay: the release holds UPDATEs of the key only."""

DELETE = "delete"
"""The row is deleted: the key's last INSERT or DELETE was a DELETE."""


def captured_flag(position: int) -> str:
    """Return the name of the folded column that is true if the table's column was captured."""
    return f"captured_{position}"


def folded_value(position: int) -> str:
    """Return the name of the folded column that holds the table's column."""
    return f"value_{position}"


def updated_at(position: int) -> str:
    """Return the name of the column with the ordinal of the newest UPDATE that captured it."""
    return f"updated_at_{position}"


def fold(
    changes: DataFrame,
    columns: Sequence[str],
    *,
    newest: Sequence[str] = (),
    with_places: bool = False,
) -> DataFrame:
    """Return one row per key of decoded changes: what to do with it, and with what.

    `key` struct; `action` one of `REPLACE`, `PATCH`, `DELETE`; `base_ordinal` the ordinal of the
    last INSERT or DELETE (null for `PATCH`); `updated_after_base` whether an UPDATE follows it
    (after a DELETE that is an UPDATE without a row); for the n-th of `columns` a flag and a value;
    and of each of the changes' columns `newest` the greatest value.  `with_places` adds for the
    n-th of `columns` the ordinal of the newest UPDATE behind the base that captured it, or null.
    Ordinals may be of any type that has an order.
    """
    parts = [F.expr(part).alias(name) for name, part in _parts(columns).items()]
    parts += [F.max(name).alias(name) for name in newest]
    flat = _flat(changes, columns, *newest)
    places = [f"{_updated_at(n)} AS {updated_at(n)}" for n in range(len(columns))]
    results = [*_results(columns), *(places if with_places else ())]
    return flat.groupBy("key").agg(*parts).selectExpr("key", *results, *map(quoted, newest))


def fold_each(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return one row per change: what `fold` returns of its key's changes up to this one.

    Besides these columns: `ordinal` and `mod_type` of the change, `starts_at` its commit timestamp,
    `ends_at` that of the key's next change (null: there is none), and whether it `is_first` of its
    key.
    """
    in_order = Window.partitionBy("key").orderBy("ordinal")
    so_far = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        _flat(changes, columns)
        .select(
            "key",
            "ordinal",
            "mod_type",
            F.col("commit_timestamp").alias("starts_at"),
            F.lead("commit_timestamp").over(in_order).alias("ends_at"),
            (F.row_number().over(in_order) == 1).alias("is_first"),
            *(F.expr(part).over(so_far).alias(name) for name, part in _parts(columns).items()),
        )
        .selectExpr(
            "key",
            "ordinal",
            "mod_type",
            "starts_at",
            "ends_at",
            "is_first",
            *_results(columns),
        )
    )


def _flat(changes: DataFrame, columns: Sequence[str], *also: str) -> DataFrame:
    # Positional names: a table's own column may have the name of one of ours.
    values = [f"new_values.{quoted(column)} AS in_{n}" for n, column in enumerate(columns)]
    flags = [f"{_captured(column)} AS has_{n}" for n, column in enumerate(columns)]
    ours = ("key", "ordinal", "commit_timestamp", "mod_type", *map(quoted, also))
    return changes.selectExpr(*ours, *values, *flags)


def _parts(columns: Sequence[str]) -> dict[str, str]:
    """Return what is aggregated over changes of a key, by name."""
    whole = "mod_type IN ('INSERT', 'DELETE')"
    return {
        "base_ordinal": f"max(CASE WHEN {whole} THEN ordinal END)",
        "base_mod": f"max_by(mod_type, CASE WHEN {whole} THEN ordinal END)",
        "updated_at": f"max(CASE WHEN NOT {whole} THEN ordinal END)",
        **{
            f"newest_{n}": f"max_by(struct(ordinal, in_{n} AS value), "
            f"CASE WHEN has_{n} THEN ordinal END)"
            for n in range(len(columns))
        },
    }


def _results(columns: Sequence[str]) -> list[str]:
    """Return what follows from the aggregates: every column of `fold` but the key."""
    inserted, deleted = "base_mod = 'INSERT'", "base_mod = 'DELETE'"
    action = (
        f"CASE WHEN {inserted} THEN '{REPLACE}' WHEN {deleted} THEN '{DELETE}' ELSE '{PATCH}' END"
    )
    since = [f"{_place(n)} >= coalesce(base_ordinal, {_place(n)})" for n in range(len(columns))]
    return [
        f"{action} AS action",
        "base_ordinal",
        "coalesce(updated_at > base_ordinal, false) AS updated_after_base",
        *(
            # An INSERT replaces the row: what it did not capture is NULL, not the former value.
            f"coalesce({inserted} OR {since[n]}, false) AS {captured_flag(n)}"
            for n in range(len(columns))
        ),
        *(
            f"CASE WHEN {since[n]} THEN newest_{n}.value END AS {folded_value(n)}"
            for n in range(len(columns))
        ),
    ]


def _place(position: int) -> str:
    return f"newest_{position}.ordinal"


def _updated_at(position: int) -> str:
    place = _place(position)
    return f"CASE WHEN base_ordinal IS NULL OR {place} > base_ordinal THEN {place} END"


def _captured(column: str) -> str:
    """Whether a change captured a column; false for a change without new values."""
    named = f"array_contains(new_columns, {text_literal(column)})"
    return f"new_values IS NOT NULL AND (new_columns IS NULL OR {named})"

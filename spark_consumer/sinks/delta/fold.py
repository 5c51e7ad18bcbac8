"""A release's changes of one table, folded per key: how the mirror, or the history, has to change.

Folded per key and column, in order, since the key's last INSERT or DELETE: to one row per key, or
to one for each change, which has the key's state after it.  Native expressions
only.  A column's value comes from the newest change that captured it; absent is not NULL.  Order is
the release's ordinal, which is dense in commit order and cheaper to compare than the order key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

__all__ = [
    "DELETE",
    "PATCH",
    "REPLACE",
    "captured_flag",
    "fold",
    "fold_each",
    "folded_value",
    "updated_at",
]

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
    parts = [part.alias(name) for name, part in _parts(columns).items()]
    parts += [F.max(name).alias(name) for name in newest]
    flat = _flat(changes, columns, *newest)
    places = [_updated_at(n).alias(updated_at(n)) for n in range(len(columns))]
    results = [*_results(columns), *(places if with_places else ())]
    return flat.groupBy("key").agg(*parts).select("key", *results, *newest)


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
            *(part.over(so_far).alias(name) for name, part in _parts(columns).items()),
        )
        .select(
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
    values = [F.col("new_values")[column].alias(f"in_{n}") for n, column in enumerate(columns)]
    flags = [_captured(column).alias(f"has_{n}") for n, column in enumerate(columns)]
    return changes.select("key", "ordinal", "commit_timestamp", "mod_type", *also, *values, *flags)


def _parts(columns: Sequence[str]) -> dict[str, Column]:
    """Return what is aggregated over changes of a key, by name."""
    whole = F.col("mod_type").isin("INSERT", "DELETE")
    return {
        "base_ordinal": F.max(F.when(whole, F.col("ordinal"))),
        "base_mod": F.max_by("mod_type", F.when(whole, F.col("ordinal"))),
        "updated_at": F.max(F.when(~whole, F.col("ordinal"))),
        **{
            f"newest_{n}": F.max_by(
                F.struct(F.col("ordinal"), F.col(f"in_{n}").alias("value")),
                F.when(F.col(f"has_{n}"), F.col("ordinal")),
            )
            for n in range(len(columns))
        },
    }


def _results(columns: Sequence[str]) -> list[Column]:
    """Return what follows from the aggregates: every column of `fold` but the key."""
    inserted = F.col("base_mod") == "INSERT"
    action = F.when(inserted, REPLACE).when(F.col("base_mod") == "DELETE", DELETE).otherwise(PATCH)
    since = [_place(n) >= F.coalesce(F.col("base_ordinal"), _place(n)) for n in range(len(columns))]
    return [
        action.alias("action"),
        F.col("base_ordinal"),
        F.coalesce(F.col("updated_at") > F.col("base_ordinal"), F.expr("false")).alias(
            "updated_after_base"
        ),
        *(
            # An INSERT replaces the row: what it did not capture is NULL, not the former value.
            F.coalesce(inserted | since[n], F.expr("false")).alias(captured_flag(n))
            for n in range(len(columns))
        ),
        *(
            F.when(since[n], F.col(f"newest_{n}.value")).alias(folded_value(n))
            for n in range(len(columns))
        ),
    ]


def _place(position: int) -> Column:
    return F.col(f"newest_{position}.ordinal")


def _updated_at(position: int) -> Column:
    base = F.col("base_ordinal")
    return F.when(base.isNull() | (_place(position) > base), _place(position))


def _captured(column: str) -> Column:
    """Whether a change captured a column; false for a change without new values."""
    named = F.col("new_columns").isNull() | F.array_contains("new_columns", column)
    return F.col("new_values").isNotNull() & named

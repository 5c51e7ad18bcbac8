"""Changes of a table whose source orders them by a column: of each key the newest counts.

A release may hold an older change than an earlier release did, so a mirror compares each change
with the row that it has, by `SOURCE_ORDER`.  To compare it with a deletion, the mirror keeps
deleted rows: a DELETE is written as the row that it deleted, which says so in its own columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.source_order import SOURCE_ORDER

_ORDER, _CHANGE = "tidegate_order", "tidegate_change"


def is_ordered_by_column(columns: Iterable[str]) -> bool:
    """Whether the changes of a table with these columns are ordered by one of them."""
    return SOURCE_ORDER in columns


def newest_changes(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return decoded changes as a fold takes them: of each key the newest, as an INSERT.

    Changes of a table without the column are returned as they are.
    """
    if not is_ordered_by_column(columns):
        return changes
    rest = [name for name in changes.columns if name != "key"]
    newest = (
        changes.withColumn(_ORDER, _source_order())
        .groupBy("key")
        .agg(F.max_by(F.struct(*rest), F.col(_ORDER)).alias(_CHANGE))
        .select("key", f"{_CHANGE}.*")
    )
    return newest.withColumns(
        {
            "mod_type": F.lit("INSERT"),
            "new_values": F.coalesce("new_values", "old_values"),
            "new_columns": F.when(F.col("new_values").isNull(), F.col("old_columns")).otherwise(
                F.col("new_columns")
            ),
        }
    )


def with_source_order(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return decoded changes whose `order_key` says which of a key is the newest.

    That is the source's order, as bytes, for a table with its column; others have it already.
    """
    if not is_ordered_by_column(columns):
        return changes
    return changes.withColumn("order_key", F.encode(_source_order(), "UTF-8"))


def _source_order() -> Column:
    return F.coalesce(F.col("new_values")[SOURCE_ORDER], F.col("old_values")[SOURCE_ORDER])


def newest_rows(
    changes: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> Iterable[Mapping[str, Any]]:
    """Return collected changes as `newest_changes` returns those of a frame."""
    if not is_ordered_by_column(columns):
        return changes
    newest: dict[tuple[Any, ...], tuple[str, Mapping[str, Any]]] = {}
    for change in changes:
        is_deletion = change["new_values"] is None
        row = change["old_values"] if is_deletion else change["new_values"]
        key, order = tuple(change["key"].values()), row[SOURCE_ORDER]
        if key not in newest or order > newest[key][0]:
            named = change["old_columns"] if is_deletion else change["new_columns"]
            inserted = {"mod_type": "INSERT", "new_values": row, "new_columns": named}
            newest[key] = order, {**change, **inserted}
    return [change for _, change in newest.values()]

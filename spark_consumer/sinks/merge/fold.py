"""Folds a release's changes of one table per key, for the mirror or the history.

Changes are folded per key and column, in order, since the key's last INSERT or DELETE: to one row
per key, or to one row per change with the key's state after it.  A column's value comes from the
newest change that captured it; absent is not NULL.  Order is the release's ordinal, which is dense
in commit order and cheaper to compare than the order key.  Large releases are folded by Spark, with
native expressions as SQL: for 300 columns PySpark's operators need 130,000 calls of Java.  Small
ones are folded in the driver.

Where a column of the source orders changes, the newest of each key counts.  A release may hold an
older change than an earlier release did, so a mirror compares each change with the row that it has,
by `SOURCE_ORDER`.  To compare it with a deletion, the mirror keeps deleted rows: a DELETE is
written as the deleted row, with columns that mark it as deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.sinks.sql import quoted, text_literal

REPLACE = "replace"
"""The row becomes the folded values: the key's last INSERT or DELETE was an INSERT."""

PATCH = "patch"
"""The captured columns change, the other columns stay: the key has only UPDATEs in the release."""

DELETE = "delete"
"""The row is deleted: the key's last INSERT or DELETE was a DELETE."""

_BEFORE_EVERY_CHANGE = -1

_ORDER, _CHANGE = "tidegate_order", "tidegate_change"
_NAN = object()


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
    """Return one row per key of decoded changes: the action for the key, and the values.

    `key` struct; `action` one of `REPLACE`, `PATCH`, `DELETE`; `base_ordinal` the ordinal of the
    last INSERT or DELETE (null for `PATCH`); `updated_after_base` whether an UPDATE follows it
    (after a DELETE that is an UPDATE without a row); for the n-th of `columns` a flag and a value;
    and the greatest value of each of the columns `newest`.  `with_places` adds for the n-th of
    `columns` the ordinal of the newest UPDATE after the base that captured it, or null.  Ordinals
    may be of any type that has an order.
    """
    parts = [F.expr(part).alias(name) for name, part in _parts(columns).items()]
    parts += [F.max(name).alias(name) for name in newest]
    flat = _flat(changes, columns, *newest)
    places = [f"{_updated_at(n)} AS {updated_at(n)}" for n in range(len(columns))]
    results = [*_results(columns), *(places if with_places else ())]
    return flat.groupBy("key").agg(*parts).selectExpr("key", *results, *map(quoted, newest))


def fold_each(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return one row per change: the result of `fold` for its key's changes up to this one.

    Besides these columns: `ordinal` and `mod_type` of the change, `starts_at` its commit timestamp,
    `ends_at` that of the key's next change (null: there is none), and whether it `is_first` of its
    key.
    """
    in_order = Window.partitionBy("key").orderBy("ordinal")
    up_to_here = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return (
        _flat(changes, columns)
        .select(
            "key",
            "ordinal",
            "mod_type",
            F.col("commit_timestamp").alias("starts_at"),
            F.lead("commit_timestamp").over(in_order).alias("ends_at"),
            (F.row_number().over(in_order) == 1).alias("is_first"),
            *(F.expr(part).over(up_to_here).alias(name) for name, part in _parts(columns).items()),
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
    # Positional names: a table's own column may have a name that is used here.
    values = [f"new_values.{quoted(column)} AS in_{n}" for n, column in enumerate(columns)]
    flags = [f"{_captured(column)} AS has_{n}" for n, column in enumerate(columns)]
    fixed = ("key", "ordinal", "commit_timestamp", "mod_type", *map(quoted, also))
    return changes.selectExpr(*fixed, *values, *flags)


def _parts(columns: Sequence[str]) -> dict[str, str]:
    """Return the aggregates over the changes of a key, by name."""
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
            # An INSERT replaces the row: a column that it did not capture is NULL, not the former
            # value.
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


@dataclass(slots=True)
class FoldedRow:
    """The action for one key, and the values; the fields of `fold`, without its flags.

    `values` holds the values captured since the base.  In a `REPLACE` every column counts as
    captured: a column that is not in `values` becomes NULL.
    """

    key: Mapping[str, Any]
    action: str = PATCH
    base_ordinal: int | None = None
    updated_after_base: bool = False
    values: dict[str, Any] = field(default_factory=dict)

    def captures(self, column: str) -> bool:
        """Whether the table's column gets a value, which may be NULL."""
        return self.action == REPLACE or column in self.values

    def is_after_base(self, ordinal: int) -> bool:
        """Whether a change of the key counts: it comes after its last INSERT or DELETE."""
        base = _BEFORE_EVERY_CHANGE if self.base_ordinal is None else self.base_ordinal
        return ordinal > base

    def take(self, change: Mapping[str, Any], columns: frozenset[str]) -> None:
        """Fold the key's next change, with the table's columns that it captured."""
        if change["mod_type"] == "UPDATE":
            self.updated_after_base = self.base_ordinal is not None
        else:
            self.action = REPLACE if change["mod_type"] == "INSERT" else DELETE
            self.base_ordinal = change["ordinal"]
            self.updated_after_base = False
            self.values = {}
        if (new := change["new_values"]) is not None:
            names = change["new_columns"]
            captured = columns if names is None else columns.intersection(names)
            self.values.update((name, new.get(name)) for name in captured)


@dataclass(frozen=True, slots=True)
class FoldedChange:
    """The fold of a key's changes up to one of them; the fields of `fold_each`, in microseconds."""

    ordinal: int
    mod_type: str
    starts_at: int
    ends_at: int | None
    is_first: bool
    state: FoldedRow


def fold_rows(changes: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> list[FoldedRow]:
    """Return one row per key of decoded changes, which are in the order of their ordinals."""
    names = frozenset(columns)
    folded: dict[tuple[Any, ...], FoldedRow] = {}
    for change in changes:
        key = _comparable(change["key"])
        folded.setdefault(key, FoldedRow(change["key"])).take(change, names)
    return list(folded.values())


def _comparable(key: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return a key's values so that equal keys are equal: as Spark has it, NaN equals NaN."""
    return tuple(_NAN if value != value else value for value in key.values())  # noqa: PLR0124 - only NaN differs from itself


def fold_each_row(
    changes: Iterable[Mapping[str, Any]], columns: Sequence[str]
) -> list[FoldedChange]:
    """Return one row per change, each key's together; changes are in the order of ordinals."""
    by_key: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for change in changes:
        by_key.setdefault(_comparable(change["key"]), []).append(change)
    names = frozenset(columns)
    return [step for of_key in by_key.values() for step in _steps(of_key, names)]


def _steps(of_key: Sequence[Mapping[str, Any]], columns: frozenset[str]) -> Iterator[FoldedChange]:
    state = FoldedRow(of_key[0]["key"])
    for change, following in zip_longest(of_key, of_key[1:]):
        state = replace(state, values=dict(state.values))
        state.take(change, columns)
        yield FoldedChange(
            ordinal=change["ordinal"],
            mod_type=change["mod_type"],
            starts_at=change["commit_timestamp"],
            ends_at=None if following is None else following["commit_timestamp"],
            is_first=change is of_key[0],
            state=state,
        )


def is_ordered_by_column(columns: Iterable[str]) -> bool:
    """Whether the changes of a table with these columns are ordered by one of them."""
    return SOURCE_ORDER in columns


def newest_changes(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return decoded changes as a fold takes them: of each key the newest, as an INSERT.

    Changes of a table without the column are returned unchanged.
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
    """Return decoded changes whose `order_key` gives the order of a key's changes.

    For a table with the source's order column it is that column's value as bytes; other changes
    have it already.
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
        key, order = _comparable(change["key"]), row[SOURCE_ORDER]
        if key not in newest or order > newest[key][0]:
            named = change["old_columns"] if is_deletion else change["new_columns"]
            inserted = {"mod_type": "INSERT", "new_values": row, "new_columns": named}
            newest[key] = order, {**change, **inserted}
    return [change for _, change in newest.values()]

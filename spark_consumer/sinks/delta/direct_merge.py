"""The mirror's MERGE of a small release by delta-rs: what `mirror` does with Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.sinks.delta.commit_log import Commit
from tidegate.spark_consumer.sinks.delta.fold import (
    DELETE,
    PATCH,
    REPLACE,
    captured_flag,
    folded_value,
)
from tidegate.spark_consumer.sinks.delta.row_fold import FoldedRow
from tidegate.spark_consumer.sinks.sql_names import double_quoted

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable


def merge_folded(
    mirror: DirectTable,
    folded: Sequence[FoldedRow],
    *,
    columns: Sequence[str],
    keys: Sequence[str],
    commit: Commit,
) -> None:
    """Apply folded changes to the mirror; keys are also equal where both are null.

    With the column `SOURCE_ORDER` a row changes only if it has a lower value there.
    """
    rows = _source(mirror, folded, columns=columns, keys=keys)
    positions = {column: n for n, column in enumerate(columns)}
    # A table of key columns only has nothing to patch, but a MERGE must assign something.
    assigned = [column for column in columns if column not in keys] or list(keys)
    newer = ""
    if SOURCE_ORDER in positions:
        newer = f" AND s.{folded_value(positions[SOURCE_ORDER])} > t.{double_quoted(SOURCE_ORDER)}"
    mirror.merge(
        rows,
        same_row=same_key(rows, keys),
        is_deleted=f"s.action = '{DELETE}'",
        updated={
            double_quoted(column): f"CASE WHEN s.{captured_flag(positions[column])}{newer} "
            f"THEN s.{folded_value(positions[column])} ELSE t.{double_quoted(column)} END"
            for column in assigned
        },
        is_inserted=f"s.action = '{REPLACE}'",
        inserted={double_quoted(column): f"s.{folded_value(n)}" for column, n in positions.items()},
        commit=commit,
    )


def unmatched_updates(
    mirror: DirectTable, folded: Sequence[FoldedRow], *, keys: Sequence[str]
) -> list[FoldedRow]:
    """Return what has UPDATEs without a row, by the mirror after the release.

    A release never inserts a key that it only updates, so the mirror after the release lacks
    exactly the keys that it lacked before.
    """
    patched = [one for one in folded if one.action == PATCH]
    first = keys[0]
    values = mirror.values(first, [one.key[first] for one in patched])
    known = set(as_tuples(mirror.found(first, values, keys)))
    wanted = as_tuples(mirror.rows([one.key for one in patched], keys))
    lost = [one for one, key in zip(patched, wanted, strict=True) if key not in known]
    return lost + [one for one in folded if one.action == DELETE and one.updated_after_base]


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
        f"key_{n}": mirror.values(key, [one.key[key] for one in folded])
        for n, key in enumerate(keys)
    }
    source["action"] = mirror.texts([one.action for one in folded])
    for n, column in enumerate(columns):
        source[captured_flag(n)] = mirror.flags([one.captures(column) for one in folded])
        source[folded_value(n)] = mirror.values(column, [one.values.get(column) for one in folded])
    return mirror.together(source)

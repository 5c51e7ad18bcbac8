"""What a batch does to the rows of a mirror by key: columns, and the clauses of its MERGE.

A row has the order key of its newest change, and a change that is not newer does nothing.  So the
result does not depend on how changes are cut into batches, nor on how often a batch comes.  A key
that was deleted keeps a row without values: it has the order key of the DELETE, or a later change
that is older would bring the row back.  A key of which only UPDATEs were seen has the values that
these captured, and is no row of the source table yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.fold import (
    DELETE,
    PATCH,
    REPLACE,
    captured_flag,
    folded_value,
)
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.spark_consumer.sinks.port import AnyTable

__all__ = ["ORDER_KEY", "ROW_STATE", "KeyMerge", "key_merge", "keyed_schema"]

ROW_STATE = "row_state"
"""Column: `present`, `deleted`, or `incomplete` (UPDATEs of a row whose INSERT was not read)."""

ORDER_KEY = "order_key"
"""Column: the order key of the row's newest change, or what its source orders changes by."""

_PRESENT, _DELETED, _INCOMPLETE = "present", "deleted", "incomplete"


@dataclass(frozen=True, slots=True)
class KeyMerge:
    """Clauses over `t` (table) and `s` (fold); columns are quoted, and values are by column."""

    same_key: str
    is_newer: str
    changed: Mapping[str, str]
    inserted: Mapping[str, str]


def keyed_schema(one: AnyTable) -> StructType:
    """Return the columns of a mirror by key and their types.

    Raises ConfigError where the source table has a column with the name of one of ours.
    """
    row = mirror_schema(one)
    taken = sorted(name for name in row.fieldNames() if name.lower() in (ROW_STATE, ORDER_KEY))
    if taken:
        message = "a table has columns with names that its mirror by key needs"
        hint = (
            "Leave the columns out of the stream (`columns_left_out` of the producer), rename "
            "them, or use the sink mirror"
        )
        raise ConfigError(message, hint=hint, table=one.schemas.table, columns=taken)
    ours = [StructField(ROW_STATE, StringType()), StructField(ORDER_KEY, BinaryType())]
    return StructType([*ours, *row])


def key_merge(
    *, columns: Sequence[str], keys: Sequence[str], existing: Sequence[str] = ()
) -> KeyMerge:
    """Return the clauses for a fold of these columns that has the newest order key too.

    A column that `existing` names and no change has any more keeps its value until a DELETE.
    """
    known = {name.lower() for name in (ROW_STATE, ORDER_KEY, *columns)}
    stale = [name for name in existing if name.lower() not in known]
    of_key = {key: f"s.key.`{key}`" for key in keys}
    values = {name: f"s.{folded_value(n)}" for n, name in enumerate(columns) if name not in of_key}
    kept = {
        name: f"CASE WHEN s.action = '{PATCH}' AND NOT s.{captured_flag(n)} "
        f"THEN t.`{name}` ELSE {values[name]} END"
        for n, name in enumerate(columns)
        if name in values
    }
    left = {name: f"CASE WHEN s.action <> '{DELETE}' THEN t.`{name}` END" for name in stale}
    state = _state_after(f"t.{ROW_STATE}")
    new_state = _state_after(f"'{_DELETED}'")
    newest = {ORDER_KEY: f"s.{ORDER_KEY}"}
    return KeyMerge(
        same_key=" AND ".join(f"t.`{key}` <=> {value}" for key, value in of_key.items()),
        is_newer=f"s.{ORDER_KEY} > t.{ORDER_KEY}",
        changed=_quoted({ROW_STATE: state, **newest, **kept, **left}),
        inserted=_quoted(
            {ROW_STATE: new_state, **newest, **of_key, **values, **dict.fromkeys(stale, "NULL")}
        ),
    )


def _state_after(before: str) -> str:
    """Return the row's state after a folded change; `before` is what it was."""
    return (
        f"CASE WHEN s.action = '{REPLACE}' THEN '{_PRESENT}' "
        f"WHEN s.action = '{DELETE}' AND NOT s.updated_after_base THEN '{_DELETED}' "
        f"WHEN s.action = '{PATCH}' AND {before} = '{_PRESENT}' THEN '{_PRESENT}' "
        f"ELSE '{_INCOMPLETE}' END"
    )


def _quoted(values: Mapping[str, str]) -> dict[str, str]:
    return {f"`{name}`": value for name, value in values.items()}

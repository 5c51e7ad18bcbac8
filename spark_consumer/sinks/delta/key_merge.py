"""What a batch does to the rows of a mirror by key: columns, and the clauses of its MERGE.

A row's state follows from the set of its key's changes that were read, whatever their order: of
each column the newest change counts that captured it, and an INSERT or DELETE captures every one.
So the result depends neither on how changes are cut into batches, nor on how often a batch comes,
nor on which of a table's two topics is read first: a row that was read on demand, as of a time T,
may come in a later batch than an UPDATE behind T.  Therefore a row has the order keys of what
UPDATEs captured since its INSERT or DELETE.

A key that was deleted keeps a row without values: it has the order key of the DELETE, or a later
change that is older would bring the row back.  A key of which only UPDATEs were seen has the values
that these captured, and is no row of the source table yet.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.delta.fold import DELETE, REPLACE, folded_value, updated_at
from tidegate.spark_consumer.sinks.delta.mirror_scope import mirror_schema
from tidegate.spark_consumer.sinks.port import AnyTable
from tidegate.spark_consumer.sinks.sql_names import quoted, text_literal

ROW_STATE = "row_state"
"""Column: `present`, `deleted`, or `incomplete` (UPDATEs of a row whose INSERT was not read)."""

ORDER_KEY = "order_key"
"""Column: the order key of the row's newest change, or what its source orders changes by."""

COLUMN_UPDATES = "column_updates"
"""Column: what UPDATEs captured since the row's INSERT or DELETE; NULL if there were none.

`base_order_key` is the order key of that INSERT or DELETE (NULL: none was read), and `columns` has
by column that of the newest UPDATE which captured it.
"""

_PRESENT, _DELETED, _INCOMPLETE = "present", "deleted", "incomplete"
_OURS = (ROW_STATE, ORDER_KEY, COLUMN_UPDATES)
_UPDATES_TYPE = StructType(
    [
        StructField("base_order_key", BinaryType()),
        StructField("columns", MapType(StringType(), BinaryType())),
    ]
)
_BEFORE_ALL = "X''"


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
    taken = sorted(name for name in row.fieldNames() if name.lower() in _OURS)
    if taken:
        raise ConfigError(
            "a table has columns with names that its mirror by key needs",
            hint=(
                "Leave the columns out of the stream (`columns_left_out` of the producer; a column "
                "that is dropped or renamed stays in the topic), or use the sink mirror"
            ),
            table=one.schemas.table,
            columns=taken,
        )
    types = (StringType(), BinaryType(), _UPDATES_TYPE)
    ours = [StructField(name, kind) for name, kind in zip(_OURS, types, strict=True)]
    return StructType([*ours, *row])


def key_merge(
    *, columns: Sequence[str], keys: Sequence[str], existing: Sequence[str] = ()
) -> KeyMerge:
    """Return the clauses for a fold of these columns with its places, which are order keys.

    The fold has the newest order key too.  A column that `existing` names and no change has any
    more keeps its value until a DELETE.
    """
    known = {name.lower() for name in (*_OURS, *columns)}
    stale = [name for name in existing if name.lower() not in known]
    of_key = {key: f"s.key.{quoted(key)}" for key in keys}
    places = {name: n for n, name in enumerate(columns) if name not in of_key}
    newer = {name: _is_newer(name, n) for name, n in places.items()}
    values = {name: f"s.{folded_value(n)}" for name, n in places.items()}
    updates = {name: f"s.{updated_at(n)}" for name, n in places.items()}
    kept = {
        name: f"CASE WHEN {newer[name]} THEN {value} ELSE t.{quoted(name)} END"
        for name, value in values.items()
    }
    left = {
        name: f"CASE WHEN NOT ({_BASE_IS_NEWER} AND s.action = '{DELETE}') "
        f"THEN t.{quoted(name)} END"
        for name in stale
    }
    left_updates = {
        name: f"CASE WHEN {_table_update(name)} > {_or_first('s.base_ordinal')} "
        f"THEN {_table_update(name)} END"
        for name in stale
    }
    kept_updates = {
        name: f"CASE WHEN {newer[name]} THEN {update} ELSE {_table_update(name)} END"
        for name, update in updates.items()
    }
    return KeyMerge(
        same_key=" AND ".join(f"t.{quoted(key)} <=> {value}" for key, value in of_key.items()),
        is_newer=" OR ".join((f"s.{ORDER_KEY} > t.{ORDER_KEY}", _BASE_IS_NEWER, *newer.values())),
        changed=_quoted(
            {
                ROW_STATE: _STATE_AFTER,
                ORDER_KEY: _NEWEST,
                COLUMN_UPDATES: _updates({**kept_updates, **left_updates}, _NEWEST, _NEW_BASE),
                **kept,
                **left,
            }
        ),
        inserted=_quoted(
            {
                ROW_STATE: _FIRST_STATE,
                ORDER_KEY: f"s.{ORDER_KEY}",
                COLUMN_UPDATES: _updates(updates, f"s.{ORDER_KEY}", "s.base_ordinal"),
                **of_key,
                **values,
                **dict.fromkeys(stale, "NULL"),
            }
        ),
    )


def _or_first(order_key: str) -> str:
    return f"coalesce({order_key}, {_BEFORE_ALL})"


_TABLE_BASE = (
    f"CASE WHEN t.{COLUMN_UPDATES} IS NULL THEN t.{ORDER_KEY} "
    f"ELSE t.{COLUMN_UPDATES}.base_order_key END"
)
"""The order key of the row's INSERT or DELETE; of what an earlier version wrote, of all of it."""
_BASE_IS_NEWER = f"(coalesce(s.base_ordinal > {_or_first(_TABLE_BASE)}, false))"
_NEW_BASE = f"CASE WHEN {_BASE_IS_NEWER} THEN s.base_ordinal ELSE {_TABLE_BASE} END"
_NEWEST = f"greatest(s.{ORDER_KEY}, t.{ORDER_KEY})"

_STATE_AFTER = (
    f"CASE WHEN {_BASE_IS_NEWER} AND s.action = '{REPLACE}' THEN '{_PRESENT}' "
    f"WHEN NOT {_BASE_IS_NEWER} AND t.{ROW_STATE} <> '{_DELETED}' THEN t.{ROW_STATE} "
    f"WHEN {_NEWEST} > {_or_first(_NEW_BASE)} THEN '{_INCOMPLETE}' ELSE '{_DELETED}' END"
)
_FIRST_STATE = (
    f"CASE WHEN s.action = '{REPLACE}' THEN '{_PRESENT}' WHEN s.action = '{DELETE}' AND NOT "
    f"s.updated_after_base THEN '{_DELETED}' ELSE '{_INCOMPLETE}' END"
)


def _table_update(column: str) -> str:
    return f"try_element_at(t.{COLUMN_UPDATES}.columns, {text_literal(column)})"


def _is_newer(column: str, position: int) -> str:
    """Return whether the fold has a newer change that captured the column than the row has."""
    of_fold = f"coalesce(s.{updated_at(position)}, s.base_ordinal)"
    of_row = f"coalesce({_table_update(column)}, {_TABLE_BASE}, {_BEFORE_ALL})"
    return f"(coalesce({of_fold} > {of_row}, false))"


def _updates(by_column: Mapping[str, str], newest: str, base: str) -> str:
    """Return the row's `column_updates`: NULL where no change is behind its base."""
    entries = ", ".join(
        f"CASE WHEN ({value}) IS NOT NULL "
        f"THEN named_struct('name', {text_literal(name)}, 'at', {value}) END"
        for name, value in by_column.items()
    )
    columns = f"map_from_entries(array_compact(array({entries})))" if entries else "map()"
    typed = f"CAST({columns} AS MAP<STRING, BINARY>)"
    return (
        f"CASE WHEN {newest} > {_or_first(base)} "
        f"THEN named_struct('base_order_key', {base}, 'columns', {typed}) END"
    )


def _quoted(values: Mapping[str, str]) -> dict[str, str]:
    return {quoted(name): value for name, value in values.items()}

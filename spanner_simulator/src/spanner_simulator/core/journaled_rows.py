"""Changes of rows in the form of a journal, and back."""

from __future__ import annotations

from spanner_simulator.core.journal import JournaledChange
from spanner_simulator.core.rows.mutations import RowChange
from spanner_simulator.core.rows.write_set import WriteSet
from spanner_simulator.core.values import Row, decode, encode
from spanner_simulator.errors import SpannerError, invalid_argument


def journaled_change(change: RowChange) -> JournaledChange:
    """One net change as plain values."""
    table = change.table
    row = change.new if change.new is not None else change.old or {}
    is_delete = change.mod_type == "DELETE"
    names = table.key_names if is_delete else tuple(column.name for column in table.columns)
    values = tuple(encode(table.type_of[name], row.get(name)) for name in names)
    written = tuple(sorted(change.written)) if change.mod_type == "UPDATE" else ()
    return JournaledChange(table.name, change.mod_type, values, written)


def replay_change(writes: WriteSet, change: JournaledChange) -> None:
    """Add a change to a write set; INVALID_ARGUMENT if it does not fit the rows."""
    rules = writes.rules.get(change.table.lower())
    if rules is None:
        raise _unfit(change, "there is no such table")
    table = rules.table
    is_delete = change.mod_type == "DELETE"
    names = table.key_names if is_delete else tuple(column.name for column in table.columns)
    if len(names) != len(change.values):
        raise _unfit(change, "it has another number of columns")
    row: Row = {
        name: decode(table.type_of[name], plain, where=f"{table.name}.{name}")
        for name, plain in zip(names, change.values, strict=True)
    }
    key = table.encoded_key(row)
    if (writes.row(rules.name, key) is None) != (change.mod_type == "INSERT"):
        raise _unfit(change, "the row does not stand where it should")
    match change.mod_type:
        case "INSERT":
            writes.insert(rules, key, row, table.value_names)
        case "UPDATE":
            writes.update(rules, key, row, frozenset(change.written))
        case "DELETE":
            writes.remove(rules, key)


def _unfit(change: JournaledChange, reason: str) -> SpannerError:
    return invalid_argument(
        f"A journal's {change.mod_type} in {change.table} does not fit: {reason}.",
    )

"""How a table's known columns grow: what the catalogue says now, what was known, what records show.

A new column is added; a dropped one stays, nullable, because records from before the drop may still
come.  The primary key never changes, or keys would move between topic partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.errors import IncompatibleChange
from tidegate.schemas.tables import Column, TableSchema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tidegate.producer.spanner_records import RecordColumn

__all__ = ["evolve"]


def evolve(
    known: TableSchema | None,
    current: TableSchema | None,
    shown: Iterable[RecordColumn],
    *,
    table: str,
) -> TableSchema:
    """Return the table with every column of the three sources, in ordinal order.

    `current` is the catalogue's and None after a DROP TABLE; `shown` are a record's columns.  Where
    several know a column, the catalogue's type holds, then the known one.  Raises
    IncompatibleChange for another primary key, a record's too, and for a table that nobody knows
    any more.
    """
    base = current or known
    if base is None:
        raise IncompatibleChange(
            "a record of a table that was dropped before its schema was known",
            hint="Begin the stream at a later start",
            table=table,
        )
    shown = tuple(shown)
    keyed = {column.name for column in base.key_columns}
    if (known is not None and _key(known) != _key(base)) or any(
        column.is_primary_key and column.name not in keyed for column in shown
    ):
        raise IncompatibleChange(
            "a table's primary key changed",
            hint="Begin a new stream under another prefix",
            table=table,
        )
    columns = {column.name: (column, False) for column in base.columns}
    for column in known.columns if known is not None else ():
        columns.setdefault(column.name, (column, True))
    for seen in shown:
        columns.setdefault(seen.name, (Column(seen.name, seen.type, seen.ordinal), True))
    # A dropped column's ordinal may have been given to another: the living one comes first.
    ordered = sorted(columns.values(), key=lambda entry: (entry[0].ordinal, entry[1]))
    return TableSchema(base.name, tuple(column for column, _ in ordered))


def _key(table: TableSchema) -> tuple[tuple[str, object], ...]:
    return tuple((column.name, column.type) for column in table.key_columns)

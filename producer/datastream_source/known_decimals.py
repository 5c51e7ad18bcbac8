"""Columns of decimals whose precision or scale changed: published under their first type.

A decimal is `NUMERIC` if all of its values fit that, else text, and the value schema of a topic
cannot change between the two.  The records hold the same text in both cases, so that one type's
values can be written as the other's, each that fits.  Pure.
"""

from __future__ import annotations

from dataclasses import replace

from tidegate.producer.records import DataChangeRecord, RecordColumn
from tidegate.schemas.tables import ColumnType

TEXT_DECIMAL = ColumnType("NUMERIC", None, "PG_NUMERIC")
"""The type of a decimal that `NUMERIC` is too narrow for."""
_OTHER = {ColumnType("NUMERIC"): TEXT_DECIMAL, TEXT_DECIMAL: ColumnType("NUMERIC")}
_LISTS_MAX = 256


class KnownDecimals:
    """The types under which decimals of tables are published, where a file has the other one."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str], ColumnType] = {}
        """By table and column."""
        self._lists: dict[tuple[str, int], tuple[object, tuple[RecordColumn, ...]]] = {}
        """By table and identity: the columns of a record, and what is published in their place.

        Translators know equal columns by their identity, which is kept by keeping them."""

    def published(self, record: DataChangeRecord) -> DataChangeRecord:
        """Return a record with the types that its table's decimals are published under."""
        if not self._types:
            return record
        at = (record.table_name, id(record.columns))
        known = self._lists.get(at)
        if known is None or known[0] is not record.columns:
            if len(self._lists) >= _LISTS_MAX:
                self._lists.clear()
            known = self._lists[at] = record.columns, self._typed(record)
        return record._replace(columns=known[1])

    def learn(self, record: DataChangeRecord) -> None:
        """Note the types of a record's decimals: its topic has them."""
        for column in record.columns:
            if _may_change(column):
                self._types[record.table_name, column.name] = column.type
        self._lists.clear()

    def _typed(self, record: DataChangeRecord) -> tuple[RecordColumn, ...]:
        table, types = record.table_name, self._types
        return tuple(
            replace(column, type=types.get((table, column.name), column.type))
            if _may_change(column)
            else column
            for column in record.columns
        )


def exchanged(record: DataChangeRecord, name: object) -> DataChangeRecord | None:
    """Return a record with the other type of a decimal in a column; None for any other column."""
    if not any(one.name == name and _may_change(one) for one in record.columns):
        return None
    columns = (
        replace(one, type=_OTHER[one.type]) if one.name == name else one for one in record.columns
    )
    return record._replace(columns=tuple(columns))


def _may_change(column: RecordColumn) -> bool:
    """Whether a column is a decimal outside of the key, which never changes."""
    return column.type in _OTHER and not column.is_primary_key

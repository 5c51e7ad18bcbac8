"""The changes that the producer leaves out: by table, column, kind of change or transaction.

A filter is a property of the stream: `StreamStarted` names it, and the value schemas record which
changes their topic lacks; changes left out still move the watermark and are counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

from tidegate.producer.records import DataChangeRecord, Mod, ModType, RecordColumn, UnreadableValues
from tidegate.schemas.change_schema import ELSEWHERE, TRANSACTIONS_LEFT_OUT
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import PRODUCER_FILTER
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import table_of

MOD_TYPES: tuple[ModType, ...] = ("INSERT", "UPDATE", "DELETE")
_EXCLUDES = {mod_type: f"exclude_{mod_type.lower()}" for mod_type in MOD_TYPES}
_KEPT_MAX = 4_096
_TAGS = "tags_left_out"


class _Narrowed(NamedTuple):
    """A column list, and its columns that are published."""

    whole: tuple[RecordColumn, ...]
    left: tuple[RecordColumn, ...]
    hidden: frozenset[str]


@dataclass(frozen=True, slots=True)
class RecordFilter:
    """Patterns, in which `*` stands for any text; names are Spanner's.  Thread-safe.

    The case of names does not matter, as in GoogleSQL; that of tags does.
    """

    tables: tuple[str, ...] = ()
    """The published tables; empty: all."""
    tables_left_out: tuple[str, ...] = ()
    columns_left_out: tuple[str, ...] = ()
    """As `table.column`, preceded by the table's schema if it is in a named one."""
    mod_types: tuple[ModType, ...] = MOD_TYPES
    """The kinds of changes that are published."""
    tags_left_out: tuple[str, ...] = ()
    """The tags of transactions."""
    system_transactions_left_out: bool = False
    _tables: dict[str, bool] = field(default_factory=dict, compare=False, repr=False)
    _narrowed: dict[tuple[str, int], _Narrowed] = field(
        default_factory=dict, compare=False, repr=False
    )
    """The narrowed column lists, by table and the list's identity: equal lists stay one object.

    Also by table, because two tables with equal columns share a list and may hide other columns.
    """

    @property
    def is_empty(self) -> bool:
        """Whether everything is published."""
        return self == RecordFilter()

    @property
    def described(self) -> tuple[str, ...]:
        """Return the entries of `StreamStarted.filters` for it."""
        lists = {
            "tables": self.tables,
            "tables_left_out": self.tables_left_out,
            "columns_left_out": self.columns_left_out,
            "mod_types": self.mod_types if self.mod_types != MOD_TYPES else (),
            _TAGS: self.tags_left_out,
            "system_transactions_left_out": ("true",) * self.system_transactions_left_out,
        }
        return tuple(
            f"{PRODUCER_FILTER}{name}={(';' if name == _TAGS else ',').join(texts)}"
            for name, texts in lists.items()
            if texts
        )

    @property
    def excludes(self) -> tuple[str, ...]:
        """The entries of every value schema for the changes left out."""
        excluded = [_EXCLUDES[kind] for kind in MOD_TYPES if kind not in self.mod_types]
        if self.tags_left_out or self.system_transactions_left_out:
            excluded.append(TRANSACTIONS_LEFT_OUT)
        if self.tables or self.tables_left_out:
            excluded.append(ELSEWHERE)
        return tuple(sorted(excluded))

    def unmatched(self, tables: Iterable[TableSchema]) -> list[str]:
        """Return the names without `*` that no table or column has, each as `setting: name`."""
        names = {table.name.casefold(): table for table in tables}
        columns = {
            f"{name}.{column.name.casefold()}"
            for name, table in names.items()
            for column in table.columns
        }
        lists = (
            ("tables", self.tables, names),
            ("tables_left_out", self.tables_left_out, names),
            ("columns_left_out", self.columns_left_out, columns),
        )
        return [
            f"{setting}: {pattern}"
            for setting, patterns, existing in lists
            for pattern in patterns
            if "*" not in pattern and pattern.casefold() not in existing
        ]

    def takes_table(self, name: str) -> bool:
        """Whether changes of a table are published."""
        is_taken = self._tables.get(name)
        if is_taken is None:
            table = table_of(name)
            is_named = not self.tables or _is_named(table, self.tables)
            is_taken = is_named and not _is_named(table, self.tables_left_out)
            self._tables[name] = is_taken
        return is_taken

    def leaves_out(self, record: DataChangeRecord) -> bool:
        """Whether all changes of a record are left out."""
        return (
            record.mod_type not in self.mod_types
            or (self.system_transactions_left_out and record.is_system_transaction)
            or not self.takes_table(record.table_name)
            or (
                bool(record.transaction_tag)
                and _matches(record.transaction_tag, self.tags_left_out)
            )
        )

    def narrowed(self, record: DataChangeRecord) -> DataChangeRecord:
        """Return a record without the columns that are left out.

        Raises SchemaError for a column of the primary key: without it a change has no key.
        """
        if not self.columns_left_out:
            return record
        place = record.table_name, id(record.columns)
        narrowed = self._narrowed.get(place)
        if narrowed is None or narrowed.whole is not record.columns:
            if len(self._narrowed) >= _KEPT_MAX:
                self._narrowed.clear()
            narrowed = self._narrowed[place] = self._narrow(record)
        hidden = narrowed.hidden
        if not hidden:
            return record
        mods = tuple(
            Mod(keys, _without(new_values, hidden), _without(old_values, hidden))
            for keys, new_values, old_values in record.mods
        )
        return record._replace(columns=narrowed.left, mods=mods)

    def _narrow(self, record: DataChangeRecord) -> _Narrowed:
        columns = record.columns
        hidden = self.hidden(record.table_name, (column.name for column in columns))
        keyed = [
            column.name for column in columns if column.is_primary_key and column.name in hidden
        ]
        if keyed:
            raise _keyed(record.table_name, keyed)
        left = tuple(column for column in columns if column.name not in hidden)
        return _Narrowed(columns, left, hidden)

    def narrowed_table(self, table: TableSchema) -> TableSchema:
        """Return a table without the columns that are left out.

        Raises SchemaError for a column of the primary key.
        """
        hidden = self.hidden(table.name, (column.name for column in table.columns))
        keyed = sorted(hidden.intersection(column.name for column in table.key_columns))
        if keyed:
            raise _keyed(table.name, keyed)
        if not hidden:
            return table
        columns = tuple(column for column in table.columns if column.name not in hidden)
        return replace(table, columns=columns)

    def hidden(self, table: str, columns: Iterable[str]) -> frozenset[str]:
        """Return the columns of a table that are left out."""
        if not self.columns_left_out:
            return frozenset()
        table_name = table_of(table)
        return frozenset(
            name for name in columns if _is_named(f"{table_name}.{name}", self.columns_left_out)
        )


def _is_named(name: str, patterns: tuple[str, ...]) -> bool:
    return _matches(name.casefold(), tuple(pattern.casefold() for pattern in patterns))


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(_KEPT_MAX)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def _keyed(table: str, columns: Iterable[str]) -> SchemaError:
    message = f"columns_left_out: {', '.join(columns)} of {table} is in the primary key"
    return SchemaError(message, hint="Leave out the table, or other columns")


def _without(values: Mapping[str, object], hidden: frozenset[str]) -> Mapping[str, object]:
    if isinstance(values, UnreadableValues):
        # The text may contain values left out, and a parked change keeps its text.
        return UnreadableValues("", values.error)
    return {name: value for name, value in values.items() if name not in hidden}

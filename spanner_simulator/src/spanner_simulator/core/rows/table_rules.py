"""What binds the rows of each table, found once per schema: indexes, parents, children, references.

Everything is resolved to objects here, so that writing a row looks nothing up by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spanner_simulator.core.rows.secondary_indexes import (
    HiddenIndex,
    hidden_index,
    referenced_index,
    referencing_index,
)
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.definitions import ForeignKey
from spanner_simulator.core.schema.schema_objects import Index, Table
from spanner_simulator.core.schema.statements import ColumnDefinition
from spanner_simulator.core.values import Row, Value


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """A table interleaved in another one whose rows hold its parent's rows, or go with them."""

    table: Table
    cascades: bool


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """An enforced foreign key with both of its tables.

    `by` finds the referencing rows, `to` the referenced one; without `to` that is its table's
    primary key, whose parts stand in `key_order` as positions in the foreign key's columns.
    """

    key: ForeignKey
    referencing: Table
    referenced: Table
    by: HiddenIndex
    to: HiddenIndex | None
    key_order: tuple[int, ...]
    columns: tuple[str, ...]
    referenced_columns: tuple[str, ...]

    def values(self, row: Row) -> list[Value] | None:
        """What a referencing row refers to; None when one of the columns is NULL."""
        values = [row.get(name) for name in self.columns]
        return None if None in values else values

    def offered(self, row: Row) -> list[Value] | None:
        """What a referenced row can be referred to by; None when one of the columns is NULL."""
        values = [row.get(name) for name in self.referenced_columns]
        return None if None in values else values


@dataclass(frozen=True, slots=True, eq=False)
class TableRules:
    """What binds one table's rows; `generated` is in the order in which they can be computed."""

    table: Table
    name: str
    indexes: tuple[HiddenIndex, ...]
    parent: Table | None
    children: tuple[Child, ...]
    references: tuple[Reference, ...]
    referenced_by: tuple[Reference, ...]
    generated: tuple[ColumnDefinition, ...]
    # What `write_plan` has made for these rules.
    plans: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def unique_indexes(self) -> Iterable[HiddenIndex]:
        """The indexes that admit each key once."""
        return (one for one in self.indexes if one.index.is_unique)


Rules = dict[str, TableRules]
"""By lower-case table name."""


def build_rules(catalogue: Catalogue) -> Rules:
    """The rules of all tables of a schema."""
    tables = catalogue.tables
    indexes: dict[str, dict[str, HiddenIndex]] = {name: {} for name in tables}

    def index(table: Table, definition: Index) -> HiddenIndex:
        hidden = hidden_index(definition, table, catalogue.dialect)
        return indexes[table.name.lower()].setdefault(hidden.name, hidden)

    for definition in catalogue.indexes.values():
        index(catalogue.table(definition.table), definition)
    references: dict[str, list[Reference]] = {name: [] for name in tables}
    referenced_by: dict[str, list[Reference]] = {name: [] for name in tables}
    for name, table in tables.items():
        for key in table.foreign_keys:
            if not key.is_enforced:
                continue
            referenced = catalogue.table(key.referenced_table)
            by = index(table, referencing_index(table, key))
            to = referenced_index(referenced, key)
            lowered = [column.lower() for column in key.referenced_columns]
            reference = Reference(
                key,
                table,
                referenced,
                by,
                None if to is None else index(referenced, to),
                ()
                if to is not None
                else tuple(lowered.index(part.lower()) for part in referenced.key_names),
                tuple(table.column(column).name for column in key.columns),
                tuple(referenced.column(column).name for column in key.referenced_columns),
            )
            references[name].append(reference)
            referenced_by[referenced.name.lower()].append(reference)
    children: dict[str, list[Child]] = {name: [] for name in tables}
    for table in tables.values():
        if table.interleave is not None and table.interleave.in_parent:
            parent = table.interleave.parent.lower()
            children[parent].append(Child(table, table.interleave.on_delete == "CASCADE"))
    return {
        name: TableRules(
            table,
            name,
            tuple(indexes[name].values()),
            catalogue.table(table.interleave.parent)
            if table.interleave is not None and table.interleave.in_parent
            else None,
            tuple(children[name]),
            tuple(references[name]),
            tuple(referenced_by[name]),
            _in_order(table),
        )
        for name, table in tables.items()
    }


def _in_order(table: Table) -> tuple[ColumnDefinition, ...]:
    """Generated columns, each after those that its expression names."""
    waiting = {column.name: column for column in table.columns if column.generated is not None}
    done: list[ColumnDefinition] = []
    while waiting:
        ready = [
            column
            for column in waiting.values()
            if not any(
                other != column.name and _names(column.generated or "", other) for other in waiting
            )
        ]
        for column in ready or list(waiting.values()):
            del waiting[column.name]
            done.append(column)
    return tuple(done)


def _names(expression: str, column: str) -> bool:
    return re.search(rf"\b{re.escape(column)}\b", expression, re.IGNORECASE) is not None

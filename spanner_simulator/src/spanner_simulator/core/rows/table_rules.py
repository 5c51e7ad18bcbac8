"""The rules for the rows of each table, computed once per schema: indexes, parents, children.

Everything is resolved to objects here, so that writing a row needs no look-up by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from spanner_simulator.core.rows.secondary_indexes import HiddenIndex, hidden_index
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import ColumnDefinition


@dataclass(frozen=True, slots=True, eq=False)
class Child:
    """A table interleaved in another, whose rows prevent its parent's deletion or follow it."""

    table: Table
    cascades: bool


@dataclass(frozen=True, slots=True, eq=False)
class TableRules:
    """The rules for one table's rows; `generated` is in the order of computation."""

    table: Table
    name: str
    indexes: tuple[HiddenIndex, ...]
    parent: Table | None
    children: tuple[Child, ...]
    generated: tuple[ColumnDefinition, ...]
    # The plans that `write_plan` has made for these rules.
    plans: dict[object, Any] = field(default_factory=dict, repr=False)

    @property
    def unique_indexes(self) -> Iterable[HiddenIndex]:
        """The unique indexes."""
        return (index for index in self.indexes if index.index.is_unique)


Rules = dict[str, TableRules]
"""By lower-case table name."""


def build_rules(catalogue: Catalogue) -> Rules:
    """The rules of all tables of a schema."""
    tables = catalogue.tables
    indexes: dict[str, list[HiddenIndex]] = {name: [] for name in tables}
    for definition in catalogue.indexes.values():
        table = catalogue.table(definition.table)
        indexes[table.name.lower()].append(hidden_index(definition, table, catalogue.dialect))
    children: dict[str, list[Child]] = {name: [] for name in tables}
    for table in tables.values():
        if table.interleave is not None:
            parent = table.interleave.parent.lower()
            children[parent].append(Child(table, table.interleave.on_delete == "CASCADE"))
    return {
        name: TableRules(
            table,
            name,
            tuple(indexes[name]),
            None if table.interleave is None else catalogue.table(table.interleave.parent),
            tuple(children[name]),
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

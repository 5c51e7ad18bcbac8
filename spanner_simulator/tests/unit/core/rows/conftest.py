"""A schema and its rows made by hand, without DDL, commits or time."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable

import pytest

from spanner_simulator.core.rows.expressions import IdentityCounts
from spanner_simulator.core.rows.incoming_rows import Evaluation
from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.core.rows.mutations import Delete, Mutation, Write
from spanner_simulator.core.rows.row_store import RowStore
from spanner_simulator.core.rows.row_writer import RowWriter
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.core.rows.transactions import Transaction
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.schema_objects import Index, Table
from spanner_simulator.core.schema.statements import ColumnDefinition, KeyColumn
from spanner_simulator.core.values import Dialect, Plain, Row, Value, ValueType


class Arithmetic:
    """Expressions for tests: a number, a column plus a number, `column > number`, `now`, `null`."""

    def evaluate(
        self,
        expression: str,
        *,
        table: Table,
        row: Row,
        result: ValueType,
        dialect: Dialect,
        now_us: int,
    ) -> Value:
        if expression == "now":
            return now_us * 1000
        if expression == "null":
            return None
        found = re.fullmatch(r"(?:([a-zA-Z]\w*) ([+>]) )?(-?\d+)", expression)
        assert found is not None, expression
        name, operator, number = found.groups()
        if name is None:
            return int(number)
        value = row[table.column(name).name]
        if not isinstance(value, int):
            return None
        return value + int(number) if operator == "+" else value > int(number)


def column(text: str, **extra: object) -> ColumnDefinition:
    """A column from `name TYPE[(n)] [NOT NULL]`."""
    found = re.fullmatch(r"(\w+) ([A-Z0-9]+)(?:\((\d+)\))?( NOT NULL)?", text)
    assert found is not None, text
    name, code, length, required = found.groups()
    value_type = ValueType(code, length=None if length is None else int(length))
    return ColumnDefinition(name, value_type, required is None, **extra)


def key_columns(text: str) -> tuple[KeyColumn, ...]:
    return tuple(KeyColumn(one.lstrip("-"), one.startswith("-")) for one in text.split())


class Shop:
    """Tables, a write set that the test fills, and a way to commit it."""

    def __init__(self, dialect: Dialect = "GOOGLE_STANDARD_SQL") -> None:
        self.catalogue = Catalogue(dialect)
        self.store = RowStore()
        self.now_us = 1_000
        self.writes = self.store.new_writes()
        self.transaction = Transaction(b"1", 0)
        self.counts = IdentityCounts()

    @property
    def evaluation(self) -> Evaluation:
        return Evaluation(Arithmetic(), "GOOGLE_STANDARD_SQL", self.now_us, self.counts)

    def table(
        self, name: str, columns: list[ColumnDefinition | str], key: str, **extra: object
    ) -> Table:
        """Make a table, or another form of it; key columns may have a leading minus."""
        made = tuple(column(one) if isinstance(one, str) else one for one in columns)
        table = Table(name, made, key_columns(key), **extra)
        self.catalogue.tables[name.lower()] = table
        return table

    def alter(self, name: str, **changes: object) -> None:
        """Put another form of a table."""
        old = self.catalogue.table(name)
        self.catalogue.tables[name.lower()] = dataclasses.replace(old, **changes)

    def index(self, name: str, table: str, key: str, **extra: object) -> Index:
        """Make an index."""
        made = Index(name, table, key_columns(key), **extra)
        self.catalogue.indexes[name.lower()] = made
        return made

    def follow(self) -> list[tuple[bytes, Row]]:
        """Bring the rows under the schema as it is now; the back-fills that it asks for."""
        self.now_us += 10
        fills = self.store.follow_schema(self.catalogue, self.evaluation, at_us=self.now_us)
        self.writes = self.store.new_writes()
        return [(fill.key, fill.row) for fill in fills]

    def apply(self, *mutations: Mutation) -> int:
        """Apply one statement's mutations to the write set."""
        writer = RowWriter(self.writes, self.evaluation, reader=self.transaction)
        return writer.apply(mutations)

    def commit(self, *mutations: Mutation) -> None:
        """Apply and store."""
        self.apply(*mutations)
        self.now_us += 10
        self.writes.resolve(self.now_us * 1000)
        self.store.store(self.writes, commit_us=self.now_us)
        self.writes = self.store.new_writes()

    def rows(self, table: str) -> list[list[Value]]:
        """A table's, or an index's, rows as the write set has them."""
        name = table.lower()
        hidden = {
            one.name: one.table for rules in self.store.rules.values() for one in rules.indexes
        }
        where = (hidden.get(name) or self.catalogue.table(name)).prefix
        everything = self.writes.scan(name, KeyRange(b"", None))
        return [list(row.values()) for key, row in everything if key.startswith(where)]

    def changes(self) -> list[tuple[str, str, list[Value]]]:
        """Net changes: table, kind, key."""
        return [
            (
                one.table.name,
                one.mod_type,
                [(one.new or one.old or {})[n] for n in one.table.key_names],
            )
            for one in self.writes.changes()
        ]


def write(kind: str, table: str, columns: str, *rows: list[Plain]) -> Write:
    """A mutation; columns in one text."""
    return Write(kind, table, tuple(columns.split()), rows)


def delete(table: str, *keys: list[Plain]) -> Delete:
    """A deletion of keys."""
    return Delete(table, KeySet(keys=keys))


@pytest.fixture
def shop() -> Shop:
    return Shop()


@pytest.fixture
def make_shop() -> Callable[..., Shop]:
    return Shop

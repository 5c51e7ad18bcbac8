"""DDL of schema objects, spaced as GetDatabaseDdl spaces it: what both dialects have in common.

A dialect's printer fills in the clauses that differ. Expressions are printed as they were written;
the service rewrites some of PostgreSQL's (`1` as `'1'::bigint`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar

from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.schema.definitions import Check, ForeignKey
from spanner_simulator.core.schema.role_text import grants_of, own_roles
from spanner_simulator.core.schema.schema_objects import (
    ChangeStream,
    Index,
    Role,
    Table,
    View,
)
from spanner_simulator.core.schema.statements import ColumnDefinition, KeyColumn, OptionValue
from spanner_simulator.core.values import Dialect


class ObjectText(ABC):
    """Prints objects of one dialect; a statement that is not needed is left out of a list."""

    dialect: ClassVar[Dialect]
    # Between FOREIGN KEY and its columns.
    key_space: ClassVar[str]
    # The clause of an index for columns that it only stores.
    storing: ClassVar[str]
    # Between the clauses of a change stream.
    stream_separator: ClassVar[str]

    def __init__(self) -> None:
        self._lexicon = LEXICONS[self.dialect]
        self.quoted = self._lexicon.quoted
        self._part = self._lexicon.quoted_part

    # -- parts

    def _list(self, names: Sequence[str]) -> str:
        return ", ".join(self._part(name) for name in names)

    def _key(self, key: Sequence[KeyColumn]) -> str:
        return ", ".join(self._key_column(part) for part in key)

    def _key_column(self, part: KeyColumn) -> str:
        return self._part(part.name) + (" DESC" if part.descending else "")

    def _option(self, value: OptionValue) -> str:
        match value:
            case bool():
                return "true" if value else "false"
            case str():
                return self._lexicon.text(value)
            case None:
                return "NULL"
            case int():
                return str(value)

    def _options(self, options: Sequence[tuple[str, OptionValue]]) -> str:
        return ", ".join(f"{name} = {self._option(value)}" for name, value in options)

    def _constraint_name(self, constraint: ForeignKey | Check) -> str:
        return f"CONSTRAINT {self.quoted(constraint.name)} " if constraint.is_named else ""

    def _foreign_key(self, key: ForeignKey) -> str:
        text = (
            f"{self._constraint_name(key)}FOREIGN KEY{self.key_space}({self._list(key.columns)}) "
            f"REFERENCES {self.quoted(key.referenced_table)}({self._list(key.referenced_columns)})"
        )
        if key.on_delete == "CASCADE":
            text += " ON DELETE CASCADE"
        return text if key.is_enforced else text + " NOT ENFORCED"

    def _check(self, check: Check) -> str:
        return f"{self._constraint_name(check)}CHECK({check.expression})"

    def _constraints(self, one: Table, without: Sequence[ForeignKey]) -> list[str]:
        return [
            *(self._foreign_key(key) for key in one.foreign_keys if key not in without),
            *(self._check(check) for check in one.checks),
        ]

    def _interleave(self, one: Table) -> list[str]:
        if one.interleave is None:
            return []
        parent = self.quoted(one.interleave.parent)
        if not one.interleave.in_parent:
            return [f"INTERLEAVE IN {parent}"]
        return [f"INTERLEAVE IN PARENT {parent} ON DELETE {one.interleave.on_delete}"]

    # -- statements

    def schema(self, name: str) -> str:
        """CREATE SCHEMA."""
        return f"CREATE SCHEMA {self.quoted(name)}"

    def view(self, one: View) -> str:
        """CREATE VIEW."""
        return f"CREATE VIEW {self.quoted(one.name)} SQL SECURITY {one.security} AS {one.query}"

    def foreign_key(self, table_name: str, key: ForeignKey) -> str:
        """ALTER TABLE .. ADD, for a foreign key that cannot stand in CREATE TABLE."""
        return f"ALTER TABLE {self.quoted(table_name)} ADD {self._foreign_key(key)}"

    def index(self, one: Index) -> str:
        """CREATE INDEX."""
        kind = "UNIQUE " if one.is_unique else ""
        kind += "NULL_FILTERED " if one.is_null_filtered else ""
        text = f"CREATE {kind}INDEX {self._index_head(one)}"
        if one.storing:
            text += f" {self.storing} ({self._list(one.storing)})"
        return text + self._index_tail(one)

    def _not_null(self, one: Index) -> str:
        conditions = " AND ".join(f"{self._part(name)} IS NOT NULL" for name in one.not_null)
        return f" WHERE {conditions}" if conditions else ""

    def stream(self, one: ChangeStream) -> str:
        """CREATE CHANGE STREAM."""
        clauses = [f"CREATE CHANGE STREAM {self.quoted(one.name)}"]
        if one.watch is not None and one.watch.everything:
            clauses.append("FOR ALL")
        elif one.watch is not None:
            tables = [
                self.quoted(name) + ("" if columns is None else f"({self._list(columns)})")
                for name, columns in one.watch.tables
            ]
            clauses.append("FOR " + ", ".join(tables))
        if one.options:
            clauses.append(self._stream_options(one))
        return self.stream_separator.join(clauses)

    def roles(self, roles: Mapping[str, Role]) -> list[str]:
        """CREATE ROLE for each role that DDL made, then what they were granted."""
        return [
            *(f"CREATE ROLE {self.quoted(role.name)}" for role in own_roles(roles)),
            *(
                self._membership(role, name)
                if kind == "ROLE"
                else self._grant(role, ", ".join(privileges), kind, name)
                for role, kind, name, privileges in grants_of(roles)
            ),
        ]

    # -- what differs

    @abstractmethod
    def database_options(self, name: str, options: Mapping[str, OptionValue]) -> list[str]:
        """ALTER DATABASE, as far as options are set."""

    @abstractmethod
    def proto_bundle(self, names: Sequence[str]) -> list[str]:
        """CREATE PROTO BUNDLE, if there is one."""

    @abstractmethod
    def table(self, one: Table, *, without: Sequence[ForeignKey] = ()) -> str:
        """CREATE TABLE, with its constraints but those that come later."""

    @abstractmethod
    def _column(self, column: ColumnDefinition) -> str: ...

    @abstractmethod
    def _index_head(self, one: Index) -> str:
        """Name, table and key."""

    @abstractmethod
    def _index_tail(self, one: Index) -> str: ...

    @abstractmethod
    def _stream_options(self, one: ChangeStream) -> str: ...

    @abstractmethod
    def _membership(self, role: str, parent: str) -> str: ...

    @abstractmethod
    def _grant(self, role: str, privileges: str, kind: str, name: str) -> str: ...

"""The schema of one database: its objects by name, in the one namespace that all names share.

Names are compared without case and keep their spelling; an object in a named schema is keyed and
named `schema.name`.  `statement_rules` changes it.  Rows and stream partitions are not here:
`database` compares tables (immutable, by identity) before and after a statement.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.analysis import Analysis
from spanner_simulator.core.schema.schema_objects import ChangeStream, Index, Role, Table
from spanner_simulator.core.values import Dialect, ValueType
from spanner_simulator.errors import failed_precondition, invalid_argument, not_found

SYSTEM_ROLES = ("public", "spanner_info_reader", "spanner_sys_reader")
_NAME_MAX = 128


class Catalogue:
    """Everything that DDL makes, by lower-case name, in the order of creation."""

    def __init__(
        self,
        dialect: Dialect = "GOOGLE_STANDARD_SQL",
        *,
        analysis: Callable[[Catalogue], Analysis] | None = None,
    ) -> None:
        """`analysis` makes the checker of SQL in statements; without it, SQL is not checked."""
        self.dialect: Dialect = dialect
        self.analysis = None if analysis is None else analysis(self)
        self.schemas: dict[str, str] = {}
        self.tables: dict[str, Table] = {}
        self.indexes: dict[str, Index] = {}
        self.streams: dict[str, ChangeStream] = {}
        self.roles: dict[str, Role] = {name: Role(name) for name in SYSTEM_ROLES}
        # By full name, whose letters count, and by the file's name.
        self.proto_types: dict[str, ValueType] = {}
        self.proto_files: dict[str, bytes] = {}

    # -- finding

    def table(self, name: str) -> Table:
        """A table by name, or NOT_FOUND."""
        table = self.tables.get(name.lower())
        if table is None:
            raise not_found(f"Table not found: {name}")
        return table

    def index(self, name: str) -> Index:
        """An index by name, or NOT_FOUND."""
        index = self.indexes.get(name.lower())
        if index is None:
            raise not_found(f"Index not found: {name}")
        return index

    def stream(self, name: str) -> ChangeStream:
        """A change stream by name, or NOT_FOUND."""
        stream = self.streams.get(name.lower())
        if stream is None:
            raise not_found(f"Change Stream not found: {name}")
        return stream

    def role(self, name: str) -> Role:
        """A role by name, or NOT_FOUND."""
        role = self.roles.get(name.lower())
        if role is None:
            raise not_found(f"Role not found: {name}.")
        return role

    def indexes_of(self, table: str) -> list[Index]:
        """The indexes of a table, in the order of creation."""
        return [index for index in self.indexes.values() if index.table.lower() == table.lower()]

    def children_of(self, table: str) -> list[Table]:
        """Tables interleaved in a table."""
        return [
            child
            for child in self.tables.values()
            if child.interleave is not None and child.interleave.parent.lower() == table.lower()
        ]

    def has_privilege(self, role: str, kind: ddl.ObjectKind, name: str, privilege: str) -> bool:
        """Whether a role or `public` has a privilege.  A read function is named as in Grant."""
        return any(
            (kind, name.lower(), privilege) in self.roles[grantee].privileges
            for grantee in (role.lower(), "public")
            if grantee in self.roles
        )

    # -- changing

    @contextmanager
    def restored_on_error(self) -> Iterator[None]:
        """Restore the catalogue's state from before the block if the block raises."""
        before = [dict(owned) for owned in self._owned()]
        try:
            yield
        except BaseException:
            for owned, old in zip(self._owned(), before, strict=True):
                owned.clear()
                owned.update(old)
            raise

    def _owned(self) -> tuple[dict[str, object], ...]:
        return (  # type: ignore[return-value]  # dictionaries are invariant in their values
            self.schemas, self.tables, self.indexes, self.streams, self.roles, self.proto_types,
            self.proto_files,
        )  # fmt: skip

    # -- names

    def check_new_name(self, kind: str, name: str) -> None:
        """Reject a name that is malformed, in a missing schema, or already used."""
        schema, _, local_name = name.rpartition(".")
        if schema and schema.lower() not in self.schemas:
            raise not_found(f"Schema not found: {schema}")
        if not self.is_valid_name(local_name):
            raise invalid_argument(f"{kind} name not valid: {name}.")
        self.check_free_name(name)

    def check_free_name(self, name: str) -> None:
        """Reject a name that any other object has, because all kinds share one namespace."""
        if name.lower() in self._taken_names():
            raise failed_precondition(f"Duplicate name in schema: {name}.")

    def is_valid_name(self, name: str) -> bool:
        """Whether a table, index, stream or schema may have this name."""
        if not 0 < len(name) <= _NAME_MAX:
            return False
        return (
            self.dialect == "POSTGRESQL" or re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) is not None
        )

    def _taken_names(self) -> set[str]:
        return {
            *self.schemas,
            *self.tables,
            *self.indexes,
            *self.streams,
            *(name.lower() for name in self._constraint_names()),
            *self._read_functions(),
        }

    def _read_functions(self) -> Iterator[str]:
        """GoogleSQL's are in the global namespace; PostgreSQL's in the schema `spanner`."""
        if self.dialect == "GOOGLE_STANDARD_SQL":
            for name in self.streams:
                yield f"read_{name}"

    def _constraint_names(self) -> Iterator[str]:
        for table in self.tables.values():
            schema = table.name.rpartition(".")[0]
            for check in table.checks:
                yield f"{schema}.{check.name}" if schema else check.name

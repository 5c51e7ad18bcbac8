"""The schema of one database: what exists by name, and one door through which DDL changes it.

Names are found without regard to case and kept as written; an object in a named schema is keyed
and named `schema.name`. Each kind of statement has its rules in a module of its own; this one owns
the dictionaries, the one namespace that they share, and that a refused statement changes nothing.
Rows and stream partitions are not here: `database` compares tables (immutable, by identity) before
and after, and reacts to what changed.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never

from tidegate.spanner_simulator.core.schema import (
    column_rules,
    constraint_rules,
    database_options,
    index_rules,
    proto_rules,
    role_rules,
    stream_rules,
    table_rules,
    view_rules,
)
from tidegate.spanner_simulator.core.schema import statements as ddl
from tidegate.spanner_simulator.core.schema.schema_objects import Role
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.spanner_simulator.core.schema.analysis import Analysis
    from tidegate.spanner_simulator.core.schema.schema_objects import (
        ChangeStream,
        Index,
        Table,
        View,
    )
    from tidegate.spanner_simulator.core.values import Dialect, ValueType

__all__ = ["SYSTEM_ROLES", "Catalogue"]

SYSTEM_ROLES = ("public", "spanner_info_reader", "spanner_sys_reader")
_NAME_MAX = 128


class Catalogue:
    """Everything that DDL makes, by lower-case name, in the order in which it was made."""

    def __init__(
        self,
        dialect: Dialect = "GOOGLE_STANDARD_SQL",
        *,
        analysis: Analysis | None = None,
        strict_emulator: bool = False,
    ) -> None:
        """`analysis` looks at the SQL in statements; without it, it is accepted as it is.

        `strict_emulator` keeps to what Google's emulator has narrower than the service.
        """
        self.dialect: Dialect = dialect
        self.analysis = analysis
        self.strict_emulator = strict_emulator
        self.schemas: dict[str, str] = {}
        self.tables: dict[str, Table] = {}
        self.indexes: dict[str, Index] = {}
        self.views: dict[str, View] = {}
        self.streams: dict[str, ChangeStream] = {}
        self.roles: dict[str, Role] = {name: Role(name) for name in SYSTEM_ROLES}
        self.options: dict[str, ddl.OptionValue] = {}
        # By full name, whose letters count, and by the file's name.
        self.proto_types: dict[str, ValueType] = {}
        self.proto_files: dict[str, bytes] = {}
        self.database_name = "db"

    # -- finding

    def table(self, name: str) -> Table:
        """A table by name, or NOT_FOUND."""
        table = self.tables.get(name.lower())
        if table is None:
            raise SpannerError(Code.NOT_FOUND, f"Table not found: {name}")
        return table

    def index(self, name: str) -> Index:
        """An index by name, or NOT_FOUND."""
        index = self.indexes.get(name.lower())
        if index is None:
            raise SpannerError(Code.NOT_FOUND, f"Index not found: {name}")
        return index

    def view(self, name: str) -> View:
        """A view by name, or NOT_FOUND."""
        view = self.views.get(name.lower())
        if view is None:
            raise SpannerError(Code.NOT_FOUND, f"View not found: {name}")
        return view

    def stream(self, name: str) -> ChangeStream:
        """A change stream by name, or NOT_FOUND."""
        stream = self.streams.get(name.lower())
        if stream is None:
            raise SpannerError(Code.NOT_FOUND, f"Change Stream not found: {name}")
        return stream

    def role(self, name: str) -> Role:
        """A role by name, or NOT_FOUND."""
        role = self.roles.get(name.lower())
        if role is None:
            raise SpannerError(Code.NOT_FOUND, f"Role not found: {name}.")
        return role

    def indexes_of(self, table: str) -> list[Index]:
        """The indexes of a table, in the order in which they were made."""
        return [index for index in self.indexes.values() if index.table.lower() == table.lower()]

    def children_of(self, table: str) -> list[Table]:
        """Tables interleaved in a table, with or without PARENT."""
        return [
            child
            for child in self.tables.values()
            if child.interleave is not None and child.interleave.parent.lower() == table.lower()
        ]

    @property
    def version_retention_us(self) -> int:
        """How long old versions of rows can be read (version_retention_period)."""
        return database_options.version_retention_us(self.options)

    def has_privilege(self, role: str, kind: ddl.ObjectKind, name: str, privilege: str) -> bool:
        """Whether a role has it, itself or through the roles that it is a member of.

        Everybody is a member of `public`. A read function is named as in Grant.
        """
        return role_rules.has_privilege(self, role, kind, name, privilege)

    # -- changing

    def apply(
        self, statement: ddl.Statement, *, now_us: int, proto_descriptors: bytes = b""
    ) -> None:
        """Carry out one statement whole, or raise `SpannerError` and change nothing.

        Nor does a failure of the analyser leave anything half done. `proto_descriptors` is a
        serialised FileDescriptorSet with the types of a proto bundle.
        """
        before = [dict(owned) for owned in self._owned()]
        name = self.database_name
        try:
            statement = proto_rules.with_known_types(self, statement)
            self._apply(statement, now_us, proto_descriptors)
            role_rules.forget_lost_objects(self)
        except BaseException:
            for owned, old in zip(self._owned(), before, strict=True):
                owned.clear()
                owned.update(old)
            self.database_name = name
            raise

    def _owned(self) -> tuple[dict[str, object], ...]:
        return (  # type: ignore[return-value]  # dictionaries are invariant in their values
            self.schemas,
            self.tables,
            self.indexes,
            self.views,
            self.streams,
            self.roles,
            self.options,
            self.proto_types,
            self.proto_files,
        )

    def _apply(self, statement: ddl.Statement, now_us: int, proto_descriptors: bytes) -> None:
        match statement:
            case ddl.CreateTable():
                table_rules.create_table(self, statement)
            case ddl.DropTable():
                table_rules.drop_table(self, statement)
            case ddl.AddConstraint():
                constraint_rules.add_constraint(self, statement)
            case ddl.DropConstraint():
                constraint_rules.drop_constraint(self, statement)
            case ddl.SetRowDeletion():
                table_rules.set_row_deletion(self, statement)
            case ddl.SetOnDelete():
                table_rules.set_on_delete(self, statement)
            case ddl.AddColumn():
                column_rules.add_column(self, statement)
            case ddl.DropColumn():
                column_rules.drop_column(self, statement)
            case (
                ddl.ReplaceColumn()
                | ddl.AlterColumnType()
                | ddl.SetColumnDefault()
                | ddl.SetColumnNullable()
                | ddl.SetColumnOptions()
            ):
                column_rules.alter_column(self, statement)
            case ddl.CreateIndex():
                index_rules.create_index(self, statement)
            case ddl.AlterIndex():
                index_rules.alter_index(self, statement)
            case ddl.DropIndex():
                index_rules.drop_index(self, statement)
            case ddl.CreateView():
                view_rules.create_view(self, statement)
            case ddl.DropView():
                view_rules.drop_view(self, statement)
            case ddl.CreateSchema():
                view_rules.create_schema(self, statement)
            case ddl.DropSchema():
                view_rules.drop_schema(self, statement)
            case ddl.CreateProtoBundle():
                proto_rules.create_bundle(self, statement, proto_descriptors)
            case ddl.AlterProtoBundle():
                proto_rules.alter_bundle(self, statement, proto_descriptors)
            case ddl.DropProtoBundle():
                proto_rules.drop_bundle(self)
            case ddl.AlterDatabase():
                database_options.alter_database(self, statement)
            case ddl.Analyze():
                pass
            case ddl.CreateStream():
                stream_rules.create_stream(self, statement, now_us)
            case ddl.AlterStreamWatch():
                stream_rules.alter_watch(self, statement)
            case ddl.AlterStreamOptions():
                stream_rules.alter_options(self, statement)
            case ddl.DropStream():
                stream_rules.drop_stream(self, statement)
            case ddl.CreateRole():
                role_rules.create_role(self, statement)
            case ddl.DropRole():
                role_rules.drop_role(self, statement)
            case ddl.Grant():
                role_rules.grant(self, statement)
            case _:
                assert_never(statement)

    # -- names

    def check_new_name(self, kind: str, name: str) -> None:
        """Refuse a name that is malformed, in a schema that is not there, or taken already."""
        schema, _, own = name.rpartition(".")
        if schema and schema.lower() not in self.schemas:
            raise SpannerError(Code.NOT_FOUND, f"Schema not found: {schema}")
        if kind != "View" and not self.is_valid_name(own):
            raise SpannerError(Code.INVALID_ARGUMENT, f"{kind} name not valid: {name}.")
        self.check_free_name(name)

    def check_free_name(self, name: str) -> None:
        """Refuse a name that anything else has, for all kinds share one namespace."""
        if name.lower() in self._taken_names():
            raise SpannerError(Code.FAILED_PRECONDITION, f"Duplicate name in schema: {name}.")

    def is_valid_name(self, name: str) -> bool:
        """Whether a table, index, stream or schema may be so called; others are freer."""
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
            *self.views,
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
            own = [key.name for key in table.foreign_keys] + [check.name for check in table.checks]
            for name in own:
                yield f"{schema}.{name}" if schema else name

"""The catalogue as DDL, spaced as by GetDatabaseDdl, in an order in which it can be executed.

Expressions keep their spelling; the service rewrites some of PostgreSQL's (`1` as `'1'::bigint`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from spanner_simulator.core.lexicon import LEXICONS
from spanner_simulator.core.schema.catalogue import SYSTEM_ROLES, Catalogue
from spanner_simulator.core.schema.schema_objects import ChangeStream, Index, Table
from spanner_simulator.core.schema.statements import Check, ColumnDefinition, KeyColumn, OptionValue

# PostgreSQL's options of a change stream are printed in this order, in whatever order they were
# set.
_STREAM_OPTIONS = (
    "value_capture_type", "retention_period", "exclude_insert", "exclude_update", "exclude_delete",
    "exclude_ttl_deletes", "allow_txn_exclusion", "partition_mode",
)  # fmt: skip


def catalogue_ddl(catalogue: Catalogue) -> list[str]:
    """Statements that would create this schema again, in an executable order."""
    return list(_Printer(catalogue).statements())


class _Printer:
    """Prints the objects of one catalogue."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lexicon = LEXICONS[catalogue.dialect]
        self._is_google = catalogue.dialect == "GOOGLE_STANDARD_SQL"
        self._quoted = self._lexicon.quoted
        self._part = self._lexicon.quoted_part

    def statements(self) -> Iterator[str]:
        """All statements."""
        catalogue = self._catalogue
        if catalogue.proto_types:
            lines = "".join(f"  {self._quoted(name)},\n" for name in catalogue.proto_types)
            yield f"CREATE PROTO BUNDLE (\n{lines})"
        for name in catalogue.schemas.values():
            yield f"CREATE SCHEMA {self._quoted(name)}"
        for table in catalogue.tables.values():
            yield self._google_table(table) if self._is_google else self._postgres_table(table)
            for index in catalogue.indexes_of(table.name):
                yield self._index(index)
        for stream in catalogue.streams.values():
            yield self._stream(stream)
        roles = [role for role in catalogue.roles.values() if role.name not in SYSTEM_ROLES]
        for role in roles:
            yield f"CREATE ROLE {self._quoted(role.name)}"
        for role in catalogue.roles.values():
            for (kind, name), entries in groupby(
                sorted(role.privileges), lambda privilege: privilege[:2]
            ):
                yield self._grant(role.name, kind, name, [entry[2] for entry in entries])

    # -- tables

    def _google_table(self, table: Table) -> str:
        """The key follows the brackets, with a comma after each clause."""
        lines = [*map(self._google_column, table.columns), *map(self._check, table.checks)]
        text = f"CREATE TABLE {self._quoted(table.name)} (\n"
        text += "".join(f"  {line},\n" for line in lines)
        text += f") PRIMARY KEY({self._key(table.key)})"
        if table.interleave is not None:
            text += f",\n  {self._interleave(table)}"
        if table.row_deletion is not None:
            column, days = self._part(table.row_deletion.column), table.row_deletion.older_than_days
            text += f", ROW DELETION POLICY (OLDER_THAN({column}, INTERVAL {days} DAY))"
        return text

    def _postgres_table(self, table: Table) -> str:
        """The key is among the columns."""
        lines = [self._postgres_column(column) for column in table.columns]
        lines += [f"PRIMARY KEY({self._list(table.key_names)})"] if table.key else []
        lines += [self._check(check) for check in table.checks]
        text = f"CREATE TABLE {self._quoted(table.name)} (\n  " + ",\n  ".join(lines) + "\n)"
        if table.interleave is not None:
            text += f" {self._interleave(table)}"
        if table.row_deletion is not None:
            column, days = self._part(table.row_deletion.column), table.row_deletion.older_than_days
            text += f" TTL INTERVAL '{days} DAYS' ON {column}"
        return text

    def _google_column(self, column: ColumnDefinition) -> str:
        text = f"{self._part(column.name)} {column.value_type.ddl()}"
        if not column.is_nullable:
            text += " NOT NULL"
        if column.default is not None:
            text += f" DEFAULT ({column.default})"
        if column.on_update is not None:
            text += f" ON UPDATE ({column.on_update})"
        if column.generated is not None:
            text += f" AS ({column.generated})" + (" STORED" if column.is_stored else "")
        text += self._identity(column) + " HIDDEN" * column.is_hidden
        if column.commit_timestamp:
            text += " OPTIONS (\n    allow_commit_timestamp = true\n  )"
        return text

    def _postgres_column(self, column: ColumnDefinition) -> str:
        kind = column.value_type.ddl("POSTGRESQL").replace(" vector length ", " VECTOR LENGTH ")
        text = f"{self._part(column.name)} "
        text += "spanner.commit_timestamp" if column.commit_timestamp else kind
        if column.default is not None:
            text += f" DEFAULT {column.default}"
        if column.on_update is not None:
            text += f" ON UPDATE {column.on_update}"
        if column.generated is not None:
            how = "STORED" if column.is_stored else "VIRTUAL"
            text += f" GENERATED ALWAYS AS ({column.generated}) {how}"
        text += self._identity(column)
        return text + " NOT NULL" * (not column.is_nullable) + " HIDDEN" * column.is_hidden

    def _identity(self, column: ColumnDefinition) -> str:
        if column.identity is None:
            return ""
        options, skip = ["BIT_REVERSED_POSITIVE"], column.identity.skip
        if skip is not None:
            options.append(f"SKIP RANGE {skip[0]}{',' * self._is_google} {skip[1]}")
        if column.identity.start is not None:
            options.append(f"START COUNTER WITH {column.identity.start}")
        return f" GENERATED BY DEFAULT AS IDENTITY ({' '.join(options)})"

    def _check(self, check: Check) -> str:
        name = f"CONSTRAINT {self._quoted(check.name)} " if check.is_named else ""
        return f"{name}CHECK({check.expression})"

    def _interleave(self, table: Table) -> str:
        if table.interleave is None:
            return ""
        parent = self._quoted(table.interleave.parent)
        return f"INTERLEAVE IN PARENT {parent} ON DELETE {table.interleave.on_delete}"

    def _list(self, names: Sequence[str]) -> str:
        return ", ".join(self._part(name) for name in names)

    def _key(self, key: Sequence[KeyColumn]) -> str:
        return ", ".join(self._part(part.name) + " DESC" * part.descending for part in key)

    def _index(self, index: Index) -> str:
        kind = "UNIQUE " if index.is_unique else ""
        kind += "NULL_FILTERED " if index.is_null_filtered else ""
        # A PostgreSQL index has the schema of its table, and is named without it.
        name = index.name if self._is_google else index.name.rpartition(".")[2]
        space, storing = ("", "STORING") if self._is_google else (" ", "INCLUDE")
        text = f"CREATE {kind}INDEX {self._quoted(name)} ON {self._quoted(index.table)}"
        text += f"{space}({self._key(index.key)})"
        return text + (f" {storing} ({self._list(index.storing)})" if index.storing else "")

    # -- change streams and roles

    def _stream(self, stream: ChangeStream) -> str:
        clauses = [f"CREATE CHANGE STREAM {self._quoted(stream.name)}"]
        if stream.watch is not None and stream.watch.everything:
            clauses.append("FOR ALL")
        elif stream.watch is not None:
            tables = [
                self._quoted(name) + ("" if columns is None else f"({self._list(columns)})")
                for name, columns in stream.watch.tables
            ]
            clauses.append("FOR " + ", ".join(tables))
        if stream.options:
            options = list(stream.options)
            if not self._is_google:
                options.sort(key=lambda option: _STREAM_OPTIONS.index(option[0]))
            inside = ", ".join(f"{name} = {self._option(value)}" for name, value in options)
            clauses.append(f"OPTIONS ( {inside} )" if self._is_google else f"WITH ({inside})")
        return (" " if self._is_google else "\n").join(clauses)

    def _option(self, value: OptionValue) -> str:
        return self._lexicon.text(value) if isinstance(value, str) else str(value).lower()

    def _grant(self, role: str, kind: str, name: str, privileges: Sequence[str]) -> str:
        where = f"{kind} {self._quoted(name)}"
        if kind == "TABLE FUNCTION" and not self._is_google:
            where = f"FUNCTION spanner.{self._quoted(name)}"
        grantee_kind = "ROLE " if self._is_google else ""
        return f"GRANT {', '.join(privileges)} ON {where} TO {grantee_kind}{self._quoted(role)}"

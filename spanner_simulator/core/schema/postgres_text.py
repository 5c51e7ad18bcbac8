"""PostgreSQL DDL of schema objects, spaced as GetDatabaseDdl spaces it.

Expressions are printed as they were written; the service rewrites some of them (`1` as
`'1'::bigint`).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.schema.ddl_words import POSTGRES_RESERVED
from tidegate.spanner_simulator.core.schema.role_text import grants_of, own_roles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.spanner_simulator.core.schema.schema_objects import (
        ChangeStream,
        Check,
        ForeignKey,
        Index,
        Role,
        Table,
        View,
    )
    from tidegate.spanner_simulator.core.schema.statements import (
        ColumnDefinition,
        KeyColumn,
        OptionValue,
    )

__all__ = [
    "database_options",
    "foreign_key",
    "index",
    "quoted",
    "roles",
    "schema",
    "stream",
    "table",
    "view",
]


# However they were given.
_STREAM_OPTIONS = (
    "value_capture_type",
    "retention_period",
    "exclude_insert",
    "exclude_update",
    "exclude_delete",
    "exclude_ttl_deletes",
    "allow_txn_exclusion",
    "partition_mode",
)


def quoted(name: str) -> str:
    """A name, in quotes where it needs them; a schema's dot stays outside."""
    return ".".join(_quoted_part(part) for part in name.split("."))


def _quoted_part(part: str) -> str:
    plain = re.fullmatch("[a-z_][a-z0-9_$]*", part) is not None
    if plain and part.upper() not in POSTGRES_RESERVED:
        return part
    escaped = part.replace('"', '""')
    return f'"{escaped}"'


def _list(names: Sequence[str]) -> str:
    return ", ".join(_quoted_part(name) for name in names)


def _option(value: OptionValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escaped = value.replace("'", "''")
            return f"'{escaped}'"
        case None:
            return "NULL"
        case int():
            return str(value)


def database_options(name: str, options: Mapping[str, OptionValue]) -> list[str]:
    """ALTER DATABASE for each option that is set."""
    return [
        f'ALTER DATABASE {quoted(name)} SET "spanner.{key}" = {_option(value)}'
        for key, value in options.items()
    ]


def schema(name: str) -> str:
    """CREATE SCHEMA."""
    return f"CREATE SCHEMA {quoted(name)}"


def table(one: Table, *, without: Sequence[ForeignKey] = ()) -> str:
    """CREATE TABLE, with its constraints but those that come later."""
    lines = [
        *(_column(column) for column in one.columns),
        *([f"PRIMARY KEY({_list(one.key_names)})"] if one.key else []),
        *(_foreign_key(key) for key in one.foreign_keys if key not in without),
        *(_check(check) for check in one.checks),
    ]
    text = f"CREATE TABLE {quoted(one.name)} (\n  " + ",\n  ".join(lines) + "\n)"
    if one.interleave is not None:
        parent = quoted(one.interleave.parent)
        text += (
            f" INTERLEAVE IN PARENT {parent} ON DELETE {one.interleave.on_delete}"
            if one.interleave.in_parent
            else f" INTERLEAVE IN {parent}"
        )
    if one.row_deletion is not None:
        days = one.row_deletion.older_than_days
        text += f" TTL INTERVAL '{days} DAYS' ON {_quoted_part(one.row_deletion.column)}"
    return text


def _column(column: ColumnDefinition) -> str:
    kind = column.value_type.ddl("POSTGRESQL")
    text = f"{_quoted_part(column.name)} " + (
        "spanner.commit_timestamp" if column.commit_timestamp else kind
    )
    if column.default is not None:
        text += f" DEFAULT {column.default}"
    if column.generated is not None:
        how = "STORED" if column.is_stored else "VIRTUAL"
        text += f" GENERATED ALWAYS AS ({column.generated}) {how}"
    return text if column.is_nullable else text + " NOT NULL"


def _foreign_key(key: ForeignKey) -> str:
    text = f"CONSTRAINT {quoted(key.name)} " if key.is_named else ""
    text += (
        f"FOREIGN KEY ({_list(key.columns)}) REFERENCES {quoted(key.referenced_table)}"
        f"({_list(key.referenced_columns)})"
    )
    if key.on_delete == "CASCADE":
        text += " ON DELETE CASCADE"
    return text if key.is_enforced else text + " NOT ENFORCED"


def _check(check: Check) -> str:
    text = f"CONSTRAINT {quoted(check.name)} " if check.is_named else ""
    return text + f"CHECK({check.expression})"


def foreign_key(table_name: str, key: ForeignKey) -> str:
    """ALTER TABLE .. ADD, for a foreign key that cannot stand in CREATE TABLE."""
    return f"ALTER TABLE {quoted(table_name)} ADD {_foreign_key(key)}"


def index(one: Index) -> str:
    """CREATE INDEX; an index has the schema of its table, and is named without it."""
    kind = "UNIQUE " if one.is_unique else ""
    name = one.name.rpartition(".")[2]
    key = ", ".join(_key_column(part) for part in one.key)
    text = f"CREATE {kind}INDEX {quoted(name)} ON {quoted(one.table)} ({key})"
    if one.storing:
        text += f" INCLUDE ({_list(one.storing)})"
    if one.interleave_in is not None:
        text += f" INTERLEAVE IN {quoted(one.interleave_in)}"
    if one.not_null:
        text += " WHERE " + " AND ".join(
            f"{_quoted_part(name)} IS NOT NULL" for name in one.not_null
        )
    return text


def _key_column(part: KeyColumn) -> str:
    text = _quoted_part(part.name) + (" DESC" if part.descending else "")
    usual = "FIRST" if part.descending else "LAST"
    return text if part.nulls in (None, usual) else f"{text} NULLS {part.nulls}"


def view(one: View) -> str:
    """CREATE VIEW."""
    return f"CREATE VIEW {quoted(one.name)} SQL SECURITY {one.security} AS {one.query}"


def stream(one: ChangeStream) -> str:
    """CREATE CHANGE STREAM, a clause a line."""
    lines = [f"CREATE CHANGE STREAM {quoted(one.name)}"]
    if one.watch is not None and one.watch.everything:
        lines.append("FOR ALL")
    elif one.watch is not None:
        tables = [
            quoted(name) + ("" if columns is None else f"({_list(columns)})")
            for name, columns in one.watch.tables
        ]
        lines.append("FOR " + ", ".join(tables))
    if one.options:
        in_order = sorted(one.options, key=lambda option: _STREAM_OPTIONS.index(option[0]))
        options = ", ".join(f"{name} = {_option(value)}" for name, value in in_order)
        lines.append(f"WITH ({options})")
    return "\n".join(lines)


def roles(all_roles: Mapping[str, Role]) -> list[str]:
    """CREATE ROLE for each role that DDL made, then what they were granted."""
    return [
        *(f"CREATE ROLE {quoted(role.name)}" for role in own_roles(all_roles)),
        *(
            _grant(role, kind, name, privileges)
            for role, kind, name, privileges in grants_of(all_roles)
        ),
    ]


def _grant(role: str, kind: str, name: str, privileges: Sequence[str]) -> str:
    if kind == "ROLE":
        return f"GRANT {quoted(name)} TO {quoted(role)}"
    where = f"{kind} {quoted(name)}"
    if kind == "TABLE FUNCTION":
        where = f"FUNCTION spanner.{quoted(name)}"
    return f"GRANT {', '.join(privileges)} ON {where} TO {quoted(role)}"

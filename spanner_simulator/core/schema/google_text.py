"""GoogleSQL DDL of schema objects, spaced as GetDatabaseDdl spaces it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tidegate.spanner_simulator.core.schema.ddl_words import GOOGLE_RESERVED
from tidegate.spanner_simulator.core.schema.role_text import grants_of, own_roles

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.spanner_simulator.core.schema.schema_objects import (
        ChangeStream,
        Check,
        ForeignKey,
        Index,
        Interleave,
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
    "proto_bundle",
    "quoted",
    "roles",
    "schema",
    "stream",
    "table",
    "view",
]


def quoted(name: str) -> str:
    """A name, with back-ticks where it needs them; a schema's dot stays outside."""
    return ".".join(_quoted_part(part) for part in name.split("."))


def _quoted_part(part: str) -> str:
    plain = re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", part) is not None
    return part if plain and part.upper() not in GOOGLE_RESERVED else f"`{part}`"


def _list(names: Sequence[str]) -> str:
    return ", ".join(_quoted_part(name) for name in names)


def _key(key: Sequence[KeyColumn]) -> str:
    return ", ".join(_quoted_part(part.name) + (" DESC" if part.descending else "") for part in key)


def _option(value: OptionValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
            return f"'{escaped}'"
        case None:
            return "NULL"
        case int():
            return str(value)


def database_options(name: str, options: Mapping[str, OptionValue]) -> list[str]:
    """ALTER DATABASE, if any option is set."""
    if not options:
        return []
    inside = ", ".join(f"{key} = {_option(value)}" for key, value in options.items())
    return [f"ALTER DATABASE {quoted(name)} SET OPTIONS ({inside})"]


def proto_bundle(names: Sequence[str]) -> list[str]:
    """CREATE PROTO BUNDLE, if there is one."""
    lines = "".join(f"  {quoted(name)},\n" for name in names)
    return [f"CREATE PROTO BUNDLE (\n{lines})"] if names else []


def schema(name: str) -> str:
    """CREATE SCHEMA."""
    return f"CREATE SCHEMA {quoted(name)}"


def table(one: Table, *, without: Sequence[ForeignKey] = ()) -> str:
    """CREATE TABLE, with its constraints but those that come later."""
    lines = [
        *(_column(column) for column in one.columns),
        *(_foreign_key(key) for key in one.foreign_keys if key not in without),
        *(_check(check) for check in one.checks),
    ]
    text = f"CREATE TABLE {quoted(one.name)} (\n"
    text += "".join(f"  {line},\n" for line in lines)
    text += f") PRIMARY KEY({_key(one.key)})"
    if one.interleave is not None:
        text += f",\n  {_interleave(one.interleave)}"
    if one.row_deletion is not None:
        text += (
            f", ROW DELETION POLICY (OLDER_THAN({_quoted_part(one.row_deletion.column)}, "
            f"INTERVAL {one.row_deletion.older_than_days} DAY))"
        )
    return text


def _interleave(interleave: Interleave) -> str:
    if not interleave.in_parent:
        return f"INTERLEAVE IN {quoted(interleave.parent)}"
    return f"INTERLEAVE IN PARENT {quoted(interleave.parent)} ON DELETE {interleave.on_delete}"


def _column(column: ColumnDefinition) -> str:
    text = f"{_quoted_part(column.name)} {column.value_type.ddl()}"
    if not column.is_nullable:
        text += " NOT NULL"
    if column.default is not None:
        text += f" DEFAULT ({column.default})"
    if column.generated is not None:
        text += f" AS ({column.generated})" + (" STORED" if column.is_stored else "")
    if column.commit_timestamp:
        text += " OPTIONS (\n    allow_commit_timestamp = true\n  )"
    return text


def _foreign_key(key: ForeignKey) -> str:
    text = f"CONSTRAINT {quoted(key.name)} " if key.is_named else ""
    text += (
        f"FOREIGN KEY({_list(key.columns)}) REFERENCES {quoted(key.referenced_table)}"
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
    """CREATE INDEX."""
    kind = ("UNIQUE " if one.is_unique else "") + ("NULL_FILTERED " if one.is_null_filtered else "")
    text = f"CREATE {kind}INDEX {quoted(one.name)} ON {quoted(one.table)}({_key(one.key)})"
    if one.storing:
        text += f" STORING ({_list(one.storing)})"
    if one.not_null:
        text += " WHERE " + " AND ".join(
            f"{_quoted_part(name)} IS NOT NULL" for name in one.not_null
        )
    if one.interleave_in is not None:
        text += f", INTERLEAVE IN {quoted(one.interleave_in)}"
    return text


def view(one: View) -> str:
    """CREATE VIEW."""
    return f"CREATE VIEW {quoted(one.name)} SQL SECURITY {one.security} AS {one.query}"


def stream(one: ChangeStream) -> str:
    """CREATE CHANGE STREAM."""
    text = f"CREATE CHANGE STREAM {quoted(one.name)}"
    if one.watch is not None and one.watch.everything:
        text += " FOR ALL"
    elif one.watch is not None:
        tables = [
            quoted(name) + ("" if columns is None else f"({_list(columns)})")
            for name, columns in one.watch.tables
        ]
        text += " FOR " + ", ".join(tables)
    if one.options:
        options = ", ".join(f"{name} = {_option(value)}" for name, value in one.options)
        text += f" OPTIONS ( {options} )"
    return text


def roles(all_roles: Mapping[str, Role]) -> list[str]:
    """CREATE ROLE for each role that DDL made, then what they were granted."""
    return [
        *(f"CREATE ROLE {quoted(role.name)}" for role in own_roles(all_roles)),
        *(
            f"GRANT {', '.join(privileges)} ON {kind} {quoted(name)} TO ROLE {quoted(role)}"
            if kind != "ROLE"
            else f"GRANT ROLE {quoted(name)} TO ROLE {quoted(role)}"
            for role, kind, name, privileges in grants_of(all_roles)
        ),
    ]

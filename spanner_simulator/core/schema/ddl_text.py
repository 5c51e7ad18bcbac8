"""The catalogue as DDL, in the form that GetDatabaseDdl prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegate.spanner_simulator.core.schema.catalogue import Catalogue
    from tidegate.spanner_simulator.core.schema.schema_objects import ChangeStream, Role, Table
    from tidegate.spanner_simulator.core.schema.statements import OptionValue

__all__ = ["catalogue_ddl"]


def catalogue_ddl(catalogue: Catalogue) -> list[str]:
    """Statements that would make this schema again, in an order that works."""
    return [
        *(_table(table) for table in catalogue.tables.values()),
        *(_stream(stream) for stream in catalogue.streams.values()),
        *(f"CREATE ROLE {role.name}" for role in catalogue.roles.values()),
        *(grant for role in catalogue.roles.values() for grant in _grants(role)),
    ]


def _table(table: Table) -> str:
    lines = []
    for column in table.columns:
        line = f"  {column.name} {column.value_type.ddl()}"
        if not column.is_nullable:
            line += " NOT NULL"
        if column.commit_timestamp:
            line += " OPTIONS (\n    allow_commit_timestamp = true\n  )"
        lines.append(line + ",\n")
    key = ", ".join(part.name + (" DESC" if part.descending else "") for part in table.key)
    return f"CREATE TABLE {table.name} (\n{''.join(lines)}) PRIMARY KEY({key})"


def _stream(stream: ChangeStream) -> str:
    text = f"CREATE CHANGE STREAM {stream.name}"
    if stream.watch is not None:
        if stream.watch.everything:
            text += " FOR ALL"
        else:
            names = [
                table if columns is None else f"{table}({', '.join(columns)})"
                for table, columns in stream.watch.tables
            ]
            text += " FOR " + ", ".join(names)
    if stream.options:
        options = ", ".join(f"{name} = {_option(value)}" for name, value in stream.options)
        text += f" OPTIONS ( {options} )"
    return text


def _option(value: OptionValue) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}'"
        case None:
            return "NULL"
        case int():
            return str(value)


def _grants(role: Role) -> list[str]:
    return [
        *(
            f"GRANT {privilege} ON {kind} {name} TO ROLE {role.name}"
            for kind, name, privilege in sorted(role.privileges)
        ),
        *(f"GRANT ROLE {parent} TO ROLE {role.name}" for parent in sorted(role.members_of)),
    ]

"""Roles, who is a member of them, and what they were granted; and the database's options."""

from __future__ import annotations

from collections.abc import Iterator

from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.information_schema.rows import (
    ViewRow,
    located,
    option,
)
from spanner_simulator.core.schema.information_schema.stream_views import routine
from spanner_simulator.core.schema.role_rules import read_functions
from spanner_simulator.core.schema.statements import ObjectKind


def roles(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Every role; the system's own are marked."""
    for role in catalogue.roles.values():
        is_system = role.name == "public" or role.name.startswith("spanner_")
        yield {"role_name": role.name, "spanner_is_system": is_system}


def role_grantees(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Who is a member of which role."""
    for role in catalogue.roles.values():
        for parent in sorted(role.members_of):
            yield {
                "grantee": role.name,
                "role_name": catalogue.role(parent).name,
                "is_grantable": "NO",
            }


def _granted(catalogue: Catalogue, *kinds: ObjectKind) -> Iterator[tuple[str, ViewRow]]:
    """Object in lower case, and the columns of each grant on an object of these kinds."""
    for role in catalogue.roles.values():
        for kind, name, privilege in sorted(role.privileges):
            if kind in kinds:
                yield (
                    name,
                    {"grantee": role.name, "privilege_type": privilege, "is_grantable": "NO"},
                )


def table_privileges(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Grants on tables and views that still exist."""
    for name, row in _granted(catalogue, "TABLE", "VIEW"):
        found = catalogue.tables.get(name) or catalogue.views.get(name)
        if found is not None:
            yield located(found.name) | row


def column_privileges(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Grants on tables, column by column; DELETE is none of a column."""
    for name, row in _granted(catalogue, "TABLE"):
        table = catalogue.tables.get(name)
        if table is not None and row["privilege_type"] != "DELETE":
            for column in table.columns:
                yield located(table.name) | row | {"column_name": column.name}


def change_stream_privileges(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Grants on change streams."""
    for name, row in _granted(catalogue, "CHANGE STREAM"):
        stream = catalogue.streams.get(name)
        if stream is not None:
            yield located(stream.name, "change_stream") | row


def routine_privileges(catalogue: Catalogue) -> Iterator[ViewRow]:
    """Grants on read functions."""
    functions = {
        function.lower(): function
        for stream in catalogue.streams.values()
        for function in read_functions(catalogue, stream.name)
    }
    for name, row in _granted(catalogue, "TABLE FUNCTION"):
        if name in functions:
            yield routine(catalogue, functions[name]) | row


def database_options(catalogue: Catalogue) -> Iterator[ViewRow]:
    """The dialect, and what ALTER DATABASE has set."""
    where: ViewRow = {"catalog_name": "", "schema_name": ""}
    yield where | option("database_dialect", catalogue.dialect)
    for name, value in catalogue.options.items():
        yield where | option(name, value)

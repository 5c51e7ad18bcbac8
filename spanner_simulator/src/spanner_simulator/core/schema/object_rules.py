"""Rules for indexes, roles with their privileges, and the proto bundle.

The caller maintains an index's rows: an `Index` defines their columns.  A bundle's types and the
files that define them are in the catalogue; the catalogue's analyser reads descriptors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import SYSTEM_ROLES, Catalogue
from spanner_simulator.core.schema.schema_objects import Index, Role, Table
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import (
    SpannerError,
    failed_precondition,
    invalid_argument,
    not_found,
    unsupported,
)

_ALLOWED: dict[ddl.ObjectKind, tuple[str, ...]] = {
    "TABLE": ("SELECT", "INSERT", "UPDATE", "DELETE"),
    "SCHEMA": ("USAGE",),
    "CHANGE STREAM": ("SELECT",),
    "TABLE FUNCTION": ("EXECUTE",),
}


def create_index(catalogue: Catalogue, statement: ddl.CreateIndex) -> None:
    """Define an index; the caller fills it, and rejects rows that are not unique."""
    schema = statement.table.rpartition(".")[0]
    if catalogue.dialect == "POSTGRESQL" and schema and "." not in statement.name:
        statement = replace(statement, name=f"{schema}.{statement.name}")
    name = statement.name
    if statement.if_not_exists and name.lower() in catalogue.indexes:
        return
    catalogue.check_new_name("Index", name)
    table = catalogue.table(statement.table)
    if name.rpartition(".")[0].lower() != table.name.rpartition(".")[0].lower():
        raise failed_precondition(
            f"Index {name} does not match the schema of the indexed table {table.name}."
        )
    if not statement.key:
        raise invalid_argument(f"Index {name} does not specify any key columns.")
    named = [
        _indexed(name, table, column)
        for column in (*(part.name for part in statement.key), *statement.storing)
    ]
    for position, column in enumerate(named):
        if column in named[:position]:
            raise invalid_argument(f"Index {name} specifies key column {column.name} twice.")
    keys, stored = named[: len(statement.key)], named[len(statement.key) :]
    for column in keys:
        if not column.value_type.is_key_type:
            raise failed_precondition(
                f"Cannot reference {column.value_type.base_name(element=False)} {column.name} in "
                f"the creation of index {name}."
            )
    for column in stored:
        if column.name in table.key_names:
            raise failed_precondition(
                f"Index {name} specifies stored column {column.name} which is a key of table "
                f"{table.name}."
            )
    catalogue.indexes[name.lower()] = Index(
        name,
        table.name,
        tuple(
            replace(part, name=column.name)
            for part, column in zip(statement.key, keys, strict=True)
        ),
        tuple(column.name for column in stored),
        statement.is_unique,
        statement.is_null_filtered,
    )


def _indexed(index: str, table: Table, name: str) -> ddl.ColumnDefinition:
    column = table.by_name.get(name.lower())
    if column is None:
        raise invalid_argument(
            f"Index {index} specifies key column {name} which does not exist in the index's base "
            "table."
        )
    return column


# -- the proto bundle


def create_bundle(
    catalogue: Catalogue, statement: ddl.CreateProtoBundle, descriptors: bytes
) -> None:
    """Create the bundle of a database without one."""
    if catalogue.proto_types:
        raise unsupported("a second CREATE PROTO BUNDLE")
    if not descriptors:
        raise invalid_argument("Contents of proto_descriptor_file cannot be empty")
    if catalogue.analysis is None:
        raise unsupported("PROTO BUNDLE here")
    read = catalogue.analysis.proto_files(descriptors)
    for name in sorted(set(statement.names)):
        if name not in read.types:
            raise not_found(f"Missing descriptor for `{name}`")
        catalogue.proto_types[name] = read.types[name]
    catalogue.proto_files.update(read.files)


def with_known_types(catalogue: Catalogue, statement: ddl.Statement) -> ddl.Statement:
    """The same statement with its columns' named types from the bundle, or INVALID_ARGUMENT."""
    match statement:
        case ddl.CreateTable(columns=columns):
            columns_with_types = tuple(_known_column(catalogue, column) for column in columns)
            return replace(statement, columns=columns_with_types)
        case ddl.AddColumn(column=column):
            return replace(statement, column=_known_column(catalogue, column))
        case ddl.AlterColumn(changes={"value_type": value_type}):
            known_type = _known_type(catalogue, value_type)
            return replace(statement, changes={**statement.changes, "value_type": known_type})
        case _:
            return statement


def _known_column(catalogue: Catalogue, column: ddl.ColumnDefinition) -> ddl.ColumnDefinition:
    return replace(column, value_type=_known_type(catalogue, column.value_type))


def _known_type(catalogue: Catalogue, kind: ValueType) -> ValueType:
    name = (kind.element or kind).proto_name
    if name is None:
        return kind
    proto_type = catalogue.proto_types.get(name)
    if proto_type is None:
        raise invalid_argument(f"Type not found: {name}")
    return proto_type if kind.element is None else replace(kind, element=proto_type)


# -- roles


def create_role(catalogue: Catalogue, statement: ddl.CreateRole) -> None:
    """Create a role without privileges."""
    name = statement.name
    if name.lower() in catalogue.roles:
        if statement.if_not_exists:
            return
        raise failed_precondition(f"Duplicate name in schema: {name}.")
    if name.lower().startswith("spanner_"):
        raise invalid_argument(f"Role name not valid: {name}.")
    catalogue.roles[name.lower()] = Role(name)


def drop_role(catalogue: Catalogue, role: Role) -> None:
    """Remove a role that DDL created."""
    if role.name in SYSTEM_ROLES:
        raise failed_precondition(f"Cannot alter or drop the system role {role.name}.")
    del catalogue.roles[role.name.lower()]


def forget_lost_objects(catalogue: Catalogue) -> None:
    """Revoke the privileges on dropped objects: later objects of the name must not get them."""
    for key, role in catalogue.roles.items():
        kept = frozenset(
            privilege
            for privilege in role.privileges
            if _exists(catalogue, privilege[0], privilege[1])
        )
        if kept != role.privileges:
            catalogue.roles[key] = replace(role, privileges=kept)


def _exists(catalogue: Catalogue, kind: ddl.ObjectKind, name: str) -> bool:
    try:
        _grantable(catalogue, kind, name)
    except SpannerError:
        return False
    return True


def grant(catalogue: Catalogue, statement: ddl.Grant) -> None:
    """Grant privileges to roles, or revoke them."""
    for privilege in statement.privileges:
        if privilege not in _ALLOWED[statement.kind]:
            raise invalid_argument(f"Privilege {privilege} cannot be granted on {statement.kind}.")
    names = [_grantable(catalogue, statement.kind, name) for name in statement.objects]
    entries = frozenset(
        (statement.kind, name.lower(), privilege)
        for name in names
        for privilege in statement.privileges
    )
    for role in [catalogue.role(name) for name in statement.roles]:
        privileges = role.privileges - entries if statement.revoke else role.privileges | entries
        catalogue.roles[role.name.lower()] = replace(role, privileges=privileges)


def _grantable(catalogue: Catalogue, kind: ddl.ObjectKind, name: str) -> str:
    """The object's name, or NOT_FOUND."""
    match kind:
        case "TABLE":
            return catalogue.table(name).name
        case "SCHEMA":
            if name.lower() not in catalogue.schemas:
                raise not_found(f"Schema not found: {name}")
            return catalogue.schemas[name.lower()]
        case "CHANGE STREAM":
            return catalogue.stream(name).name
        case "TABLE FUNCTION":
            for stream in catalogue.streams.values():
                function = stream.read_function(catalogue.dialect)
                if function.lower() == name.lower():
                    return function
            raise not_found(f"Table function not found: {name}")
        case _:
            assert_never(kind)

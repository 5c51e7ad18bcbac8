"""Rules for the proto bundle: which messages and enums columns may have as their types.

A bundle's types and the files that define them are in the catalogue, as plain values; reading a
descriptor is done by the catalogue's analyser.
"""

from __future__ import annotations

from dataclasses import replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.refusals import invalid, unsupported
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


def create_bundle(
    catalogue: Catalogue, statement: ddl.CreateProtoBundle, descriptors: bytes
) -> None:
    """Make the bundle of a database that has none yet."""
    if catalogue.proto_types:
        raise unsupported("a second CREATE PROTO BUNDLE")
    if not descriptors:
        raise invalid("Contents of proto_descriptor_file cannot be empty")
    if catalogue.analysis is None:
        raise unsupported("PROTO BUNDLE here")
    read = catalogue.analysis.proto_files(descriptors)
    for name in sorted(set(statement.names)):
        if name not in read.types:
            raise SpannerError(Code.NOT_FOUND, f"Missing descriptor for `{name}`")
        catalogue.proto_types[name] = read.types[name]
    catalogue.proto_files.update(read.files)


def with_known_types(catalogue: Catalogue, statement: ddl.Statement) -> ddl.Statement:
    """The same statement, its columns' named types taken from the bundle; else INVALID_ARGUMENT."""
    match statement:
        case ddl.CreateTable(columns=columns):
            known = tuple(_known_column(catalogue, column) for column in columns)
            return replace(statement, columns=known)
        case ddl.AddColumn(column=column):
            return replace(statement, column=_known_column(catalogue, column))
        case ddl.AlterColumn(changes={"value_type": value_type}):
            found = _known_type(catalogue, value_type)
            return replace(statement, changes={**statement.changes, "value_type": found})
        case _:
            return statement


def _known_column(catalogue: Catalogue, column: ddl.ColumnDefinition) -> ddl.ColumnDefinition:
    return replace(column, value_type=_known_type(catalogue, column.value_type))


def _known_type(catalogue: Catalogue, kind: ValueType) -> ValueType:
    name = (kind.element or kind).proto_name
    if name is None:
        return kind
    found = catalogue.proto_types.get(name)
    if found is None:
        raise invalid(f"Type not found: {name}")
    return found if kind.element is None else replace(kind, element=found)

"""Rules for the proto bundle: which messages and enums columns may have as their types.

A bundle's types and the files that define them are in the catalogue, as plain values; reading a
descriptor is done by the catalogue's analyser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from spanner_simulator.core.schema import statements as ddl
from spanner_simulator.core.schema.analysis import ProtoFiles
from spanner_simulator.core.schema.catalogue import Catalogue
from spanner_simulator.core.schema.view_rules import refresh_views
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError


def create_bundle(
    catalogue: Catalogue, statement: ddl.CreateProtoBundle, descriptors: bytes
) -> None:
    """Make the bundle, in the place of one that is there already."""
    read = _read(catalogue, descriptors)
    types: dict[str, ValueType] = {}
    for name in statement.names:
        _insert(types, name, read)
    _exchange(catalogue, types, read.files)


def alter_bundle(catalogue: Catalogue, statement: ddl.AlterProtoBundle, descriptors: bytes) -> None:
    """Add, renew and remove types."""
    read = _read(catalogue, descriptors)
    if not catalogue.proto_types:
        raise _refused("Proto bundle does not yet exist; cannot alter it")
    types = dict(catalogue.proto_types)
    for name in statement.inserted:
        _insert(types, name, read)
    for name in statement.updated:
        if name not in types:
            raise _missing(f"Tried to update `{name}` which does not already exist.")
        old, types[name] = types[name], _described(name, read)
        if old.code != types[name].code:
            raise _refused(f"Cannot change type `{name}` from {old.code} to {types[name].code}")
    for name in statement.deleted:
        if types.pop(name, None) is None:
            raise _missing(
                f"Tried to remove `{name}` which does not already exist in the proto bundle."
            )
    _exchange(catalogue, types, {**catalogue.proto_files, **read.files})


def drop_bundle(catalogue: Catalogue) -> None:
    """Remove the bundle; no column may need it any more."""
    if not catalogue.proto_types:
        raise _refused("Proto bundle does not yet exist; cannot drop it")
    _exchange(catalogue, {}, {})


def _refused(message: str) -> SpannerError:
    return SpannerError(Code.FAILED_PRECONDITION, message)


def _missing(message: str) -> SpannerError:
    return SpannerError(Code.NOT_FOUND, message)


def _read(catalogue: Catalogue, descriptors: bytes) -> ProtoFiles:
    if not descriptors:
        raise SpannerError(
            Code.INVALID_ARGUMENT, "Contents of proto_descriptor_file cannot be empty"
        )
    if catalogue.analysis is None:
        raise SpannerError(Code.UNIMPLEMENTED, "The simulator does not support: PROTO BUNDLE here")
    return catalogue.analysis.proto_files(descriptors)


def _insert(types: dict[str, ValueType], name: str, read: ProtoFiles) -> None:
    if name in types:
        raise SpannerError(
            Code.ALREADY_EXISTS, f"Type already exists: `{name}` in the proto bundle"
        )
    types[name] = _described(name, read)


def _described(name: str, read: ProtoFiles) -> ValueType:
    found = read.types.get(name)
    if found is None:
        raise _missing(f"Missing descriptor for `{name}`")
    return found


def _exchange(
    catalogue: Catalogue, types: dict[str, ValueType], files: Mapping[str, bytes]
) -> None:
    """Put these types in the place of the old ones, in columns too."""
    renewed = [
        replace(table, columns=tuple(_renewed(table.name, one, types) for one in table.columns))
        for table in catalogue.tables.values()
    ]
    catalogue.proto_types.clear()
    catalogue.proto_types.update(sorted(types.items()))
    catalogue.proto_files.clear()
    catalogue.proto_files.update(files if types else {})
    for table in renewed:
        if table != catalogue.table(table.name):
            catalogue.tables[table.name.lower()] = table
            refresh_views(catalogue, "TABLE", table.name)


def _renewed(
    table: str, column: ddl.ColumnDefinition, types: Mapping[str, ValueType]
) -> ddl.ColumnDefinition:
    kind = column.value_type
    name = (kind.element or kind).proto_name
    if name is None:
        return column
    if name not in types:
        raise _refused(f"Removed type `{name}` is still being used by column {table}.{column.name}")
    return replace(column, value_type=_with_scalar(kind, types[name]))


def _with_scalar(kind: ValueType, scalar: ValueType) -> ValueType:
    return scalar if kind.element is None else replace(kind, element=scalar)


# -- columns


def with_known_types(catalogue: Catalogue, statement: ddl.Statement) -> ddl.Statement:
    """The same statement, its columns' named types taken from the bundle; else INVALID_ARGUMENT."""
    match statement:
        case ddl.CreateTable(columns=columns):
            return replace(statement, columns=_known_columns(catalogue, columns))
        case ddl.AddColumn(column=column) | ddl.ReplaceColumn(column=column):
            return replace(statement, column=_known_columns(catalogue, [column])[0])
        case _:
            return statement


def _known_columns(
    catalogue: Catalogue, columns: Sequence[ddl.ColumnDefinition]
) -> tuple[ddl.ColumnDefinition, ...]:
    return tuple(_known_column(catalogue, column) for column in columns)


def _known_column(catalogue: Catalogue, column: ddl.ColumnDefinition) -> ddl.ColumnDefinition:
    kind = column.value_type
    name = (kind.element or kind).proto_name
    if name is None:
        return column
    found = catalogue.proto_types.get(name)
    if found is None:
        raise SpannerError(Code.INVALID_ARGUMENT, f"Type not found: {name}")
    return replace(column, value_type=_with_scalar(kind, found))

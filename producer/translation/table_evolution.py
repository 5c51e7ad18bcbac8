"""The evolution of a table's known columns and of its topic's value schema.

A new column is added; a dropped one stays, nullable, because records from before the drop may still
arrive.  The primary key never changes, because keys would move between topic partitions.  `evolve`
grows the table that a process knows, `grown` the schema that the fleet has registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.records import RecordColumn
from tidegate.schemas.avro_types import differ_in_timestamps, is_carried
from tidegate.schemas.change_schema import (
    envelope_of,
    excludes,
    merged_row,
    require_distinct_names,
    row_fields,
    with_row,
)
from tidegate.schemas.tables import Column, ColumnType, TableSchema, folded

OTHER_ENVELOPE_HINT = (
    "Set envelope to the one that the stream began with, or start a new stream under another "
    "prefix; if this one was reset, delete the subjects in the registry"
)

OTHER_TIMESTAMPS_HINT = (
    "Set timestamps to the form that the stream began with, or start a new stream under another "
    "prefix; if this one was reset, delete the subjects in the registry"
)


def evolve(
    published: TableSchema | None,
    current: TableSchema | None,
    shown: Iterable[RecordColumn],
    *,
    table: str,
    key_names: Sequence[str] = (),
) -> TableSchema:
    """Return the table with every column of the three sources, in ordinal order.

    `published` is the table as published so far, `current` the catalogue's, None after a DROP
    TABLE; `shown` are a record's columns.  Where several have a column, under names that may differ
    in case, the catalogue's type is used, then the published one; a type without an Avro type, such
    as one in an unknown notation, comes last.  A table that was dropped before the process knew it
    has the columns of the record, with a primary key in the order of `key_names`.  Raises
    IncompatibleChange for another primary key, a record's included, and SchemaError for two columns
    of one name.
    """
    shown = tuple(shown)
    base = current or published or _dropped(table, shown, key_names)
    require_distinct_names(base)
    base = _with_known_types(base, [*(published.columns if published is not None else ()), *shown])
    keyed = {folded(column.name) for column in base.key_columns}
    if (published is not None and _key(published) != _key(base)) or any(
        column.is_primary_key and folded(column.name) not in keyed for column in shown
    ):
        raise IncompatibleChange(
            "a table's primary key changed",
            hint="Start a new stream under another prefix",
            table=table,
        )
    columns = {folded(column.name): (column, False) for column in base.columns}
    for column in published.columns if published is not None else ():
        columns.setdefault(folded(column.name), (column, True))
    for shown_column in shown:
        columns.setdefault(
            folded(shown_column.name),
            (Column(shown_column.name, shown_column.type, shown_column.ordinal), True),
        )
    # A new column may have the ordinal of a dropped one: the existing one comes first.
    ordered = sorted(columns.values(), key=lambda entry: (entry[0].ordinal, entry[1]))
    left_out = {*base.excludes, *(published.excludes if published is not None else ())}
    return TableSchema(
        base.name, tuple(column for column, _ in ordered), excludes=tuple(sorted(left_out))
    )


def _with_known_types(base: TableSchema, further: Iterable[Column | RecordColumn]) -> TableSchema:
    """Return a table whose columns have the first Avro type that any source has for them."""
    types: dict[str, ColumnType] = {}
    for column in (*base.columns, *further):
        name = folded(column.name)
        if name not in types or not is_carried(types[name]):
            types[name] = column.type
    columns = tuple(replace(column, type=types[folded(column.name)]) for column in base.columns)
    return replace(base, columns=columns)


def grown(
    own: Mapping[str, Any], versions: Sequence[Mapping[str, Any]], *, table: str
) -> dict[str, Any]:
    """Return a table's own value schema with every field of its subject's versions.

    `versions` are the registered ones, the oldest first.  The fields of the newest come first, in
    its order, so that a schema without new columns equals the newest one; new columns come last.
    Changes that one of them leaves out stay left out.  Raises IncompatibleChange for a column of
    another type than the field of its name, and for versions of another envelope.
    """
    setting = envelope_of(own)
    if envelopes := sorted({envelope_of(schema) for schema in versions} - {setting}):
        raise IncompatibleChange(
            (
                f"envelope: the setting is '{setting}', and the topic's registered value schemas "
                f"have '{envelopes[0]}'"
            ),
            hint=OTHER_ENVELOPE_HINT,
            table=table,
        )
    fields = merged_row((*reversed(versions), own))
    for name, field in row_fields(own).items():
        if field["type"] != fields[name]["type"]:
            hint = "Start a new stream under another prefix"
            if differ_in_timestamps(field["type"], fields[name]["type"]):
                hint = OTHER_TIMESTAMPS_HINT
            raise IncompatibleChange(
                "a column has another type than its field in the topic's value schema",
                hint=hint,
                table=table,
                column=name,
                registered=fields[name]["type"][-1],
                type=field["type"][-1],
            )
    left_out = excludes((*versions, own))
    return with_row({**own, "excludes": list(left_out)} if left_out else own, fields)


def _dropped(name: str, shown: Iterable[RecordColumn], key_names: Sequence[str]) -> TableSchema:
    """Return a table with the columns that a record shows.

    A record shows which columns are the primary key, not in which order.  Without `key_names` that
    is the order of the ordinals, which is the same for every worker.
    """
    shown = sorted(shown, key=lambda column: column.ordinal)
    keys = [folded(column.name) for column in shown if column.is_primary_key]
    named = [folded(key) for key in key_names]
    if set(keys) == set(named):
        keys = named
    positions = {key: place for place, key in enumerate(keys, start=1)}
    return TableSchema(
        name, tuple(Column(c.name, c.type, c.ordinal, positions.get(folded(c.name))) for c in shown)
    )


def _key(table: TableSchema) -> tuple[tuple[str, object], ...]:
    return tuple((folded(column.name), column.type) for column in table.key_columns)

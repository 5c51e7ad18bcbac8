"""Avro schemas of a data topic's keys and values, built from a table's columns.

The key is a record of the primary key columns in primary key order.  It does not change during an
epoch, because keys would move between topic partitions.  The value is the change record of
`docs/protocol.md`: kind of change, row after and before, captured columns, Spanner's coordinates;
or, in a stream whose envelope is flat, one row with these beside its columns.
Every column is nullable with default null, so that a schema with another column is
BACKWARD-compatible.  Versions only grow: `merged_row` and `with_row` make a later one.

What the change stream leaves out is in two properties of the value schema, which other readers
ignore: `watched` of a field of `Row` (false, or missing), and `excludes` of the record.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.flat_schema import FLAT_FIELDS, FLAT_NAME, is_flat, reserved_names
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from tidegate.schemas.tables import ColumnType, TableSchema

__all__ = [
    "ELSEWHERE",
    "EXCLUSIONS",
    "RESERVED_HINT",
    "TRANSACTIONS_LEFT_OUT",
    "UNWATCHED_COLUMNS",
    "avro_type",
    "differ_in_timestamps",
    "excludes",
    "key_schema",
    "merged_row",
    "row_fields",
    "unwatched_columns",
    "value_schema",
    "with_row",
    "without",
]

_AVRO_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOT_IN_NAMESPACE = re.compile(r"[^A-Za-z0-9_]")

_AVRO_TYPES: dict[str, Any] = {
    "INT64": "long",
    "FLOAT32": "float",
    "FLOAT64": "double",
    "BOOL": "boolean",
    "STRING": "string",
    "BYTES": "bytes",
    "PROTO": "bytes",
    "ENUM": "long",
    "NUMERIC": {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 9},
    "DATE": {"type": "int", "logicalType": "date"},
    "JSON": "string",
    "UUID": {"type": "string", "logicalType": "uuid"},
    "INTERVAL": "string",
}

_TIMESTAMP_TYPES: dict[TimestampForm, dict[str, Any]] = {
    TimestampForm.MICROS: {"type": "long", "logicalType": "timestamp-micros"},
    # No logical type of Avro's own: a reader that does not know it reads a string.
    TimestampForm.STRING: {"type": "string", "logicalType": "timestamp-rfc3339"},
}

EXCLUSIONS = (
    "exclude_insert",
    "exclude_update",
    "exclude_delete",
    "exclude_ttl_deletes",
    # Each transaction decides whether it is left out.
    "allow_txn_exclusion",
)
"""Options of a change stream by which it leaves changes out."""

TRANSACTIONS_LEFT_OUT = "exclude_transactions"
"""The producer leaves out some transactions, by their tag or because they are the system's."""

ELSEWHERE = "exclude_tables"
"""The producer leaves out other tables: nothing of this one, but transactions lack records."""

RESERVED_HINT = (
    "Leave the column out with columns_left_out (none of the primary key can be), or set "
    'envelope = "tidegate"; a stream that has begun needs another prefix for either'
)

UNWATCHED_COLUMNS = "unwatched_columns"
"""Name for columns that a reader has and the change stream no longer watches, in settings."""

_UNWATCHED: Mapping[str, Any] = {"watched": False}

_SOURCE_SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Source",
    "doc": "Every field of Spanner's data change record that is not a value.",
    "fields": [
        {
            "name": "commit_timestamp",
            "type": {"type": "long", "logicalType": "timestamp-micros"},
        },
        {"name": "server_transaction_id", "type": "string"},
        {"name": "record_sequence", "type": "string"},
        {"name": "mod_number", "type": "int"},
        {"name": "is_last_record_in_transaction_in_partition", "type": "boolean"},
        {"name": "number_of_records_in_transaction", "type": "long"},
        {"name": "number_of_partitions_in_transaction", "type": "long"},
        {"name": "transaction_tag", "type": "string"},
        {"name": "is_system_transaction", "type": "boolean"},
        {"name": "value_capture_type", "type": "string"},
        {"name": "change_stream", "type": "string"},
        {"name": "partition_token", "type": "string"},
    ],
}


def avro_type(column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS) -> Any:
    """Return the Avro type of a column's values, without the null branch.

    Raises SchemaError for a type that Tidegate does not support.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return {"type": "array", "items": ["null", avro_type(column_type.element, timestamps)]}
    if column_type.code == "TIMESTAMP":
        return _TIMESTAMP_TYPES[timestamps]
    if column_type.code == "NUMERIC" and column_type.annotation == "PG_NUMERIC":
        return "string"
    try:
        return _AVRO_TYPES[column_type.code]
    except KeyError as error:
        message = "unsupported column type"
        raise SchemaError(message, code=column_type.code) from error


def differ_in_timestamps(one: Any, other: Any) -> bool:
    """Whether two Avro types, or two lists of fields, differ in their `TimestampForm` alone."""
    return bool(one != other and _with_micros(one) == _with_micros(other))


def _with_micros(schema: Any) -> Any:
    if schema == _TIMESTAMP_TYPES[TimestampForm.STRING]:
        return _TIMESTAMP_TYPES[TimestampForm.MICROS]
    if isinstance(schema, dict):
        return {name: _with_micros(part) for name, part in schema.items()}
    return [_with_micros(part) for part in schema] if isinstance(schema, list) else schema


def key_schema(
    topic: str, table: TableSchema, timestamps: TimestampForm = TimestampForm.MICROS
) -> dict[str, Any]:
    """Return the schema of a topic's keys; raises SchemaError for a table without a primary key."""
    if not table.key_columns:
        message = "watched table has no primary key"
        raise SchemaError(message, table=table.name)
    return {
        "type": "record",
        "name": "Key",
        "namespace": _namespace(topic),
        "fields": [
            {"name": _field(c.name, table), "type": ["null", avro_type(c.type, timestamps)]}
            for c in table.key_columns
        ],
    }


def value_schema(
    topic: str,
    table: TableSchema,
    timestamps: TimestampForm = TimestampForm.MICROS,
    envelope: Envelope = Envelope.TIDEGATE,
) -> dict[str, Any]:
    """Return the schema of a topic's values: the change record.

    Raises SchemaError for a column that the envelope cannot have.
    """
    columns = [
        {
            "name": _field(c.name, table),
            "type": ["null", avro_type(c.type, timestamps)],
            "default": None,
            **({} if c.is_watched else _UNWATCHED),
        }
        for c in table.columns
    ]
    left_out = {"excludes": sorted(table.excludes)} if table.excludes else {}
    if envelope is Envelope.FLAT:
        for name in reserved_names(c.name for c in table.columns):
            message = "envelope: a flat value cannot have a column whose name begins with __"
            raise SchemaError(message, hint=RESERVED_HINT, table=table.name, column=name)
        named = {"type": "record", "name": FLAT_NAME, "namespace": _namespace(topic), **left_out}
        return {**named, "fields": [*columns, *FLAT_FIELDS]}
    row = {"type": "record", "name": "Row", "fields": columns}
    names = {"type": "array", "items": "string"}
    mod_types = {"type": "enum", "name": "ModType", "symbols": ["INSERT", "UPDATE", "DELETE"]}
    return {
        "type": "record",
        "name": "Change",
        "namespace": _namespace(topic),
        **left_out,
        "fields": [
            {"name": "mod_type", "type": mod_types},
            {"name": "new_values", "type": ["null", row], "default": None},
            {"name": "old_values", "type": ["null", "Row"], "default": None},
            {"name": "new_columns", "type": ["null", names], "default": None},
            {"name": "old_columns", "type": ["null", names], "default": None},
            {"name": "source", "type": _SOURCE_SCHEMA},
        ],
    }


def row_fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of a value schema's columns; raises SchemaError for another schema."""
    if is_flat(schema):
        own = {field["name"] for field in FLAT_FIELDS}
        return {f["name"]: f for f in schema["fields"] if f["name"] not in own}
    try:
        found = next(field for field in schema["fields"] if field["name"] == "new_values")
        return {field["name"]: field for field in found["type"][1]["fields"]}
    except (KeyError, IndexError, TypeError, StopIteration) as error:
        message = "a value schema has no row in new_values"
        name = f"{schema.get('namespace', '')}.{schema.get('name', '')}"
        raise SchemaError(message, schema=name) from error


def merged_row(newest_first: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the row fields of all value schemas: those of the first in their order, then others.

    Where two have a field of one name, the earlier in the argument decides, but a column that one
    of them does not watch stays so: no reader has all of its values.
    """
    versions = list(newest_first)
    fields: dict[str, dict[str, Any]] = {}
    for schema in versions:
        for name, field in row_fields(schema).items():
            fields.setdefault(name, field)
    unwatched = unwatched_columns(versions)
    return {
        name: {**field, **_UNWATCHED} if name in unwatched else field
        for name, field in fields.items()
    }


def without(schema: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """Return a value schema that says of some columns that their values are left out."""
    fields = row_fields(schema)
    unwatched = {name: {**fields[name], **_UNWATCHED} for name in fields if name in columns}
    return with_row(schema, fields | unwatched)


def unwatched_columns(versions: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the columns that at least one of a topic's value schemas does not watch."""
    return frozenset(
        name
        for schema in versions
        for name, field in row_fields(schema).items()
        if field.get("watched") is False
    )


def excludes(versions: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the options by which changes were left out under one of a topic's value schemas."""
    return tuple(sorted({option for schema in versions for option in schema.get("excludes", ())}))


def with_row(schema: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a value schema with these fields for its columns."""
    if is_flat(schema):
        return {**schema, "fields": [*fields.values(), *FLAT_FIELDS]}
    changed = [
        {**field, "type": ["null", {**field["type"][1], "fields": list(fields.values())}]}
        if field["name"] == "new_values"
        else field
        for field in schema["fields"]
    ]
    return {**schema, "fields": changed}


def _namespace(topic: str) -> str:
    """Return a topic's Avro namespace; each part begins with a letter or an underscore."""
    parts = (_NOT_IN_NAMESPACE.sub("_", part) for part in topic.split("."))
    return ".".join(part if _AVRO_NAME.fullmatch(part) else f"_{part}" for part in parts)


def _field(name: str, table: TableSchema) -> str:
    if not _AVRO_NAME.fullmatch(name):
        message = "column name is not a valid Avro name"
        raise SchemaError(message, table=table.name, column=name)
    return name

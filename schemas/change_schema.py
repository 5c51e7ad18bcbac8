"""Avro schemas of a data topic's keys and values, built from a table's columns.

The key is a record of the primary key columns in primary key order.  It does not change during an
epoch, because keys would move between topic partitions.  The value is the change record of
`docs/protocol.md`: kind of change, row after and before, captured columns, Spanner's coordinates;
or the value of another envelope in `docs/protocol/envelopes.md`: one flat row (3.8), Debezium's
(3.9) or Datastream's (3.10).  The fields after a flat row's columns have the names of an unwrapped
Debezium record where that has such a field; all begin with two underscores, so no column's name may
begin with them.  Every column is nullable with default null, so that a schema with another column
is BACKWARD-compatible.  Versions only grow: `merged_row` and `with_row` make a later one.

Two properties of the value schema, which other readers ignore, record what the change stream leaves
out: `watched` of a field of `Row` (false, or missing), and `excludes` of the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from tidegate.schemas.avro_types import AVRO_NAME, avro_type, namespace_of
from tidegate.schemas.datastream_event import (
    DATASTREAM_NAME,
    PAYLOAD,
    datastream_fields,
    datastream_type,
)
from tidegate.schemas.debezium_schema import BEFORE, DEBEZIUM_NAME, debezium_fields, debezium_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import Column, TableSchema, folded

FLAT_NAME = "FlatChange"
"""Name of the record of a flat value, which identifies the envelope; column names are free."""

_RESERVED = "__"

FLAT_FIELDS: tuple[Mapping[str, Any], ...] = (
    {"name": "__op", "type": "string"},
    {"name": "__deleted", "type": "string"},
    {"name": "__columns", "type": {"type": "array", "items": "string"}},
    {"name": "__commit_timestamp", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    {"name": "__server_transaction_id", "type": "string"},
    {"name": "__record_sequence", "type": "string"},
    {"name": "__mod_number", "type": "int"},
    {"name": "__is_last_record_in_transaction_in_partition", "type": "boolean"},
    {"name": "__number_of_records_in_transaction", "type": "long"},
    {"name": "__number_of_partitions_in_transaction", "type": "long"},
    {"name": "__transaction_tag", "type": "string"},
    {"name": "__is_system_transaction", "type": "boolean"},
    {"name": "__value_capture_type", "type": "string"},
)
"""The fields after the columns, in their order."""


def is_flat(schema: Mapping[str, Any]) -> bool:
    """Whether a value schema is that of a flat envelope."""
    return schema.get("name") == FLAT_NAME


def reserved_names(columns: Iterable[str]) -> list[str]:
    """Return the columns that a flat envelope cannot have."""
    return [name for name in columns if name.startswith(_RESERVED)]


EXCLUSIONS = (
    "exclude_insert",
    "exclude_update",
    "exclude_delete",
    "exclude_ttl_deletes",
    # Each transaction decides whether the change stream leaves it out.
    "allow_txn_exclusion",
)
"""Options of a change stream by which it leaves changes out."""

TRANSACTIONS_LEFT_OUT = "exclude_transactions"
"""Entry of `excludes`: the producer leaves out transactions, by tag or as the system's."""

ELSEWHERE = "exclude_tables"
"""Entry of `excludes`: the producer leaves out other tables, so transactions lack their records."""

RESERVED_HINT = (
    "Leave the column out with columns_left_out (none of the primary key can be), or set "
    'envelope = "tidegate"; a stream that has begun needs another prefix for either'
)

UNCARRIED_HINT = (
    "Begin a new stream without the column (columns_left_out) or, for one of the primary key, "
    "without the table (tables_left_out); or use a version of Tidegate that carries it"
)

FOREIGN_HINT = (
    "Another program has registered it: begin under another prefix, or delete the subject in the "
    "registry"
)

UNWATCHED_COLUMNS = "unwatched_columns"
"""Name, in settings, of columns that a reader has and the change stream no longer watches."""

_UNWATCHED: Mapping[str, Any] = {"watched": False}

_NEW_VALUES = "new_values"
_NAMES = {
    Envelope.TIDEGATE: "Change",
    Envelope.FLAT: FLAT_NAME,
    Envelope.DEBEZIUM: DEBEZIUM_NAME,
    Envelope.DATASTREAM: DATASTREAM_NAME,
}
"""Names of the records of values, which identify their envelope."""

_ROWS = {
    Envelope.TIDEGATE: _NEW_VALUES,
    Envelope.DEBEZIUM: BEFORE,
    Envelope.DATASTREAM: PAYLOAD,
}
"""The first field that holds a row; a flat value is itself a row."""

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


def key_schema(
    topic: str, table: TableSchema, timestamps: TimestampForm = TimestampForm.MICROS
) -> dict[str, Any]:
    """Return the schema of a topic's keys; raises SchemaError for a table without a primary key."""
    if not table.key_columns:
        raise SchemaError("watched table has no primary key", table=table.name)
    return {
        "type": "record",
        "name": "Key",
        "namespace": namespace_of(topic),
        "fields": [
            {
                "name": _field(c.name, table),
                "type": ["null", _column_type(table, c, timestamps, Envelope.TIDEGATE)],
            }
            for c in table.key_columns
        ],
    }


def value_schema(
    topic: str,
    table: TableSchema,
    timestamps: TimestampForm = TimestampForm.MICROS,
    envelope: Envelope = Envelope.TIDEGATE,
) -> dict[str, Any]:
    """Return the schema of a topic's values in the given envelope.

    Raises SchemaError for a column that the envelope cannot have.
    """
    require_distinct_names(table)
    columns = [
        {
            "name": _field(c.name, table),
            "type": ["null", _column_type(table, c, timestamps, envelope)],
            "default": None,
            **({} if c.is_watched else _UNWATCHED),
        }
        for c in table.columns
    ]
    if envelope is Envelope.FLAT:
        for name in reserved_names(c.name for c in table.columns):
            raise SchemaError(
                "envelope: a flat value cannot have a column whose name begins with __",
                hint=RESERVED_HINT,
                table=table.name,
                column=name,
            )
    fields = {
        Envelope.TIDEGATE: _change_fields,
        Envelope.FLAT: lambda columns, _: [*columns, *FLAT_FIELDS],
        Envelope.DEBEZIUM: debezium_fields,
        Envelope.DATASTREAM: datastream_fields,
    }[envelope]
    return {
        "type": "record",
        "name": _NAMES[envelope],
        "namespace": namespace_of(topic),
        **({"excludes": sorted(table.excludes)} if table.excludes else {}),
        "fields": fields(columns, table.name),
    }


def require_distinct_names(table: TableSchema) -> None:
    """Raise SchemaError for two columns whose names differ only in case: one field for both."""
    names: dict[str, str] = {}
    for column in table.columns:
        other = names.setdefault(folded(column.name), column.name)
        if other != column.name:
            message = "a table has two columns whose names differ in case only"
            columns = [other, column.name]
            raise SchemaError(message, hint=UNCARRIED_HINT, table=table.name, columns=columns)


def _change_fields(columns: list[dict[str, Any]], _table: str) -> list[dict[str, Any]]:
    """Return the fields of our own envelope."""
    row = {"type": "record", "name": "Row", "fields": columns}
    names = {"type": "array", "items": "string"}
    mod_types = {"type": "enum", "name": "ModType", "symbols": ["INSERT", "UPDATE", "DELETE"]}
    return [
        {"name": "mod_type", "type": mod_types},
        {"name": _NEW_VALUES, "type": ["null", row], "default": None},
        {"name": "old_values", "type": ["null", "Row"], "default": None},
        {"name": "new_columns", "type": ["null", names], "default": None},
        {"name": "old_columns", "type": ["null", names], "default": None},
        {"name": "source", "type": _SOURCE_SCHEMA},
    ]


def _column_type(
    table: TableSchema, column: Column, timestamps: TimestampForm, envelope: Envelope
) -> Any:
    try:
        if envelope is Envelope.DEBEZIUM:
            return debezium_type(column.type)
        if envelope is Envelope.DATASTREAM:
            return datastream_type(column.type, timestamps)
        return avro_type(column.type, timestamps)
    except SchemaError as error:
        fields: dict[str, Any] = {**error.fields, "table": table.name, "column": column.name}
        raise SchemaError(error.message, hint=UNCARRIED_HINT, **fields) from error


def envelope_of(schema: Mapping[str, Any]) -> Envelope:
    """Return the envelope of a value schema, by its record's name."""
    envelopes = (envelope for envelope, name in _NAMES.items() if schema.get("name") == name)
    return next(envelopes, Envelope.TIDEGATE)


def row_fields(schema: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the fields of a value schema's columns; raises SchemaError for another schema."""
    if is_flat(schema):
        own = {field["name"] for field in FLAT_FIELDS}
        return {f["name"]: f for f in schema["fields"] if f["name"] not in own}
    place = _ROWS[envelope_of(schema)]
    try:
        row = next(field for field in schema["fields"] if field["name"] == place)
        row_type = row["type"]
        record = row_type[1] if isinstance(row_type, list) else row_type
        return {field["name"]: field for field in record["fields"]}
    except (KeyError, IndexError, TypeError, StopIteration) as error:
        raise SchemaError(
            f"a value schema has no row in {place}",
            hint=FOREIGN_HINT,
            schema=f"{schema.get('namespace', '')}.{schema.get('name', '')}",
        ) from error


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
    """Return a value schema in which the given columns are marked as not watched."""
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
    """Return the options by which at least one of a topic's value schemas leaves changes out."""
    return tuple(sorted({option for schema in versions for option in schema.get("excludes", ())}))


def lost_parts(expected: Any, actual: Any) -> tuple[str, ...]:
    """Return the names of properties that a schema has and its registered form lacks."""
    lost: set[str] = set()
    if isinstance(expected, dict) and isinstance(actual, dict):
        for name, value in expected.items():
            lost |= {name} if name not in actual else {*lost_parts(value, actual[name])}
    elif isinstance(expected, dict) and set(expected) > {"type"} and expected["type"] == actual:
        lost |= set(expected) - {"type"}  # a type alone may be written without an object
    # A field or branch that is missing gives no information about properties.
    elif isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        for expected_part, actual_part in zip(expected, actual, strict=True):
            lost |= {*lost_parts(expected_part, actual_part)}
    return tuple(sorted(lost))


def with_row(schema: Mapping[str, Any], fields: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a value schema with these fields for its columns."""
    if is_flat(schema):
        return {**schema, "fields": [*fields.values(), *FLAT_FIELDS]}
    place = _ROWS[envelope_of(schema)]
    changed = [
        {**field, "type": _with_fields(field["type"], list(fields.values()))}
        if field["name"] == place
        else field
        for field in schema["fields"]
    ]
    return {**schema, "fields": changed}


def _with_fields(record: Any, fields: list[Mapping[str, Any]]) -> Any:
    """Return the type of a row, nullable or not, with these fields."""
    if isinstance(record, list):
        return [record[0], {**record[1], "fields": fields}]
    return {**record, "fields": fields}


def record_names(topic: str) -> dict[str, str]:
    """Return the full names of the Avro records in a topic, of its `key` and of its `value`."""
    return {"key": f"{namespace_of(topic)}.Key", "value": f"{namespace_of(topic)}.Change"}


def _field(name: str, table: TableSchema) -> str:
    if not AVRO_NAME.fullmatch(name):
        raise SchemaError("column name is not a valid Avro name", table=table.name, column=name)
    return name

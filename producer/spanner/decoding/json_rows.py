"""Decodes response messages of a change stream query: the form of PostgreSQL databases.

A row is one JSONB value: an object with one key, which names the kind of record.  The records equal
those of the GoogleSQL form.  Any other row type, and a record of another kind, is rejected, never
read as something else.  Input that cannot be read is a SchemaError that names the field.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import orjson
from google.cloud.spanner_v1.types import TypeCode

from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    RecordColumn,
    StreamRecord,
    UnreadableValues,
)
from tidegate.producer.spanner.decoding.fields import values_of_text
from tidegate.producer.spanner.decoding.response import (
    TEXT,
    RowDecoder,
    Serialised,
    content_of,
)
from tidegate.producer.spanner.decoding.struct_rows import ColumnTypesCache
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.tables import ColumnType

_MOD_TYPES = ("INSERT", "UPDATE", "DELETE")
_DEFAULT_SCHEMA = "public."
_INTEGER = re.compile(r"-?[0-9]{1,19}")
_KIND_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "an array",
    str: "text",
    bool: "a boolean",
}

_Kind = TypeVar("_Kind")


class JsonResponseDecoder(RowDecoder):
    """Decodes the response messages of one query, in their order."""

    def __init__(self, columns: ColumnTypesCache) -> None:
        super().__init__()
        self._column_lists = columns
        self._last_timestamp: tuple[str | None, int] = (None, 0)

    def _require_form(self, columns: Any) -> None:
        fields = list(columns.fields)
        if len(fields) != 1 or fields[0].type_.code != TypeCode.JSON:
            raise SchemaError(
                "a change stream's response is not of the PostgreSQL form for immutable key ranges",
                hint="Only this form is supported",
                columns=[field.name for field in fields][:4],
            )

    def _record(self, value: Serialised) -> StreamRecord:
        row = _parsed(value)
        kinds = [name for name, record in row.items() if record is not None]
        match kinds:
            case ["data_change_record"]:
                return self._data_change(_object(row, kinds[0]))
            case ["heartbeat_record"]:
                return HeartbeatRecord(self._instant(_object(row, kinds[0]), "timestamp"))
            case ["child_partitions_record"]:
                return self._children(_object(row, kinds[0]))
            case _:
                raise SchemaError("a row is not one change stream record", kinds=kinds[:4])

    def _data_change(self, record: Mapping[str, Any]) -> DataChangeRecord:
        mod_type = _text(record, "mod_type")
        if mod_type not in _MOD_TYPES:
            raise SchemaError("a record with an unknown mod type", mod_type=mod_type)
        return DataChangeRecord(
            commit_timestamp_ns=self._instant(record, "commit_timestamp"),
            record_sequence=_sequence(record),
            server_transaction_id=_text(record, "server_transaction_id"),
            is_last_record_in_transaction_in_partition=_flag(
                record, "is_last_record_in_transaction_in_partition"
            ),
            # As the catalogue names it, whichever way the service does.
            table_name=_text(record, "table_name").removeprefix(_DEFAULT_SCHEMA),
            columns=self._columns(record),
            mods=tuple([_mod(mod) for mod in _list(record, "mods")]),
            mod_type=mod_type,  # type: ignore[arg-type]  # one of the three
            value_capture_type=_text(record, "value_capture_type"),
            number_of_records_in_transaction=_integer(record, "number_of_records_in_transaction"),
            number_of_partitions_in_transaction=_integer(
                record, "number_of_partitions_in_transaction"
            ),
            transaction_tag=_text_or_empty(record, "transaction_tag"),
            is_system_transaction=_flag(record, "is_system_transaction"),
        )

    def _columns(self, record: Mapping[str, Any]) -> tuple[RecordColumn, ...]:
        """Return the columns; equal lists are one object, which identifies cached translations."""
        described = _list(record, "column_types")
        return self._column_lists.get(
            (), orjson.dumps(described), lambda _: tuple([_column(column) for column in described])
        )

    def _children(self, record: Mapping[str, Any]) -> ChildPartitionsRecord:
        start_ns = self._instant(record, "start_timestamp")
        children = []
        for child in _list(record, "child_partitions"):
            described = _as(dict, child, "child_partitions")
            # The documentation's example shows [NULL] where the service sends no parents.
            parents = tuple(
                _as(str, parent, "parent_partition_tokens")
                for parent in _list(described, "parent_partition_tokens")
                if parent is not None
            )
            children.append(ChildPartition(_text(described, "token"), parents, start_ns))
        return ChildPartitionsRecord(start_ns, _sequence(record), tuple(children))

    def _instant(self, fields: Mapping[str, Any], name: str) -> int:
        """Return nanoseconds since 1970; the records of one transaction share their text."""
        text = _text(fields, name)
        if text != self._last_timestamp[0]:
            self._last_timestamp = (text, parse_rfc3339_ns(text))
        return self._last_timestamp[1]


def _parsed(value: Serialised) -> dict[str, Any]:
    text = content_of(value, TEXT)
    if text is None:
        raise SchemaError("a change stream's row is not JSON")
    try:
        return _as(dict, orjson.loads(text), "row")
    except orjson.JSONDecodeError as error:
        raise SchemaError("a change stream's row cannot be read as JSON") from error


def _column(described: Any) -> RecordColumn:
    fields = _as(dict, described, "column_types")
    return RecordColumn(
        name=_text(fields, "name"),
        type=ColumnType.from_type_json(_object(fields, "type")),
        is_primary_key=_flag(fields, "is_primary_key"),
        ordinal=_integer(fields, "ordinal_position"),
    )


def _mod(described: Any) -> Mod:
    fields = _as(dict, described, "mods")
    keys = _values(fields, "keys")
    if isinstance(keys, UnreadableValues):
        raise keys.error
    return Mod(keys, _values(fields, "new_values"), _values(fields, "old_values"))


def _values(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return values by their columns' names, none for NULL; anything else is `UnreadableValues`.

    A missing field is a SchemaError, because absent values would count as unchanged.
    """
    value = _field(fields, name)
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, str):  # as JSON in JSON
        return values_of_text(value, name)
    text = orjson.dumps(value).decode()
    return UnreadableValues(text, _unreadable(name, value, "an object"))


def _field(fields: Mapping[str, Any], name: str) -> Any:
    try:
        return fields[name]
    except KeyError as error:
        raise SchemaError("a change record lacks a field", field=name) from error


def _as(kind: type[_Kind], value: Any, name: str) -> _Kind:
    if not isinstance(value, kind):
        raise _unreadable(name, value, _KIND_NAMES[kind])
    return value


def _object(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    return _as(dict, _field(fields, name), name)


def _list(fields: Mapping[str, Any], name: str) -> list[Any]:
    """Return an array's elements; NULL counts as empty."""
    value = _field(fields, name)
    return [] if value is None else _as(list, value, name)


def _text(fields: Mapping[str, Any], name: str) -> str:
    return _as(str, _field(fields, name), name)


def _sequence(fields: Mapping[str, Any]) -> str:
    """Return a record sequence: text, or a number as in one version of the documentation."""
    name = "record_sequence"
    value = _field(fields, name)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else _as(str, value, name)


def _text_or_empty(fields: Mapping[str, Any], name: str) -> str:
    value = _field(fields, name)
    return "" if value is None else _as(str, value, name)


def _flag(fields: Mapping[str, Any], name: str) -> bool:
    return _as(bool, _field(fields, name), name)


def _integer(fields: Mapping[str, Any], name: str) -> int:
    """Return a number, or the number of a decimal text."""
    value = _field(fields, name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        return int(value)
    raise _unreadable(name, value, "an integer")


def _unreadable(name: str, value: Any, expected: str) -> SchemaError:
    return SchemaError(
        f"a change record's field is not {expected}", field=name, kind=type(value).__name__
    )

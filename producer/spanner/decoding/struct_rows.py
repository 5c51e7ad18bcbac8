"""Decodes response messages of a change stream query, by the names in their metadata.

Reads the GoogleSQL form for immutable key ranges; any other row type is rejected, never read as
something else.  Most fields are the same in many records, and are decoded once.  Input that cannot
be read is a SchemaError that names the field; no input makes it hang.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson
from google.cloud.spanner_v1.types import TypeCode

from tidegate.producer.accelerator import accelerator
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    RecordColumn,
    StreamRecord,
)
from tidegate.producer.spanner.decoding.fields import (
    flag,
    integer,
    is_null,
    items,
    json_object,
    json_values,
    sequence_of,
    struct_fields,
    text_of,
    text_or_empty,
)
from tidegate.producer.spanner.decoding.response import (
    LIST,
    NULL,
    TEXT,
    Decoder,
    Serialised,
    content_of,
    elements,
    row_type,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import parse_rfc3339_ns
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.tables import ColumnType

_COLUMN_SETS_MAX = 4096
_REPEATED_MAX = 1024
_MOD_TYPES = ("INSERT", "UPDATE", "DELETE")

_RECORD_KINDS = ("data_change_record", "heartbeat_record", "child_partitions_record")
_DATA_FIELDS = (
    "commit_timestamp",
    "record_sequence",
    "server_transaction_id",
    "is_last_record_in_transaction_in_partition",
    "table_name",
    "column_types",
    "mods",
    "mod_type",
    "value_capture_type",
    "number_of_records_in_transaction",
    "number_of_partitions_in_transaction",
    "transaction_tag",
    "is_system_transaction",
)
_REPEATED_FIELDS = (3, 4, 5, 7, 8, 9, 10, 11, 12)
"""From `_DATA_FIELDS`: all but time, sequence, transaction and mods."""
_COLUMN_FIELDS = ("name", "type", "is_primary_key", "ordinal_position")
_MOD_FIELDS = ("keys", "new_values", "old_values")
_CHILDREN_FIELDS = ("start_timestamp", "record_sequence", "child_partitions")
_CHILD_FIELDS = ("token", "parent_partition_tokens")


class ColumnTypesCache:
    """Column lists by their serialised bytes; equal lists come back as one object.

    Shared by all queries of a stream.  Two threads may at worst decode the same list twice.
    """

    def __init__(self) -> None:
        self._lists: dict[tuple[tuple[int, ...], bytes], tuple[RecordColumn, ...]] = {}

    def get(
        self,
        layout: tuple[int, ...],
        value: Serialised,
        decode: Callable[[Serialised], tuple[RecordColumn, ...]],
    ) -> tuple[RecordColumn, ...]:
        """Return the decoded list of a `column_types` value whose structs have this layout."""
        identity = (layout, bytes(value))
        decoded = self._lists.get(identity)
        if decoded is None:
            if len(self._lists) >= _COLUMN_SETS_MAX:
                self._lists.clear()
            decoded = self._lists.setdefault(identity, decode(value))
        return decoded


class _Repeated(NamedTuple):
    """The fields that many data change records share."""

    is_last_record: bool
    table_name: str
    columns: tuple[RecordColumn, ...]
    mod_type: str
    value_capture_type: str
    number_of_records: int
    number_of_partitions: int
    transaction_tag: str
    is_system_transaction: bool


class ResponseDecoder(Decoder):
    """Decodes the response messages of one query, in their order."""

    def __init__(self, columns: ColumnTypesCache) -> None:
        super().__init__()
        self._column_lists = columns
        self._accelerator = accelerator()
        self._layout: _Layout | None = None
        self._repeated: dict[tuple[bytes, ...] | bytes, _Repeated] = {}
        self._last_timestamp: tuple[Serialised, int] = (b"", 0)

    def decode(self, message: bytes) -> list[StreamRecord]:
        """Return the records that a serialised `PartialResultSet` completes.

        Raises SchemaError if the message or a record in it is not of the known form.
        """
        if self._accelerator is not None and self._layout and self._chunks.is_between_values:
            rows = self._accelerator.records(message, *self._layout.roles, orjson.loads, Mod)
            if rows is not None:
                return self._records(rows, self._layout)
        metadata, values = self._chunks.take(message)
        if self._layout is None and metadata:
            self._layout = _Layout.of(row_type(metadata))
        if not values:
            return []
        if self._layout is None:
            raise SchemaError("a response begins without metadata")
        records: list[StreamRecord] = []
        for value in values:
            self._add_row(value, self._layout, records)
        return records

    def _add_row(self, value: Serialised, layout: _Layout, records: list[StreamRecord]) -> None:
        """Read one row: an array of structs with one of three arrays filled.

        A row without a record, or with a record of a later kind, is a SchemaError: otherwise it
        would be lost.
        """
        before = len(records)
        for change_record in items(value, "ChangeRecord"):
            kinds = struct_fields(change_record, layout.size, "ChangeRecord")
            for place, name in layout.unknown.items():
                if kinds[place] != NULL and content_of(kinds[place], LIST) != b"":
                    raise SchemaError(
                        "a row holds a change stream record of another kind", kind=name
                    )
            for record in items(kinds[layout.data_at], "data_change_record"):
                fields = struct_fields(record, layout.data_size, "data_change_record")
                if _holds_record(fields[layout.data[0]], fields[layout.data[6]], "mods"):
                    records.append(self._data_change(fields, layout))
            for record in items(kinds[layout.heartbeat_at], "heartbeat_record"):
                fields = struct_fields(record, layout.heartbeat_size, "heartbeat_record")
                if not is_null(fields[layout.timestamp_at]):
                    at_ns = self._instant(fields[layout.timestamp_at], "timestamp")
                    records.append(HeartbeatRecord(at_ns))
            for record in items(kinds[layout.children_at], "child_partitions_record"):
                fields = struct_fields(record, layout.children_size, "child_partitions_record")
                start, children = (fields[layout.children[0]], fields[layout.children[2]])
                if _holds_record(start, children, "child_partitions"):
                    records.append(self._children(fields, layout))
        if len(records) == before:
            raise SchemaError("a row holds no change stream record")

    def _records(self, rows: Sequence[Any], layout: _Layout) -> list[StreamRecord]:
        """Return the records that the accelerator made of a response's rows."""
        records: list[StreamRecord] = []
        for row in rows:
            if row.__class__ is bytes:
                self._add_row(row, layout, records)
                continue
            commit_timestamp_ns, sequence, transaction, content, mods = row
            repeated = self._repeated.get(content)
            if repeated is None:
                fields = dict(zip(layout.repeated_at, elements(content), strict=True))
                repeated = self._keep_repeated(content, fields, layout)
            records.append(
                # By position, which takes half the time.
                DataChangeRecord(
                    commit_timestamp_ns,
                    sequence,
                    transaction,
                    repeated.is_last_record,
                    repeated.table_name,
                    repeated.columns,
                    mods,
                    repeated.mod_type,  # type: ignore[arg-type]  # one of the three
                    repeated.value_capture_type,
                    repeated.number_of_records,
                    repeated.number_of_partitions,
                    repeated.transaction_tag,
                    repeated.is_system_transaction,
                )
            )
        return records

    def _data_change(self, fields: Sequence[Serialised], layout: _Layout) -> DataChangeRecord:
        places = layout.data
        identity = layout.repeated(fields)
        repeated = self._repeated.get(identity)
        if repeated is None:
            copied = tuple([bytes(field) for field in identity])
            repeated = self._keep_repeated(copied, fields, layout)
        return DataChangeRecord(
            commit_timestamp_ns=self._instant(fields[places[0]], "commit_timestamp"),
            record_sequence=sequence_of(fields[places[1]], "record_sequence"),
            server_transaction_id=text_of(fields[places[2]], "server_transaction_id"),
            is_last_record_in_transaction_in_partition=repeated.is_last_record,
            table_name=repeated.table_name,
            columns=repeated.columns,
            mods=tuple([_mod(mod, layout) for mod in items(fields[places[6]], "mods")]),
            mod_type=repeated.mod_type,  # type: ignore[arg-type]  # one of the three
            value_capture_type=repeated.value_capture_type,
            number_of_records_in_transaction=repeated.number_of_records,
            number_of_partitions_in_transaction=repeated.number_of_partitions,
            transaction_tag=repeated.transaction_tag,
            is_system_transaction=repeated.is_system_transaction,
        )

    def _keep_repeated(
        self,
        identity: tuple[bytes, ...] | bytes,
        fields: Sequence[Serialised] | Mapping[int, Serialised],
        layout: _Layout,
    ) -> _Repeated:
        """Decode the fields that many records share, and cache them for the next records."""
        if len(self._repeated) >= _REPEATED_MAX:
            self._repeated.clear()
        repeated = self._repeated[identity] = self._decode_repeated(fields, layout)
        return repeated

    def _decode_repeated(
        self, fields: Sequence[Serialised] | Mapping[int, Serialised], layout: _Layout
    ) -> _Repeated:
        places = layout.data
        mod_type = text_of(fields[places[7]], "mod_type")
        if mod_type not in _MOD_TYPES:
            raise SchemaError("a record with an unknown mod type", mod_type=mod_type)
        return _Repeated(
            is_last_record=flag(fields[places[3]], _DATA_FIELDS[3]),
            table_name=text_of(fields[places[4]], "table_name"),
            columns=self._column_lists.get(layout.column, fields[places[5]], layout.columns),
            mod_type=mod_type,
            value_capture_type=text_of(fields[places[8]], "value_capture_type"),
            number_of_records=integer(fields[places[9]], _DATA_FIELDS[9]),
            number_of_partitions=integer(fields[places[10]], _DATA_FIELDS[10]),
            transaction_tag=text_or_empty(fields[places[11]], "transaction_tag"),
            is_system_transaction=flag(fields[places[12]], "is_system_transaction"),
        )

    def _children(self, fields: Sequence[Serialised], layout: _Layout) -> ChildPartitionsRecord:
        start_ns = self._instant(fields[layout.children[0]], "start_timestamp")
        children = []
        for child in items(fields[layout.children[2]], "child_partitions"):
            parts = struct_fields(child, layout.child_size, "child_partitions")
            token = text_of(parts[layout.child[0]], "token")
            # The documentation's example shows [NULL] where the service sends no parents.
            parents = tuple(
                text_of(parent, "parent_partition_tokens")
                for parent in items(parts[layout.child[1]], "parent_partition_tokens")
                if not is_null(parent)
            )
            children.append(ChildPartition(token, parents, start_ns))
        sequence = sequence_of(fields[layout.children[1]], "record_sequence")
        return ChildPartitionsRecord(start_ns, sequence, tuple(children))

    def _instant(self, value: Serialised, name: str) -> int:
        """Return nanoseconds since 1970; the records of one transaction share their text."""
        if value != self._last_timestamp[0]:
            self._last_timestamp = (value, parse_rfc3339_ns(text_of(value, name)))
        return self._last_timestamp[1]


class _Layout:
    """The position of each field in its struct, from the response's metadata."""

    def __init__(self, record: Any) -> None:
        """Read a ChangeRecord's struct type; raises SchemaError for a missing field."""
        self.size, kinds, places = _positions(record, _RECORD_KINDS)
        self.data_at, self.heartbeat_at, self.children_at = places
        self.unknown = {
            place: field.name
            for place, field in enumerate(record.fields)
            if place not in places and field.type_.array_element_type.code == TypeCode.STRUCT
        }
        """Kinds of records of a later version of the service, by their places."""
        data, heartbeat, children = (_struct(kind, name=name) for name, kind in kinds.items())
        self.data_size, data_types, self.data = _positions(data, _DATA_FIELDS)
        self.repeated_at = sorted(self.data[place] for place in _REPEATED_FIELDS)
        self.repeated = itemgetter(*self.repeated_at)
        self.heartbeat_size, _, (self.timestamp_at,) = _positions(heartbeat, ("timestamp",))
        self.children_size, child_types, self.children = _positions(children, _CHILDREN_FIELDS)
        column = _struct(data_types["column_types"], name="column_types")
        self.column_size, _, self.column = _positions(column, _COLUMN_FIELDS)
        mod = _struct(data_types["mods"], name="mods")
        self.mod_size, _, self.mod = _positions(mod, _MOD_FIELDS)
        child = _struct(child_types["child_partitions"], name="child_partitions")
        self.child_size, _, self.child = _positions(child, _CHILD_FIELDS)
        self.roles = (
            _roles(self.size, (*places, *self.unknown), (1, 2, 2, *[2] * len(self.unknown))),
            _roles(self.data_size, self.data, (2, 3, 4, 1, 1, 1, 5, 1, 1, 1, 1, 1, 1)),
            _roles(self.mod_size, self.mod, (1, 2, 3)),
        )
        """The accelerator's treatment of each field of the three structs."""

    @classmethod
    def of(cls, row_type: Any) -> _Layout:
        """Parse a response's row type: one column, an array of ChangeRecord structs."""
        columns = list(row_type.fields)
        if len(columns) != 1:
            raise SchemaError(
                "a change stream's response has one column",
                columns=[column.name for column in columns],
            )
        return cls(_struct(columns[0].type_, name=columns[0].name))

    def columns(self, value: Serialised) -> tuple[RecordColumn, ...]:
        """Parse a `column_types` value."""
        columns = []
        for item in items(value, "column_types"):
            fields = struct_fields(item, self.column_size, "column_types")
            name = text_of(fields[self.column[0]], "name")
            described = json_object(fields[self.column[1]], "type")
            columns.append(
                RecordColumn(
                    name=name,
                    type=ColumnType.from_type_json(described),
                    is_primary_key=flag(fields[self.column[2]], "is_primary_key"),
                    ordinal=integer(fields[self.column[3]], "ordinal_position"),
                )
            )
        return tuple(columns)


def _struct(array: Any, *, name: str) -> Any:
    """Return the struct type of an ARRAY<STRUCT>."""
    element = array.array_element_type
    if array.code != TypeCode.ARRAY or element.code != TypeCode.STRUCT:
        raise SchemaError(
            "a change stream's response is not of the GoogleSQL form for immutable key ranges",
            hint="Only this form is supported",
            field=name,
        )
    return element.struct_type


def _positions(struct: Any, names: tuple[str, ...]) -> tuple[int, dict[str, Any], tuple[int, ...]]:
    """Return a struct's number of fields, the types of the named ones, and their positions."""
    fields = list(struct.fields)
    position = {field.name: index for index, field in enumerate(fields)}
    missing = [name for name in names if name not in position]
    if missing:
        raise SchemaError("a change record's type lacks fields", missing=missing)
    types = {name: fields[position[name]].type_ for name in names}
    return len(fields), types, tuple(position[name] for name in names)


def _roles(size: int, places: tuple[int, ...], roles: tuple[int, ...]) -> bytes:
    """Return a byte for each field of a struct, 0 for those that are not read."""
    role_of_field = bytearray(size)
    for place, role in zip(places, roles, strict=True):
        role_of_field[place] = role
    return bytes(role_of_field)


def _holds_record(timestamp: Serialised, content: Serialised, name: str) -> bool:
    """Whether a struct holds a record: without a timestamp it is absent.

    Content without a timestamp is a SchemaError, because it would be lost silently.
    """
    if content_of(timestamp, TEXT) is not None or not is_null(timestamp):
        return True
    if items(content, name):
        raise SchemaError("a change record without its timestamp", field=name)
    return False


def _mod(value: Serialised, layout: _Layout) -> Mod:
    fields = struct_fields(value, layout.mod_size, "mods")
    keys, new_values, old_values = layout.mod
    return Mod(
        keys=json_object(fields[keys], "keys"),
        new_values=json_values(fields[new_values], "new_values"),
        old_values=json_values(fields[old_values], "old_values"),
    )

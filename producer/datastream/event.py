"""One event of Datastream: a row of a source as it was after a change, or before its deletion.

`parse_event` takes the record of an Avro or a JSON file; both give equal events, except for the
values of the payload, which have the file's form (a timestamp is a number in Avro, a text in JSON).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tidegate.producer.datastream.errors import (
    InvalidEvent,
    MissingKeyColumn,
    Position,
    UnknownReadMethod,
    WrongSchema,
)
from tidegate.producer.datastream.event_order import order_key
from tidegate.producer.datastream.metadata import (
    RecordFields,
    SourceMetadata,
    metadata_of,
    read_needed_text,
    read_record,
    read_text,
)
from tidegate.producer.datastream.read_methods import (
    KNOWN_METHODS,
    ReadKind,
    ReadMethod,
    read_method_of,
)
from tidegate.producer.datastream.sort_keys import SortKeys, completed
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, US_PER_MS, parse_rfc3339_ns

NEEDED_FIELDS = (
    "stream_name",
    "read_method",
    "object",
    "uuid",
    "read_timestamp",
    "source_timestamp",
    "source_metadata",
    "payload",
)
"""Fields of every event; `schema_key` and `sort_keys` are absent in old files."""

_MILLISECONDS = re.compile(r"-?[0-9]{1,18}", re.ASCII)
_ZONE = re.compile(r"(?:[Zz]|[+-]\d\d:\d\d)\Z", re.ASCII)
_MS_MAX = (1 << 63) // US_PER_MS
_SORT_KEY_TYPES = frozenset((int, str))


class ChangeType(StrEnum):
    """The kind of a change."""

    INSERT = "INSERT"
    UPDATE = "UPDATE"
    UPDATE_INSERT = "UPDATE-INSERT"
    """An UPDATE; if it changed the key, its half with the new row."""
    UPDATE_DELETE = "UPDATE-DELETE"
    """The half of an UPDATE of the key that removes the row of the old key."""
    DELETE = "DELETE"

    @property
    def is_deletion(self) -> bool:
        """Whether no row of the event's key remains."""
        return self in (ChangeType.DELETE, ChangeType.UPDATE_DELETE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; `(order_key, position)` is its place among the events of its source."""

    stream_name: str
    read_method: ReadMethod
    object: str
    """Datastream's name of the object; ambiguous: `metadata.path` has its parts."""
    schema_key: str
    """Empty in old files."""
    uuid: str
    """The same in each copy of an event, which Datastream delivers at least once."""
    read_timestamp_us: int
    source_timestamp_us: int
    sort_keys: SortKeys | None
    metadata: SourceMetadata
    """Including fields that only `sort_keys` have."""
    payload: Mapping[str, Any]
    """The whole row; for a deletion, the deleted row."""
    change_type: ChangeType
    is_deleted: bool
    order_key: bytes
    position: Position

    @property
    def key(self) -> tuple[Any, ...] | None:
        """The values of the key columns, in the order of `metadata`; None if there is no key."""
        columns = self.metadata.key_columns
        return tuple(self.payload[name] for name in columns) if columns else None


def parse_event(
    record: Mapping[str, Any], position: Position, *, columns: Collection[str] | None = None
) -> Event:
    """Return the event of a record; `columns` are the file schema's, if it has one.

    Raises one of the errors in `errors`, with the position in it.
    """
    fields = RecordFields(record, position)
    method = _method(fields, record.get("source_metadata"), position)
    source_timestamp_us = _instant_us(record, "source_timestamp", position)
    sort_keys = _sort_keys(record, position)
    written_metadata = metadata_of(
        method.source, fields.read(read_record, "source_metadata"), position
    )
    metadata = completed(
        sort_keys,
        method,
        written_metadata,
        source_timestamp_us=source_timestamp_us,
        position=position,
    )
    payload = fields.read(read_record, "payload")
    change_type = _change_type(method, metadata, position)
    _require_key(metadata.key_columns, payload if columns is None else columns, position)
    return Event(
        stream_name=fields.read(read_needed_text, "stream_name"),
        read_method=method,
        object=fields.read(read_needed_text, "object"),
        schema_key=fields.read(read_text, "schema_key") or "",
        uuid=fields.read(read_needed_text, "uuid"),
        read_timestamp_us=_instant_us(record, "read_timestamp", position),
        source_timestamp_us=source_timestamp_us,
        sort_keys=sort_keys,
        metadata=metadata,
        payload=payload,
        change_type=change_type,
        is_deleted=change_type.is_deletion,
        order_key=order_key(
            method, metadata, source_timestamp_us=source_timestamp_us, position=position
        ),
        position=position,
    )


def _method(fields: RecordFields, metadata: Any, position: Position) -> ReadMethod:
    text = fields.read(read_needed_text, "read_method")
    method = read_method_of(text, metadata if isinstance(metadata, Mapping) else ())
    if method is None:
        raise UnknownReadMethod.at(
            position, f"read_method is not one of {', '.join(KNOWN_METHODS)}", read_method=text[:80]
        )
    return method


def _change_type(method: ReadMethod, metadata: SourceMetadata, position: Position) -> ChangeType:
    """Return the change type, which `is_deleted` must not contradict.

    Old files have neither for a backfilled row: it exists, so it counts as inserted.
    """
    if metadata.change_type is None:
        if method.kind is ReadKind.CDC:
            raise WrongSchema.at(position, "a change has no source_metadata.change_type")
        change_type = ChangeType.DELETE if metadata.is_deleted else ChangeType.INSERT
    else:
        try:
            change_type = ChangeType(metadata.change_type)
        except ValueError:
            message = f"change_type is not one of {', '.join(ChangeType)}"
            shown = metadata.change_type[:80]
            raise InvalidEvent.at(position, message, change_type=shown) from None
    if metadata.is_deleted is not None and metadata.is_deleted != change_type.is_deletion:
        raise InvalidEvent.at(
            position,
            f"is_deleted is {str(metadata.is_deleted).lower()} in a change of type {change_type}",
        )
    return change_type


def _require_key(key: Collection[str], columns: Collection[str], position: Position) -> None:
    missing = [name for name in key if name not in columns]
    if missing:
        raise MissingKeyColumn.at(
            position,
            f"the row has no column {', '.join(missing)}, which its key names",
            key=list(key),
        )


def _sort_keys(record: Mapping[str, Any], position: Position) -> SortKeys | None:
    keys = record.get("sort_keys")
    if keys is None:
        return None
    if isinstance(keys, list) and _SORT_KEY_TYPES.issuperset(map(type, keys)):
        return tuple(keys)
    raise WrongSchema.at(position, "sort_keys is not an array of strings and whole numbers")


def _instant_us(record: Mapping[str, Any], name: str, position: Position) -> int:
    """Return a timestamp in microseconds: milliseconds in Avro, text in UTC in JSON.

    Texts may have a zone, and a `T` or a space before the time; all of them are in UTC. They may
    also be the digits of milliseconds, as documented for the field.
    """
    value = record.get(name)
    if isinstance(value, str) and _MILLISECONDS.fullmatch(value):
        value = int(value)
    if type(value) is int:
        if not -_MS_MAX <= value < _MS_MAX:
            raise InvalidEvent.at(position, f"{name} is out of range", found=value)
        return value * US_PER_MS
    if not isinstance(value, str):
        raise WrongSchema.at(
            position,
            f"{name} is neither a number of milliseconds nor a text",
            kind=type(value).__name__,
        )
    text = value.replace(" ", "T", 1)
    try:
        return parse_rfc3339_ns(text if _ZONE.search(text) else f"{text}Z") // NS_PER_US
    except SchemaError as error:
        raise InvalidEvent.at(
            position, f"{name} is not a timestamp such as 2021-12-25T05:42:04.408", found=value[:80]
        ) from error

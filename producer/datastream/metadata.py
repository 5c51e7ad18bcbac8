"""The metadata of each kind of source in an event: `source_metadata`, one class per source.

Fields have the names of Datastream's page "Events and streams"; a field that a file does not have
is None or empty, and fields beyond that table are ignored.  The page has no table for Spanner: its
fields are those of `docs/protocol.md`, 3.10.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, cast

from pydantic import Field, PlainValidator, TypeAdapter, ValidationInfo

from tidegate.producer.datastream.errors import InvalidEvent, Position, WrongSchema
from tidegate.producer.datastream.read_methods import SourceKind
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, parse_rfc3339_ns

_SHOWN_MAX = 80
_WHOLE_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")

_Read = TypeVar("_Read")


class RecordFields:
    """The fields of one record, by name, and the place of the current one.

    Readers return None for a field that is absent or null: older files lack fields that newer ones
    have.  Numbers may be text and text may be numbers, because the documentation and the files
    differ in both directions (`tx_id`, SQL Server's `database`).
    """

    def __init__(self, values: Mapping[str, Any], position: Position, *, within: str = "") -> None:
        self.values = values
        self.position = position
        self.within = within
        self.field_name = ""

    @property
    def context(self) -> RecordFields:
        """These fields."""
        return self

    def read(self, reader: Callable[[Any, RecordFields], _Read], name: str) -> _Read:
        """Return a field's value as read by one of the readers below; raises its errors."""
        self.field_name = name
        return reader(self.values.get(name), self)


FieldPlace: TypeAlias = ValidationInfo | RecordFields
"""The field being read, for errors."""


def _fields(place: FieldPlace) -> RecordFields:
    return cast("RecordFields", place.context)


def read_text(value: Any, place: FieldPlace) -> str | None:
    """Return a text; a number as its digits.  Raises WrongSchema for another type."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise _refused(value, place, "a string")


def read_needed_text(value: Any, place: FieldPlace) -> str:
    """Return a text that every event has; raises WrongSchema for another type or none."""
    text = read_text(value, place)
    if text is None:
        raise _missing(place)
    return text


def read_number(value: Any, place: FieldPlace) -> int | None:
    """Return a whole number, also from its digits.  Raises WrongSchema for another type."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 40:
        return int(value)
    raise _refused(value, place, "a whole number")


def read_instant_us(value: Any, place: FieldPlace) -> int | None:
    """Return a time in microseconds since 1970: from a number of them, or a text with its zone.

    Raises InvalidEvent for a text that is not a time, WrongSchema for another type.
    """
    if not isinstance(value, str):
        return read_number(value, place)
    try:
        return parse_rfc3339_ns(value) // NS_PER_US
    except SchemaError as error:
        raise InvalidEvent.at(
            _fields(place).position,
            f"{_path(place)} is not a time such as 2021-12-25T05:42:04.408123Z",
            found=value[:_SHOWN_MAX],
        ) from error


def read_flag(value: Any, place: FieldPlace) -> bool | None:
    """Return a boolean.  Raises WrongSchema for another type."""
    if value is None or isinstance(value, bool):
        return value
    raise _refused(value, place, "a boolean")


def read_texts(value: Any, place: FieldPlace) -> tuple[str, ...]:
    """Return a list of texts; empty if it is absent.  Raises WrongSchema for another type."""
    if value is None:
        return ()
    if isinstance(value, list) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise _refused(value, place, "an array of strings")


def read_numbers(value: Any, place: FieldPlace) -> tuple[int, ...]:
    """Return a list of whole numbers; empty if it is absent.  Raises as `read_texts` does."""
    if value is None:
        return ()
    if isinstance(value, list) and all(type(number) is int for number in value):
        return tuple(value)
    raise _refused(value, place, "an array of whole numbers")


def read_joined(value: Any, place: FieldPlace) -> str | None:
    """Return a text, or the texts of a list joined by dots; None if it is absent."""
    if isinstance(value, list):
        return ".".join(read_texts(value, place)) or None
    return read_text(value, place)


def read_record(value: Any, place: FieldPlace) -> Mapping[str, Any]:
    """Return a record that every event has; raises WrongSchema for another type, and if missing."""
    if value is None:
        raise _missing(place)
    if not isinstance(value, Mapping):
        raise _refused(value, place, "a record")
    return value


def _path(place: FieldPlace) -> str:
    within = _fields(place).within
    return f"{within}.{place.field_name}" if within else str(place.field_name)


def _missing(place: FieldPlace) -> WrongSchema:
    message = f"the record has no {_path(place)}, which Datastream writes in every event"
    return WrongSchema.at(_fields(place).position, message)


def _refused(value: Any, place: FieldPlace, expected: str) -> WrongSchema:
    message = f"{_path(place)} is {_shown(value)} and not {expected}"
    return WrongSchema.at(_fields(place).position, message)


def _shown(value: Any) -> str:
    """Return a value for a message, for any size and depth."""
    try:
        text = reprlib.repr(value)
    except ValueError:  # of a number with too many digits
        text = f"a value of type {type(value).__name__}"
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def _read_log_file(value: Any, info: Any) -> str | None:
    return read_text(value, info) or info.context.read(read_text, "binlog_file")


def _read_log_position(value: Any, info: Any) -> int | None:
    fields = info.context
    position = read_number(value, info)
    if "binlog_position" not in fields.values:
        return position
    other = fields.read(read_number, "binlog_position")
    return other if position is None else position


def _read_gtid(value: Any, info: Any) -> str | None:
    # It gives no order in addition to a log, and the order may not change in a stream.
    return None if info.context.values.get("log_file") else (read_text(value, info) or None)


_Text: TypeAlias = Annotated[str | None, PlainValidator(read_text)]
_NeededText: TypeAlias = Annotated[str, PlainValidator(read_needed_text)]
_Texts: TypeAlias = Annotated[tuple[str, ...], PlainValidator(read_texts)]
_Joined: TypeAlias = Annotated[str | None, PlainValidator(read_joined)]
_Number: TypeAlias = Annotated[int | None, PlainValidator(read_number)]
_Numbers: TypeAlias = Annotated[tuple[int, ...], PlainValidator(read_numbers)]
_InstantUs: TypeAlias = Annotated[int | None, PlainValidator(read_instant_us)]
_Flag: TypeAlias = Annotated[bool | None, PlainValidator(read_flag)]


def _named(*names: str | None) -> tuple[str, ...]:
    return tuple(filter(None, names))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Metadata:
    """The fields of all sources."""

    change_type: _Text
    """Absent in old files for rows of a backfill."""
    is_deleted: _Flag
    primary_keys: _Texts
    """Names of columns, in no documented order; empty for a table without a primary key."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row; empty if the table has neither key nor index."""
        return self.primary_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class MySqlMetadata(_Metadata):
    """Metadata of MySQL.

    Streams that follow global transaction identifiers have `binlog_file` and `binlog_position` in
    place of the first two.
    """

    source: Literal[SourceKind.MYSQL]
    log_file: Annotated[str | None, PlainValidator(_read_log_file)]
    log_position: Annotated[int | None, PlainValidator(_read_log_position)]
    gtid: Annotated[str | None, PlainValidator(_read_gtid)]
    """The global identifier of the transaction; None if the stream follows the binary log."""
    database: _Text
    table: _NeededText

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return _named(self.database, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleMetadata(_Metadata):
    """Metadata of Oracle."""

    source: Literal[SourceKind.ORACLE]
    log_file: _Text
    scn: _Number
    row_id: _Text
    database: _Text
    schema: _Text
    table: _NeededText
    tx_id: _Text
    rs_id: _Text
    ssn: _Number

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return _named(self.database, self.schema, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgreSqlMetadata(_Metadata):
    """Metadata of PostgreSQL."""

    source: Literal[SourceKind.POSTGRESQL]
    schema: _Text
    table: _NeededText
    tx_id: _Text
    lsn: _Text

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return _named(self.schema, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlServerMetadata(_Metadata):
    """Metadata of SQL Server.

    The documentation gives `database` the type long and `schema` an array of strings; files have
    strings.  Both are read, an array with dots between its parts.
    """

    source: Literal[SourceKind.SQL_SERVER]
    table: _NeededText
    database: _Text
    schema: _Joined
    lsn: _Text
    tx_id: _Text
    physical_location: _Numbers
    """File, page and slot of the log record; empty if it is absent."""
    replication_index: _Texts
    """Columns of an index that identifies a row, if there is no primary key."""

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that identify a row; empty if the table has neither key nor index."""
        return self.primary_keys or self.replication_index

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return _named(self.database, self.schema, self.table)


@dataclass(frozen=True, slots=True, kw_only=True)
class SalesforceMetadata(_Metadata):
    """Metadata of Salesforce."""

    source: Literal[SourceKind.SALESFORCE]
    object_name: _NeededText
    domain: _Text

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return _named(self.domain, self.object_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpannerMetadata(_Metadata):
    """Metadata of Spanner, in files that Tidegate writes."""

    source: Literal[SourceKind.SPANNER]
    database: _Text
    schema: _Text
    """Empty for a table without one."""
    table: _NeededText
    tx_id: _Text
    record_sequence: _Text
    mod_number: _Number
    commit_timestamp: _InstantUs
    """In microseconds since 1970, whatever the file's format."""
    is_last_record_in_transaction_in_partition: _Flag
    number_of_records_in_transaction: _Number
    number_of_partitions_in_transaction: _Number
    transaction_tag: _Text
    is_system_transaction: _Flag
    value_capture_type: _Text
    captured_columns: _Texts
    """The columns in the payload; others are not NULL, but unknown."""

    @property
    def path(self) -> tuple[str, ...]:
        """The names that identify the object, the outermost first."""
        return _named(self.schema, self.table)

    @property
    def is_whole_row(self) -> bool:
        """Whether an event that is not a deletion has the whole row."""
        return self.change_type == "INSERT" or self.value_capture_type in _WHOLE_ROWS


def _field_names(kind: type[_Metadata]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))


SourceMetadata: TypeAlias = (
    MySqlMetadata
    | OracleMetadata
    | PostgreSqlMetadata
    | SqlServerMetadata
    | SalesforceMetadata
    | SpannerMetadata
)
_UNION: TypeAdapter[SourceMetadata] = TypeAdapter(
    Annotated[SourceMetadata, Field(discriminator="source")]
)
_NAMES = {
    SourceKind.MYSQL: _field_names(MySqlMetadata),
    SourceKind.ORACLE: _field_names(OracleMetadata),
    SourceKind.POSTGRESQL: _field_names(PostgreSqlMetadata),
    SourceKind.SQL_SERVER: _field_names(SqlServerMetadata),
    SourceKind.SALESFORCE: _field_names(SalesforceMetadata),
    SourceKind.SPANNER: _field_names(SpannerMetadata),
}


def metadata_of(
    source: SourceKind, values: Mapping[str, Any], position: Position
) -> SourceMetadata:
    """Return an event's `source_metadata`; raises WrongSchema for a field of another type."""
    fields_of_source: dict[str, Any] = {name: values.get(name) for name in _NAMES[source]}
    fields_of_source["source"] = source
    fields = RecordFields(values, position, within="source_metadata")
    return _UNION.validate_python(fields_of_source, context=fields)

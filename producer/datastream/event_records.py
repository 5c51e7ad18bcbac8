"""Datastream's events as data change records: one event is one record with one change.

Rows are whole, so each event except a deletion is an INSERT, which replaces the row in every sink.
Columns have the types of `docs/datastream-rules.md`; the columns that describe a row's source
follow them.  Pure.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any

from tidegate.producer.datastream.errors import IncompleteRow, InvalidEvent, printable
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.file_limits import DEPTH_MAX, DIGITS_MAX
from tidegate.producer.datastream.metadata import (
    MySqlMetadata,
    OracleMetadata,
    SalesforceMetadata,
    SpannerMetadata,
)
from tidegate.producer.datastream.read_methods import SourceKind
from tidegate.producer.datastream.unified_types import PayloadField
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn
from tidegate.schemas.avro_types import AVRO_NAME
from tidegate.schemas.checksums import xxhash_64
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, US_PER_MS, US_PER_SECOND, format_rfc3339
from tidegate.schemas.json_values import double_text
from tidegate.schemas.order_key import sequence_pair
from tidegate.schemas.source_order import (
    SOURCE_CHANGE_TYPE,
    SOURCE_ORDER,
    SOURCE_READ_METHOD,
    SOURCE_ROW_ID,
    SOURCE_SCHEMA_KEY,
    SOURCE_SCN,
    SOURCE_TIMESTAMP,
    SOURCE_TRANSACTION,
    SOURCE_UUID,
)
from tidegate.schemas.tables import ColumnType

_STRING, _TIMESTAMP, _JSON = ColumnType("STRING"), ColumnType("TIMESTAMP"), ColumnType("JSON")
_INTEGER = ColumnType("INT64")
TEXT_DECIMAL = ColumnType("NUMERIC", None, "PG_NUMERIC")
"""The type of a decimal that does not fit `NUMERIC`."""
_ADDED = (
    (SOURCE_ORDER, _STRING),
    (SOURCE_UUID, _STRING),
    (SOURCE_CHANGE_TYPE, _STRING),
    (SOURCE_READ_METHOD, _STRING),
    (SOURCE_TIMESTAMP, _TIMESTAMP),
    (SOURCE_SCHEMA_KEY, _STRING),
)
_TRANSACTION = (SOURCE_TRANSACTION, _STRING)
_ADDED_OF: dict[SourceKind, tuple[tuple[str, ColumnType], ...]] = {
    SourceKind.MYSQL: (_TRANSACTION,),
    SourceKind.ORACLE: (_TRANSACTION, (SOURCE_SCN, _INTEGER), (SOURCE_ROW_ID, _STRING)),
    SourceKind.POSTGRESQL: (_TRANSACTION,),
    SourceKind.SQL_SERVER: (_TRANSACTION,),
    SourceKind.SALESFORCE: (),
    SourceKind.SPANNER: (_TRANSACTION,),
}
"""Further added columns by source; the source of a table never changes."""
_FIRST_ADDED_ORDINAL = 1_000_000
_MILLIS = "TIMESTAMP of milliseconds"
_DECIMAL = re.compile(r"DECIMAL\(([0-9]{1,4}),([0-9]{1,3})\)")
"""No database has numbers with a larger scale."""
_DECIMAL_BYTES_MAX = 166
"""The bytes of 400 digits."""
_NUMERIC_DIGITS, _NUMERIC_SCALE = 29, 9
_NAME_PART = re.compile(r"[A-Za-z0-9_]+", re.ASCII)
_EXACT = Context(prec=400)
_DAY_NS = 86_400_000_000_000
_PLACE = re.compile(r"-([0-9a-f]{16})-([0-9a-f]{8})", re.ASCII)
_PLACE_CHARACTERS = 26
_FORMS_MAX = 256
_REMEMBERED = 4_096
"""Number of cached table names and seconds of timestamps; events of one file have few."""


@dataclass(frozen=True, slots=True)
class _Form:
    """The columns of a file's rows, and the converters of their values."""

    columns: tuple[RecordColumn, ...]
    convert: tuple[tuple[str, str, Callable[[Any], Any]], ...]
    """For each column of the source: its name, its published name, its value's converter."""
    keys: tuple[str, ...]
    """In the order of the columns."""


def table_name(event: Event) -> str:
    """Return the table of an event: schema and table, or MySQL's database and table.

    Characters that are not allowed in a topic's name become `_`, followed by a hash of the name.
    """
    metadata = event.metadata
    if isinstance(metadata, SalesforceMetadata):
        return _joined((metadata.object_name,))
    return _joined(metadata.path[-2:])


def place_of(earliest_us: int, turn: int) -> str:
    """Return a record's sequence: the first open time, and the file's turn."""
    return f"{max(earliest_us, 0):x}-{turn:x}"


def time_and_turn(place: str) -> tuple[int, int]:
    """Parse a record's sequence into the time and the turn that `place_of` wrote."""
    return sequence_pair(place)


def file_and_record(order: str) -> tuple[str, int]:
    """Parse a `SOURCE_ORDER` into the file's name in a position and the record's number."""
    match = _PLACE.fullmatch(order[-_PLACE_CHARACTERS:])
    if match is None:
        raise SchemaError(
            "the order of an event does not end with its file and record", order=order[:200]
        )
    return match[1], int(match[2], 16)


class EventRecords:
    """Makes the records of events; caches the columns of the files that were read last."""

    def __init__(self) -> None:
        self._forms: dict[object, _Form] = {}
        self._last: tuple[object, Sequence[str], _Form] | None = None
        """The columns of the newest event's file, its key, and their form."""

    def record_of(
        self,
        event: Event,
        fields: Sequence[PayloadField] | None,
        *,
        file: str,
        release_us: int,
        place: str,
    ) -> DataChangeRecord:
        """Return the record of an event; `fields` are its file schema's.

        `file` is the file's name in a position, `place` the result of `place_of`.  Raises
        InvalidEvent for a value that does not fit its column's type, and IncompleteRow for an
        UPDATE that lacks columns.
        """
        _require_whole_row(event)
        keys = event.metadata.key_columns
        form = self._form(event, fields, keys or (SOURCE_UUID,))
        order = f"{event.order_key.hex()}-{file}-{event.position.record:08x}"
        row: dict[str, Any] = {
            SOURCE_ORDER: order,
            SOURCE_UUID: event.uuid,
            SOURCE_CHANGE_TYPE: event.change_type.value,
            SOURCE_READ_METHOD: event.read_method.text,
        }
        name, payload = SOURCE_TIMESTAMP, event.payload
        try:
            row[name] = _instant(event.source_timestamp_us)
            for name, column, convert in form.convert:
                value = payload.get(name)
                row[column] = None if value is None else convert(value)
        except (SchemaError, ValueError, TypeError, ArithmeticError, KeyError) as error:
            raise InvalidEvent.at(
                event.position,
                f"the column {name} has a value that its type does not have",
                cause=str(error)[:200],
            ) from error
        row.update(_metadata(event))
        if fields is None:  # a null of JSON has no type, so its column is not shown
            for name in (name for name, value in payload.items() if value is None):
                if _column(name) in row:
                    raise _taken(event, name)
                row[_column(name)] = None
        keyed = {name: row.pop(name) for name in form.keys}
        # A deletion of a row without a key is a separate row, like each of its events.
        is_deletion = event.is_deleted and bool(keys)
        return DataChangeRecord(
            commit_timestamp_ns=release_us * NS_PER_US,
            record_sequence=place,
            server_transaction_id=order,
            is_last_record_in_transaction_in_partition=True,
            table_name=table_name(event),
            columns=form.columns,
            mods=(Mod(keyed, {}, row) if is_deletion else Mod(keyed, row, {}),),
            mod_type="DELETE" if is_deletion else "INSERT",
            value_capture_type="NEW_ROW",
            number_of_records_in_transaction=1,
            number_of_partitions_in_transaction=1,
            transaction_tag=printable(event.position.file),
            is_system_transaction=False,
        )

    def _form(
        self, event: Event, fields: Sequence[PayloadField] | None, keys: Sequence[str]
    ) -> _Form:
        last = self._last
        if last is not None and fields is not None and last[0] is fields and last[1] == keys:
            return last[2]
        shown = _inferred(event) if fields is None else _declared(fields)
        identity = (tuple(shown), tuple(keys))
        form = self._forms.get(identity)
        if form is None:
            if len(self._forms) > _FORMS_MAX:
                self._forms.clear()
            form = self._forms[identity] = _form_of(event, shown, keys)
        self._last = (fields, keys, form)
        return form


def _require_whole_row(event: Event) -> None:
    """Raise IncompleteRow for an UPDATE of Spanner that has only the changed columns.

    If events are published out of order, the columns of two of them cannot be combined.
    """
    metadata = event.metadata
    if event.is_deleted or not isinstance(metadata, SpannerMetadata) or metadata.is_whole_row:
        return
    raise IncompleteRow.at(
        event.position,
        "the payload is not the whole row",
        value_capture_type=metadata.value_capture_type,
        captured=list(metadata.captured_columns),
    )


def _form_of(event: Event, shown: Sequence[tuple[str, str]], keys: Sequence[str]) -> _Form:
    added = (*_ADDED, *_ADDED_OF[event.read_method.source])
    names = {name for name, _ in added}
    columns, convert, keyed = [], [], []
    for ordinal, (name, unified) in enumerate(shown, 1):
        column, (kind, converter) = _column(name), _type_of(unified)
        if column in names:
            raise _taken(event, name)
        names.add(column)
        columns.append(RecordColumn(column, kind, name in keys, ordinal))
        convert.append((name, column, converter))
        if name in keys:
            keyed.append(column)
    columns += [
        RecordColumn(name, kind, name in keys, _FIRST_ADDED_ORDINAL + number)
        for number, (name, kind) in enumerate(added)
    ]
    keyed += [name for name, _ in added if name in keys]
    if len(keyed) < len(keys):
        missing = sorted({*keys} - {name for name, _ in shown})
        raise InvalidEvent.at(
            event.position,
            f"{', '.join(missing)} of the key is null, and JSON does not say of which type",
        )
    return _Form(tuple(columns), tuple(convert), tuple(keyed))


def _taken(event: Event, name: str) -> InvalidEvent:
    """Return the error for a column whose published name another column has."""
    column = _column(name)
    message = f"the row has a column {name}, which Tidegate adds to every row"
    for other in event.payload:
        if other != column and _column(other) == column:
            message = f"the row has columns {column} and {other}, which is published under it"
    return InvalidEvent.at(event.position, message)


def _metadata(event: Event) -> dict[str, Any]:
    """Return the columns of the metadata that sources differ in."""
    metadata = event.metadata
    columns: dict[str, Any] = {SOURCE_SCHEMA_KEY: event.schema_key or None}
    match metadata:
        case OracleMetadata():
            columns |= {
                SOURCE_TRANSACTION: metadata.tx_id,
                SOURCE_SCN: metadata.scn,
                SOURCE_ROW_ID: metadata.row_id,
            }
        case MySqlMetadata():
            columns[SOURCE_TRANSACTION] = metadata.gtid
        case SalesforceMetadata():
            pass
        case _:
            columns[SOURCE_TRANSACTION] = metadata.tx_id
    return columns


@lru_cache(_REMEMBERED)
def _column(name: str) -> str:
    """Return the published name of a column: Avro allows fewer characters than sources.

    Others become `_`, followed by a hash of the name, as in names of tables.
    """
    if AVRO_NAME.fullmatch(name):
        return name
    plain = _name_part(name) if not _NAME_PART.fullmatch(name) else name
    return plain if AVRO_NAME.fullmatch(plain) else f"_{plain}"


def _declared(fields: Sequence[PayloadField]) -> list[tuple[str, str]]:
    return [(field.name, _MILLIS if field.is_in_millis else field.type) for field in fields]


def _inferred(event: Event) -> list[tuple[str, str]]:
    """Return the columns of a row of JSON; a null one has no type, so it is left out."""
    columns = []
    for name, value in event.payload.items():
        match value:
            case None:
                continue
            case bool():
                columns.append((name, "BOOLEAN"))
            case int() | Decimal():
                columns.append((name, "NUMBER"))
            case str():
                columns.append((name, "STRING"))
            case _:
                columns.append((name, "JSON"))
    return columns


def _type_of(unified: str) -> tuple[ColumnType, Callable[[Any], Any]]:
    """Return the column type of a unified type, and the converter of its values."""
    if match := _DECIMAL.fullmatch(unified):
        precision, scale = int(match[1]), int(match[2])
        fits = scale <= _NUMERIC_SCALE and precision - scale <= _NUMERIC_DIGITS
        return ColumnType("NUMERIC") if fits else TEXT_DECIMAL, lambda value: _decimal(value, scale)
    return _TYPES.get(unified, (_JSON, _json_text))


def _decimal(value: Any, scale: int) -> str:
    if len(value) > _DECIMAL_BYTES_MAX:
        raise ValueError(f"a decimal has {len(value)} bytes")
    unscaled = int.from_bytes(value, "big", signed=True)
    return f"{Decimal(unscaled).scaleb(-scale, context=_EXACT):f}"


def _number(value: Any) -> str:
    if isinstance(value, str):
        return value
    number = Decimal(value)
    # Few characters may mean very many digits, such as 1e999999999.
    if number.is_finite() and abs(number.adjusted()) + len(number.as_tuple().digits) > DIGITS_MAX:
        raise ValueError(f"a number has more than {DIGITS_MAX} digits")
    return f"{number:f}"


def _instant(value: int) -> str:
    seconds, rest = divmod(value, US_PER_SECOND)
    text = _second(seconds)
    return f"{text}.{rest:06d}Z" if rest else f"{text}Z"


@lru_cache(_REMEMBERED)
def _second(seconds: int) -> str:
    return format_rfc3339(seconds * US_PER_SECOND * NS_PER_US)[:-1]


def _day(value: int) -> str:
    return format_rfc3339(value * _DAY_NS)[:10]


def _octets(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _same(value: Any) -> Any:
    return value


def _varchar(value: Any) -> Any:
    """Return the text of the record that old files have for a text and its length."""
    return value["value"] if isinstance(value, dict) else value


def _json_text(value: Any) -> str:
    """Return a value as JSON, with all digits of its numbers; a text is JSON already."""
    return value if isinstance(value, str) else _dumped(value)


def _dumped(value: Any, depth: int = 0) -> str:
    if depth > DEPTH_MAX:
        raise ValueError(f"a value is nested deeper than {DEPTH_MAX} levels")
    match value:
        case dict():
            inner = (f"{json.dumps(key)}:{_dumped(part, depth + 1)}" for key, part in value.items())
            return f"{{{','.join(inner)}}}"
        case list():
            return f"[{','.join([_dumped(part, depth + 1) for part in value])}]"
        case Decimal():
            return str(value)
        case bytes():
            return json.dumps(_octets(value))
        case float():  # JSON has no number for NaN and the infinities
            return double_text(value)
        case _:
            return json.dumps(value)


_TYPES: dict[str, tuple[ColumnType, Callable[[Any], Any]]] = {
    "BOOLEAN": (ColumnType("BOOL"), _same),
    "INTEGER": (_INTEGER, _same),
    "LONG": (_INTEGER, _same),
    "TIME": (_INTEGER, _same),
    "TIME INTERVAL": (_INTEGER, _same),
    "FLOAT": (ColumnType("FLOAT32"), _same),
    "DOUBLE": (ColumnType("FLOAT64"), _same),
    "BYTES": (ColumnType("BYTES"), _octets),
    "STRING": (_STRING, _same),
    "UUID": (_STRING, _same),
    "VARCHAR": (_STRING, _varchar),
    "TIMESTAMP": (_TIMESTAMP, _instant),
    _MILLIS: (_TIMESTAMP, lambda value: _instant(value * US_PER_MS)),
    "DATE": (ColumnType("DATE"), _day),
    "NUMBER": (TEXT_DECIMAL, _number),
}
"""Column type and converter by unified type; values of other types become JSON."""


@lru_cache(_REMEMBERED)
def _joined(path: tuple[str, ...]) -> str:
    return ".".join(map(_name_part, path))


def _name_part(name: str) -> str:
    if _NAME_PART.fullmatch(name):
        return name
    plain = re.sub(r"[^A-Za-z0-9_]", "_", name, flags=re.ASCII)
    return f"{plain}_{xxhash_64(name.encode(errors='surrogateescape')) & 0xFFFF_FFFF:08x}"

"""Columns of primary keys: equal values have equal bytes, whatever Spanner or a file writes.

The bytes of a key decide its topic partition, and readers distinguish rows by them.  Most types
already have one Avro value for equal values (`translation.values`); this module handles the others.
Values of rows do not change: -0.0 keeps its sign there.

Earlier versions kept the value that was read: -0.0 and 0.0 of one row were two keys.  The
dead-letter topic has such keys of parked changes, and stream partitions have their numbers among
their parked keys; `FormerKeys` compares both.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from itertools import product
from typing import Any

import fastavro

from tidegate.producer.translation.avro_fields import (
    PRESENT,
    FieldWriter,
    field_writer,
    written_by,
)
from tidegate.producer.translation.values import Converter, converter
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import KeyFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import ColumnType, TableSchema
from tidegate.schemas.wire_format import HEADER_BYTES, unframe

_FLOAT32 = struct.Struct(">f")
_PLAIN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?", re.ASCII)
_NAN = "nan"
_AVRO_ZEROS = {
    code: tuple(PRESENT + struct.pack(form, zero) for zero in (0.0, -0.0))
    for code, form in (("FLOAT64", "<d"), ("FLOAT32", "<f"))
}
"""Zero and negative zero as the field of a key."""


def key_converter(
    column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS
) -> Converter:
    """Return the converter of a key column: one plain Avro value for all equal values.

    Raises SchemaError for a type that the contract does not have.
    """
    convert = converter(column_type, timestamps)
    if column_type.code == "FLOAT64":
        return lambda value: _number(convert(value))
    if column_type.code == "FLOAT32":
        return lambda value: _number(_FLOAT32.unpack(_FLOAT32.pack(convert(value)))[0])
    if column_type.code == "NUMERIC" and column_type.annotation == "PG_NUMERIC":
        return lambda value: _decimal(convert(value))
    return convert


@lru_cache(maxsize=1024)
def key_field_writer(
    column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS
) -> FieldWriter:
    """Return the writer of a key column's Avro bytes; raises SchemaError for a type without one."""
    convert = key_converter(column_type, timestamps)
    if convert is converter(column_type, timestamps):
        return field_writer(column_type, timestamps)
    return written_by(convert, column_type, timestamps)


def _number(number: float) -> float:
    """Return one value for both zeros, and one for all NaNs."""
    if math.isnan(number):
        return math.nan
    return number or 0.0


def _decimal(text: str) -> str:
    """Return PostgreSQL's numeric without the scale that its text keeps: 1.50 is 1.5."""
    match = _PLAIN.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return "NaN" if text.lower() == _NAN else text
    integer, fraction = match[2].lstrip("0") or "0", (match[3] or "").rstrip("0")
    digits = f"{integer}.{fraction}" if fraction else integer
    return f"-{digits}" if match[1] == "-" and digits != "0" else digits


class FormerKeys:
    """Compares the keys of one table across versions; thread-safe."""

    def __init__(
        self,
        table: TableSchema,
        key: RegisteredSchema,
        timestamps: TimestampForm,
        key_format: KeyFormat,
        write_json: Callable[[Mapping[str, Any]], bytes],
    ) -> None:
        """`write_json` writes a key of the table in JSON."""
        self._columns = table.key_columns
        self._key = key
        self._timestamps = timestamps
        self._is_json = key_format is KeyFormat.JSON
        self._write_json = write_json
        self.may_differ = any(column.type.code in _AVRO_ZEROS for column in self._columns)
        """Whether an existing row of Spanner's may have had another key."""

    def todays(self, key: bytes) -> bytes:
        """Return the key of its row today; bytes that are not a key of the table stay."""
        try:
            if self._is_json:
                return self._write_json(json.loads(key))
            return b"".join(todays for _, _, todays in self._fields(key))
        except (SchemaError, ValueError, TypeError, EOFError, IndexError, KeyError, struct.error):
            return key

    def former(self, key: bytes) -> tuple[bytes, ...]:
        """Return the other keys that earlier versions may have written for the row of a key."""
        if self._is_json:
            forms = _json_forms(key, [c.name for c in self._columns if c.type.code in _AVRO_ZEROS])
        else:
            fields = [
                _AVRO_ZEROS[code] if written == _AVRO_ZEROS.get(code, (b"",))[0] else (written,)
                for code, written, _ in self._fields(key)
            ]
            forms = [b"".join(parts) for parts in product(*fields)]
        return tuple(form for form in forms if form != key)

    def _fields(self, key: bytes) -> Iterator[tuple[str, bytes, bytes]]:
        """Yield (type code, bytes, today's bytes) of the frame, without a code, and the columns.

        Raises an error for bytes that are not a key of the table.
        """
        schema_id, body = unframe(key)
        if schema_id != self._key.schema_id:
            raise SchemaError("a key under another schema", schema_id=schema_id)
        yield "", key[:HEADER_BYTES], key[:HEADER_BYTES]
        buffer = io.BytesIO(body)
        for column, field in zip(self._columns, self._key.schema["fields"], strict=True):
            start = buffer.tell()
            value = fastavro.schemaless_reader(buffer, field["type"], None)
            written = todays = body[start : buffer.tell()]
            kind, timestamps = column.type, self._timestamps
            if key_converter(kind, timestamps) is not converter(kind, timestamps):
                todays = key_field_writer(kind, timestamps)(value)
            yield kind.code, written, todays
        if buffer.tell() != len(body):
            raise SchemaError("bytes after a key", count=len(body) - buffer.tell())


def _json_forms(key: bytes, columns: list[str]) -> list[bytes]:
    """Return a key in JSON with each sign of the zeros in these columns.

    Every quotation mark in a text is escaped, so a quoted column name is a column.
    """
    forms = [key]
    for name in columns:
        quoted = json.dumps(name).encode()
        for end in (b",", b"}"):
            zero, negative = quoted + b":0.0" + end, quoted + b":-0.0" + end
            forms += [form.replace(zero, negative) for form in forms if zero in form]
    return forms

"""Column values, as Spanner's change records hold them, to the Avro bytes of `["null", T]`.

`translation.values` interprets values; this module lays out their bytes.  The most frequent forms
of values are read and written in one step; every other form, and every value that does not fit,
goes through the converter.  A value that cannot be represented is a SchemaError.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeAlias

from tidegate.producer.translation.values import (
    NUMERIC_SCALE,
    NUMERIC_WHOLE_DIGITS,
    Converter,
    converter,
    unscaled_bytes,
)
from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

FieldWriter: TypeAlias = Callable[[Any], bytes]
"""From a JSON value, null included, to Avro bytes; raises SchemaError if it does not fit."""

NULL = b"\x00"
PRESENT = b"\x02"
"""The branches of a union with null."""

END_OF_ARRAY = b"\x00"
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_INT64_DIGITS = 18
# Two bytes are looked up at a time: 14 bits, low ones first, each byte with its continuation bit.
_PAIR_BITS = 14
_PAIRS = 1 << _PAIR_BITS
_FOLLOWED = [bytes((low & 127 | 128, low >> 7 | 128)) for low in range(_PAIRS)]
_LAST_BYTES = [bytes((n,) if n < 128 else (n & 127 | 128, n >> 7)) for n in range(_PAIRS)]
# Lengths and most numbers are small: the bytes of numbers from 0 on, also with the branch before.
_SMALL = _LAST_BYTES[::2]
_PRESENT_SMALL = [PRESENT + number for number in _SMALL]
_SMALL_END = len(_SMALL)
_FLOAT32, _FLOAT64 = struct.Struct("<f"), struct.Struct("<d")


@lru_cache(maxsize=1024)
def field_writer(
    column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS
) -> FieldWriter:
    """Return the writer of a nullable column; raises SchemaError for a type without one."""
    if column_type.code == "ARRAY" and column_type.element is not None:
        return array_field(column_type, field_writer(column_type.element, timestamps))
    common = _COMMON.get(column_type.code)
    general = _general(column_type, timestamps)
    if common is None or avro_type(column_type) != avro_type(type(column_type)(column_type.code)):
        return general
    return common(general)


def usual_form(column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS) -> str:
    """Return the usual form of a column's values, by the accelerator's name.

    Empty for a type without one.
    """
    form = _USUAL_FORMS.get(column_type.code, "")
    plain = type(column_type)(column_type.code)
    if not form or avro_type(column_type, timestamps) != avro_type(plain):
        return ""
    return form


def _general(column_type: ColumnType, timestamps: TimestampForm) -> FieldWriter:
    """Return a writer for every form of a value: it converts, then writes."""
    return written_by(converter(column_type, timestamps), column_type, timestamps)


def written_by(
    convert: Converter, column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS
) -> FieldWriter:
    """Return the writer of a nullable column, not an array, whose values `convert` makes plain."""
    avro = avro_type(column_type, timestamps)
    write = _WRITERS[avro if isinstance(avro, str) else avro["type"]]

    def field(value: Any) -> bytes:
        return NULL if value is None else PRESENT + write(convert(value))

    return field


def array_field(column_type: ColumnType, element: FieldWriter) -> FieldWriter:
    """Return the writer of an array or null: one block, then the empty block that ends it."""
    refuse = converter(column_type)

    def field(value: Any) -> bytes:
        if value is None:
            return NULL
        if not isinstance(value, list):
            refuse(value)
        if not value:
            return PRESENT + END_OF_ARRAY
        items = b"".join([element(item) for item in value])
        return b"".join((PRESENT, write_long(len(value)), items, END_OF_ARRAY))

    return field


# ---------------------------------------------------------------- Avro's primitive types


def write_long(number: int) -> bytes:
    """Write an `int` or `long`; raises SchemaError beyond 64 bits."""
    if 0 <= number < _SMALL_END:
        return _SMALL[number]
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise SchemaError("an integer beyond 64 bits", value=hex(number)[:80])
    rest = (number << 1) ^ (number >> 63)
    encoded = b""
    while rest >= _PAIRS:
        encoded += _FOLLOWED[rest & _PAIRS - 1]
        rest >>= _PAIR_BITS
    return encoded + _LAST_BYTES[rest]


def write_text(text: str) -> bytes:
    """Write a `string`; raises SchemaError for text that is not Unicode."""
    try:
        return _write_bytes(text.encode())
    except UnicodeEncodeError as error:
        raise SchemaError("a text that is not Unicode", start=repr(text[:80])) from error


def write_boolean(flag: bool) -> bytes:  # noqa: FBT001 - it is the value that is written
    """Write a `boolean`."""
    return b"\x01" if flag else b"\x00"


def _write_bytes(data: bytes) -> bytes:
    return write_long(len(data)) + data


_WRITERS: dict[str, Callable[[Any], bytes]] = {
    "long": write_long,
    "int": write_long,
    "string": write_text,
    "bytes": _write_bytes,
    "boolean": write_boolean,
    "float": _FLOAT32.pack,
    "double": _FLOAT64.pack,
}

# ---------------------------------------------------------------- the common forms


def _integer(general: FieldWriter) -> FieldWriter:
    def field(value: Any) -> bytes:
        if value.__class__ is str and len(value) <= _INT64_DIGITS and _is_integer(value):
            number = int(value)
            if 0 <= number < _SMALL_END:
                return _PRESENT_SMALL[number]
            return PRESENT + write_long(number)
        return general(value)

    return field


def _text(general: FieldWriter) -> FieldWriter:
    def field(value: Any) -> bytes:
        if value.__class__ is str and value.isascii():
            size = len(value)
            head = _PRESENT_SMALL[size] if size < _SMALL_END else PRESENT + write_long(size)
            return head + value.encode()
        return general(value)

    return field


def _numeric(general: FieldWriter) -> FieldWriter:
    def field(value: Any) -> bytes:
        if value.__class__ is str:
            integer, _, fraction = value.partition(".")
            places = len(fraction)
            if (
                len(integer) <= NUMERIC_WHOLE_DIGITS
                and places <= NUMERIC_SCALE
                and fraction[:1] != "-"
                and _is_integer(digits := integer + fraction)
            ):
                data = unscaled_bytes(int(digits) * _POWERS[places])
                return _PRESENT_SMALL[len(data)] + data
        return general(value)

    return field


def _is_integer(text: str) -> bool:
    """Whether a text is ASCII digits, optionally after a minus sign."""
    return text.isascii() and (text.isdigit() or (text[:1] == "-" and text[1:].isdigit()))


_POWERS = [10 ** (NUMERIC_SCALE - digits) for digits in range(NUMERIC_SCALE + 1)]

_USUAL_FORMS = {
    "INT64": "INT64",
    "ENUM": "INT64",
    "STRING": "STRING",
    "JSON": "STRING",
    "INTERVAL": "STRING",
    "NUMERIC": "NUMERIC",
    "DATE": "DATE",
    "TIMESTAMP": "TIMESTAMP",
    "BOOL": "BOOL",
}

_COMMON: dict[str, Callable[[FieldWriter], FieldWriter]] = {
    "INT64": _integer,
    "ENUM": _integer,
    "STRING": _text,
    "JSON": _text,
    "INTERVAL": _text,
    "NUMERIC": _numeric,
}

"""Columns of primary keys: equal values have equal bytes, whatever Spanner or a file writes.

The bytes of a key decide its topic partition, and readers tell rows apart by them.  Most types have
one Avro value for equal values already (`translation.values`); here are the others.  Values of rows
are not touched: -0.0 keeps its sign there.
"""

from __future__ import annotations

import math
import re
import struct
from functools import lru_cache

from tidegate.producer.translation.avro_fields import FieldWriter, field_writer, written_by
from tidegate.producer.translation.values import Converter, converter
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

_FLOAT32 = struct.Struct(">f")
_PLAIN = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?", re.ASCII)
_NAN = "nan"


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
    """Return one zero for both, and one NaN for all of them."""
    if math.isnan(number):
        return math.nan
    return number or 0.0


def _decimal(text: str) -> str:
    """Return PostgreSQL's numeric without the scale that its text keeps: 1.50 is 1.5."""
    match = _PLAIN.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return "NaN" if text.lower() == _NAN else text
    whole, fraction = match[2].lstrip("0") or "0", (match[3] or "").rstrip("0")
    digits = f"{whole}.{fraction}" if fraction else whole
    return f"-{digits}" if match[1] == "-" and digits != "0" else digits

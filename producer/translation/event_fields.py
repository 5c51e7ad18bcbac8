"""Column values in events of other products: Debezium's in Avro, both products' in JSON.

Values are rejected as in Tidegate's envelope (`translation.values`), with one exception: a
TIMESTAMP that is carried as text may have nanoseconds.  Datastream's values in Avro are written as
in that envelope.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, TypeAlias

from tidegate.producer.translation.avro_fields import (
    NULL,
    PRESENT,
    FieldWriter,
    array_field,
    field_writer,
    usual_form,
    write_text,
)
from tidegate.producer.translation.keys import key_converter
from tidegate.producer.translation.values import NUMERIC_SCALE, converter
from tidegate.schemas.debezium_schema import is_text
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.json_values import date_text, decimal_text, double_text, float_text, quoted
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

JsonField: TypeAlias = Callable[[Any], str]
"""From a JSON value, null included, to its text in an event; raises SchemaError if unfit."""

JSON_FORM = "JSON"
"""The accelerator's name for values in JSON that have no usual form."""

_NULL_TEXT = "null"
_SAME_IN_BOTH = frozenset({"INT64", "STRING", "BOOL"})
"""Types whose values are the same text in both products' events, and in keys."""
_FLOAT_TEXTS = {"FLOAT32": float_text, "FLOAT64": double_text}
_EXACT = Context(prec=200)
"""Python rounds to 28 digits by default, and a NUMERIC has up to 38."""


def debezium_field(column_type: ColumnType) -> FieldWriter:
    """Return the writer of a nullable column of Debezium's rows in Avro.

    Raises SchemaError for a type without one.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return array_field(column_type, debezium_field(column_type.element))
    if not is_text(column_type):
        return field_writer(column_type)
    text = _plain_text(column_type)

    def field(value: Any) -> bytes:
        return NULL if value is None else PRESENT + write_text(text(value))

    return field


def json_field(column_type: ColumnType, envelope: Envelope) -> JsonField:
    """Return the writer of a column's values as JSON, in the events of `envelope`.

    Raises SchemaError for a type without one.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return _json_array(column_type, json_field(column_type.element, envelope))
    write = _json_value(column_type, envelope)

    def field(value: Any) -> str:
        return _NULL_TEXT if value is None else write(value)

    return field


def json_form(column_type: ColumnType, envelope: Envelope) -> str:
    """Return the usual form of a column's values in JSON, by the accelerator's name."""
    if envelope is not Envelope.DEBEZIUM and column_type.code not in _SAME_IN_BOTH:
        return JSON_FORM
    return f"{JSON_FORM} {usual_form(column_type)}".rstrip()


def json_key_form(column_type: ColumnType) -> str:
    """Return the usual form of a key column's values in JSON, by the accelerator's name."""
    return json_form(column_type, Envelope.DATASTREAM)


def as_bytes(field: JsonField) -> FieldWriter:
    """Return the writer of the text in UTF-8; raises SchemaError for one that is not Unicode."""

    def write(value: Any) -> bytes:
        try:
            return field(value).encode()
        except UnicodeEncodeError as error:
            raise SchemaError("a text that is not Unicode", cause=str(error)[:200]) from error

    return write


def json_key_field(column_type: ColumnType) -> JsonField:
    """Return the writer of a key column as JSON, in the form of Debezium's rows.

    Equal values have one text, however the service writes them.  Raises SchemaError for a type
    without one.
    """
    convert, code = key_converter(column_type, TimestampForm.STRING), column_type.code
    if code in _FLOAT_TEXTS:
        text = _FLOAT_TEXTS[code]
        return lambda value: _NULL_TEXT if value is None else text(convert(value))
    if not is_text(column_type):
        return json_field(column_type, Envelope.DEBEZIUM)
    is_decimal = code == "NUMERIC" and column_type.annotation != "PG_NUMERIC"

    def field(value: Any) -> str:
        if value is None:
            return _NULL_TEXT
        plain = convert(value)
        if code == "DATE":
            return date_text(plain)
        return quoted(_decimal(plain) if is_decimal else plain)

    return field


def _json_value(column_type: ColumnType, envelope: Envelope) -> JsonField:
    convert = converter(column_type, TimestampForm.STRING)
    code, is_debezium = column_type.code, envelope is Envelope.DEBEZIUM
    if code in {"BYTES", "PROTO"}:
        return lambda value: f'"{base64.b64encode(convert(value)).decode()}"'
    if code in {"INT64", "ENUM"}:
        return lambda value: str(convert(value))
    if code in {"FLOAT32", "FLOAT64"}:
        return lambda value: double_text(convert(value))
    if code == "BOOL":
        return lambda value: "true" if convert(value) else "false"
    if is_debezium and is_text(column_type):
        text = _plain_text(column_type)
        return lambda value: quoted(text(value))
    if code == "NUMERIC" and column_type.annotation != "PG_NUMERIC":
        return lambda value: _decimal(convert(value))
    if code == "DATE":
        return lambda value: date_text(convert(value))
    if code == "JSON":
        return lambda value: _nested(convert(value))
    return lambda value: quoted(convert(value))


def _plain_text(column_type: ColumnType) -> Callable[[Any], str]:
    """Return a function from a valid value to its text in Spanner's record."""
    convert = converter(column_type, TimestampForm.STRING)

    def text(value: Any) -> str:
        convert(value)
        return value if isinstance(value, str) else str(value)

    return text


def _json_array(column_type: ColumnType, element: JsonField) -> JsonField:
    refuse = converter(column_type)

    def field(value: Any) -> str:
        if value is None:
            return _NULL_TEXT
        if not isinstance(value, list):
            refuse(value)
        return f"[{','.join([element(item) for item in value])}]"

    return field


# ---------------------------------------------------------------- JSON's values


def _decimal(unscaled: bytes) -> str:
    """NUMERIC: a number with all its digits, without exponent or trailing zeros."""
    number = Decimal(int.from_bytes(unscaled, "big", signed=True)).scaleb(
        -NUMERIC_SCALE, context=_EXACT
    )
    return decimal_text(number)


def _nested(text: str) -> str:
    """JSON: the document as it was written."""
    try:
        # Numbers are only checked: a document may have more digits than Python converts.
        json.loads(text, parse_int=len, parse_float=len, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaError("a JSON column that holds no JSON", start=text[:80]) from error
    return text


def _refuse_constant(name: str) -> None:
    raise ValueError(name)

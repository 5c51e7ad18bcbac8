"""The type system: column types, Python values for them, and their plain (JSON-like) form.

The plain form is at once the wire form of the API (INT64 as a decimal string, BYTES as base64,
numbers for FLOAT64) and the form inside change records' keys, new_values and old_values.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
from dataclasses import dataclass
from decimal import Context, Decimal, InvalidOperation
from typing import Literal, TypeAlias

from tidegate.spanner_simulator.core.timestamps import format_ns, parse_ns
from tidegate.spanner_simulator.errors import Code, SpannerError

__all__ = [
    "Dialect",
    "Plain",
    "Row",
    "TypeCode",
    "Value",
    "ValueType",
    "decode",
    "encode",
    "format_numeric",
]

Dialect = Literal["GOOGLE_STANDARD_SQL", "POSTGRESQL"]
TypeCode = Literal[
    "BOOL",
    "INT64",
    "FLOAT64",
    "NUMERIC",
    "STRING",
    "BYTES",
    "DATE",
    "TIMESTAMP",
    "JSON",
    "ARRAY",
]
Plain: TypeAlias = "bool | float | str | list[Plain] | dict[str, Plain] | None"
# TIMESTAMP is int (nanoseconds), DATE is dt.date, JSON its normalised text, ARRAY a tuple.
Value: TypeAlias = "bool | float | str | bytes | Decimal | dt.date | tuple[Value, ...] | None"
Row: TypeAlias = "dict[str, Value]"

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_NUMERIC = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")
_NUMERIC_STEP = Decimal("1e-9")
# The default context keeps 28 digits, NUMERIC has 38.
_WIDE = Context(prec=60)
_SPECIAL_FLOATS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True)
class ValueType:
    """A column's or result's type; `element` only for ARRAY, `length` None for MAX."""

    code: TypeCode
    element: ValueType | None = None
    length: int | None = None

    def ddl(self) -> str:
        """The type as DDL and INFORMATION_SCHEMA print it."""
        if self.element is not None:
            return f"ARRAY<{self.element.ddl()}>"
        if self.code in ("STRING", "BYTES"):
            return f"{self.code}({'MAX' if self.length is None else self.length})"
        return self.code

    def json_text(self) -> str:
        """The `type` member of a change record's column types; keys are alphabetical."""
        return json.dumps(self.json_object(), separators=(",", ":"), sort_keys=True)

    def json_object(self) -> dict[str, object]:
        """The same as an object."""
        if self.element is not None:
            return {"array_element_type": self.element.json_object(), "code": "ARRAY"}
        return {"code": self.code}


def encode(value_type: ValueType, value: Value) -> Plain:
    """The plain form of a value that `decode` made for this type."""
    if value is None:
        return None
    match value_type.code:
        case "STRING" | "BOOL" | "JSON":
            return value  # type: ignore[return-value]  # str or bool by construction
        case "INT64":
            return str(value)
        case "FLOAT64":
            return _encode_float(value)
        case "TIMESTAMP":
            return format_ns(value)  # type: ignore[arg-type]  # int by construction
        case "NUMERIC":
            return format_numeric(value)  # type: ignore[arg-type]  # Decimal by construction
        case "BYTES":
            return base64.b64encode(value).decode()  # type: ignore[arg-type]  # bytes
        case "DATE":
            return str(value)
        case "ARRAY":
            element = value_type.element or value_type
            return [encode(element, item) for item in value]  # type: ignore[union-attr]  # tuple


def _encode_float(value: Value) -> Plain:
    number = float(value)  # type: ignore[arg-type]  # float by construction
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    return number


def format_numeric(value: Decimal) -> str:
    """Shortest plain notation: 1.50 is 1.5, never an exponent."""
    text = f"{value:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def decode(value_type: ValueType, plain: Plain, *, where: str) -> Value:
    """The value of a plain form; `where` names the column or parameter in an error.

    Raises `SpannerError` FAILED_PRECONDITION, the code of the real service for a wrong type.
    """
    if plain is None:
        return None
    match value_type.code, plain:
        case "STRING", str():
            _check_length(value_type, len(plain), where)
            return plain
        case "INT64", str():
            return _decode_int(plain, where)
        case "BOOL", bool():
            return plain
        case "FLOAT64", float() | int():
            return float(plain)
        case "FLOAT64", str() if plain in _SPECIAL_FLOATS:
            return _SPECIAL_FLOATS[plain]
        case "NUMERIC", str():
            return _decode_numeric(plain, where)
        case "BYTES", str():
            return _decode_bytes(value_type, plain, where)
        case "DATE", str():
            try:
                return dt.date.fromisoformat(plain)
            except ValueError as error:
                raise _wrong(value_type, plain, where) from error
        case "TIMESTAMP", str():
            return parse_ns(plain)
        case "JSON", str():
            return _decode_json(plain, where)
        case "ARRAY", list() if value_type.element is not None:
            element = value_type.element
            return tuple(decode(element, item, where=where) for item in plain)
        case _:
            raise _wrong(value_type, plain, where)


def _wrong(value_type: ValueType, plain: Plain, where: str) -> SpannerError:
    return SpannerError(
        Code.FAILED_PRECONDITION,
        f"Invalid value for {where}: Expected {value_type.ddl()}, got {json.dumps(plain)[:100]}.",
    )


def _decode_int(plain: str, where: str) -> int:
    try:
        number = int(plain)
    except ValueError as error:
        raise _wrong(ValueType("INT64"), plain, where) from error
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise _wrong(ValueType("INT64"), plain, where)
    return number


def _decode_numeric(plain: str, where: str) -> Decimal:
    numeric = ValueType("NUMERIC")
    if _NUMERIC.fullmatch(plain) is None:
        raise _wrong(numeric, plain, where)
    try:
        number = Decimal(plain)
        exact = number.adjusted() <= 28 and _WIDE.quantize(number, _NUMERIC_STEP) == number
    except InvalidOperation as error:
        raise _wrong(numeric, plain, where) from error
    if not exact:
        raise _wrong(numeric, plain, where)
    return number


def _decode_bytes(value_type: ValueType, plain: str, where: str) -> bytes:
    try:
        raw = base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _wrong(value_type, plain, where) from error
    _check_length(value_type, len(raw), where)
    return raw


def _decode_json(plain: str, where: str) -> str:
    try:
        document = json.loads(plain)
    except ValueError as error:
        raise _wrong(ValueType("JSON"), plain, where) from error
    return json.dumps(document, separators=(",", ":"), sort_keys=True, ensure_ascii=False)


def _check_length(value_type: ValueType, size: int, where: str) -> None:
    if value_type.length is not None and size > value_type.length:
        raise SpannerError(
            Code.FAILED_PRECONDITION,
            f"New value exceeds the maximum size limit for this column: {where}, "
            f"size: {size}, limit: {value_type.length}.",
        )

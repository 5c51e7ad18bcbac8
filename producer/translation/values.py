"""Converts values of Spanner's change records to the plain values that Avro writes.

One converter per column type (types as in `docs/protocol.md`, 3.2): dates become days, timestamps
microseconds or text, decimals two's complement bytes, so that an encoder need not interpret them.
Numbers and strings are both accepted where either may occur.  A value that the contract cannot
represent exactly is a SchemaError; nothing is rounded.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from collections.abc import Callable
from datetime import date
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, TypeAlias

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, canonical_rfc3339, parse_rfc3339_ns
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.tables import ColumnType

Converter: TypeAlias = Callable[[Any], Any]
"""From a JSON value, not null, to a plain Avro value; raises SchemaError if it does not fit."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
# Bounded digits: every match can be converted exactly and fast.
_DECIMAL = re.compile(
    r"[+-]?(?:[0-9]{1,64}(?:\.[0-9]{0,64})?|\.[0-9]{1,64})(?:[eE][+-]?[0-9]{1,3})?"
)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
NUMERIC_SCALE = 9
"""Fractional digits of NUMERIC."""
_NUMERIC_LIMIT = 10**38
NUMERIC_WHOLE_DIGITS = 29
"""Digits before the decimal point."""
# A double of at most 15 significant digits equals the decimal it was written as; a longer one may
# not.
_EXACT_DOUBLE_DIGITS = 15
_EXACT = Context(prec=200)
_UNIX_EPOCH_DAY = date(1970, 1, 1).toordinal()
_FLOAT32 = struct.Struct(">f")
_SPECIAL_FLOATS = {
    "nan": math.nan,
    "infinity": math.inf,
    "inf": math.inf,
    "-infinity": -math.inf,
    "-inf": -math.inf,
}


@lru_cache(maxsize=1024)
def converter(
    column_type: ColumnType, timestamps: TimestampForm = TimestampForm.MICROS
) -> Converter:
    """Return the converter of a type's JSON values to plain Avro values.

    Raises SchemaError for a type that the contract does not have.
    """
    if column_type.code == "ARRAY" and column_type.element is not None:
        return _array(converter(column_type.element, timestamps))
    if column_type.code == "TIMESTAMP" and timestamps is TimestampForm.STRING:
        return _instant_text
    if column_type.code == "NUMERIC" and column_type.annotation == "PG_NUMERIC":
        return _pg_numeric
    try:
        return _CONVERTERS[column_type.code]
    except KeyError as error:
        raise SchemaError(
            "a column type that Tidegate cannot carry", code=column_type.code
        ) from error


def _unfit(kind: str, value: object, *, why: str = "") -> SchemaError:
    """Return the error for a value; the value is shortened, because it may be a whole document."""
    reason = f": {why}" if why else ""
    return SchemaError(f"a value does not fit its type{reason}", type=kind, value=_shown(value))


def _shown(value: object) -> str:
    match value:
        case str():
            return repr(value) if len(value) <= 80 else f"{value[:77]!r}..."
        case int() if value.bit_length() > 256:
            return f"an integer of {value.bit_length()} bits"
        case int() | float() | None:
            return repr(value)
        case _:
            # It may be nested too deeply to be converted to text.
            return f"a {type(value).__name__}"


def _integer(value: Any) -> int:
    """INT64 and ENUM: decimal text, or a number as the documentation's example shows."""
    if isinstance(value, str) and _INTEGER.fullmatch(value):
        number = int(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        number = value
    else:
        raise _unfit("INT64", value)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise _unfit("INT64", value, why="beyond 64 bits")
    return number


def _float64(value: Any) -> float:
    """FLOAT64: a number, or `NaN`, `Infinity`, `-Infinity` as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise _unfit("FLOAT64", value, why="beyond its range") from error
    if isinstance(value, str):
        special = _SPECIAL_FLOATS.get(value.lower())
        if special is not None:
            return special
        if _DECIMAL.fullmatch(value):
            number = float(value)
            if math.isfinite(number):
                return number
    raise _unfit("FLOAT64", value)


def _float32(value: Any) -> float:
    """FLOAT32: as FLOAT64, within its range."""
    number = _float64(value)
    try:
        _FLOAT32.pack(number)
    except OverflowError as error:
        raise _unfit("FLOAT32", value, why="beyond its range") from error
    return number


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _unfit("BOOL", value)


def _text(value: Any) -> str:
    """STRING, JSON and INTERVAL: text, unchanged."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _unfit("STRING", value, why="not Unicode text") from error
        return value
    raise _unfit("STRING", value)


def _octets(value: Any) -> bytes:
    """BYTES and PROTO: standard base64."""
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError) as error:
            raise _unfit("BYTES", value, why="not base64") from error
    raise _unfit("BYTES", value)


def _decimal(kind: str, value: Any) -> Decimal:
    """Parse a finite decimal exactly."""
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise _unfit(kind, value)
    # More bits than the pattern's digits hold: Python refuses to convert very long integers.
    text = "" if isinstance(value, int) and value.bit_length() > 256 else str(value)
    if not _DECIMAL.fullmatch(text):
        raise _unfit(kind, value)
    number = _EXACT.create_decimal(text)
    if isinstance(value, float) and len(number.normalize(_EXACT).as_tuple().digits) > (
        _EXACT_DOUBLE_DIGITS
    ):
        raise _unfit(kind, value, why="a binary number of this length may have been rounded")
    return number


def _numeric(value: Any) -> bytes:
    """NUMERIC: the unscaled integer at scale 9, two's complement, in the fewest bytes."""
    number = _decimal("NUMERIC", value)
    scaled = number.scaleb(NUMERIC_SCALE, context=_EXACT)
    unscaled = int(scaled)
    if unscaled != scaled:
        raise _unfit("NUMERIC", value, why="not representable with 9 fractional digits")
    if not -_NUMERIC_LIMIT < unscaled < _NUMERIC_LIMIT:
        raise _unfit("NUMERIC", value, why="not representable with 38 digits")
    return unscaled_bytes(unscaled)


def unscaled_bytes(unscaled: int) -> bytes:
    """Return an integer as two's complement, big endian, in the fewest bytes."""
    magnitude = unscaled if unscaled >= 0 else ~unscaled
    return unscaled.to_bytes(magnitude.bit_length() // 8 + 1, "big", signed=True)


def _pg_numeric(value: Any) -> str:
    """PostgreSQL's numeric: unbounded, with NaN and its scale, so it stays text."""
    if isinstance(value, str):
        return value
    return str(_decimal("PG_NUMERIC", value))


def _days(value: Any) -> int:
    """DATE: days since 1970."""
    if isinstance(value, str) and _DATE.fullmatch(value):
        try:
            return date.fromisoformat(value).toordinal() - _UNIX_EPOCH_DAY
        except ValueError as error:
            raise _unfit("DATE", value) from error
    raise _unfit("DATE", value)


def _microseconds(value: Any) -> int:
    """TIMESTAMP: microseconds since 1970."""
    if not isinstance(value, str):
        raise _unfit("TIMESTAMP", value)
    instant_us, rest_ns = divmod(parse_rfc3339_ns(value), NS_PER_US)
    if rest_ns:
        raise _unfit("TIMESTAMP", value, why="not representable in whole microseconds")
    return instant_us


def _instant_text(value: Any) -> str:
    """TIMESTAMP: one text for each instant, because equal keys must have equal bytes."""
    if not isinstance(value, str):
        raise _unfit("TIMESTAMP", value)
    return canonical_rfc3339(value)


def _uuid(value: Any) -> str:
    if isinstance(value, str) and _UUID.fullmatch(value):
        return value.lower()
    raise _unfit("UUID", value)


def _array(element: Converter) -> Converter:
    """ARRAY: a list whose items may be null."""

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list):
            raise _unfit("ARRAY", value)
        return [None if item is None else element(item) for item in value]

    return convert


_CONVERTERS: dict[str, Converter] = {
    "INT64": _integer,
    "ENUM": _integer,
    "FLOAT64": _float64,
    "FLOAT32": _float32,
    "BOOL": _boolean,
    "STRING": _text,
    "JSON": _text,
    "INTERVAL": _text,
    "BYTES": _octets,
    "PROTO": _octets,
    "NUMERIC": _numeric,
    "DATE": _days,
    "TIMESTAMP": _microseconds,
    "UUID": _uuid,
}

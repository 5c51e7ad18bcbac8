"""Reads the plain form of each scalar type: from JSON-like values to Python values.

Any error is a `SpannerError` with the text of Google's emulator, in most cases with
FAILED_PRECONDITION. `values` handles NULL, lengths and arrays.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import json
import math
import re
import struct
from decimal import Context, Decimal, InvalidOperation
from typing import Final, NoReturn, TypeAlias

from spanner_simulator.core.json_text import normalise_json, normalise_jsonb
from spanner_simulator.core.timestamps import parse_ns
from spanner_simulator.errors import SpannerError, failed_precondition, invalid_argument

Plain: TypeAlias = "bool | float | str | list[Plain] | dict[str, Plain] | None"
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_SAFE_DIGITS: Final = 18
_INTEGER = re.compile(r"\s*[+-]?[0-9]{1,40}\s*")
_DECIMAL = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,6})?")
_DATE = re.compile(r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})")
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")
_INTERVAL = re.compile(r"P(?=.)(-?[0-9]+[YMWD])*(T(-?[0-9.]+[HMS])+)?")
_NUMERIC_STEP: Final = Decimal("1e-9")
_NUMERIC_ADJUSTED_MAX: Final = 28
# The default context keeps 28 digits, NUMERIC has 38.
_WIDE: Final = Context(prec=60)
_PG_ADJUSTED_MAX, _PG_SCALE_MAX = 147_454, 16_383
_SPECIAL_FLOATS: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_DOCS: Final = "https://cloud.google.com/spanner/docs/"
_DATE_HINT: Final = (
    "Dates must be in the format YYYY-[M]M-[D]D and the year must be in the range [1, 9999]. For "
    f"more details on the DATE type encoding, see {_DOCS}data-types#date-type"
)


def _refuse(message: str) -> NoReturn:
    raise failed_precondition(f"Could not parse {message}")


def _wrong_kind(plain: Plain, name: str) -> NoReturn:
    _refuse(f"{proto_text(plain)} as {name}")


def proto_text(plain: Plain) -> str:
    """A value as the text form of its protocol buffer, as quoted in the service's messages."""
    if plain is None:
        return "null_value: NULL_VALUE\n"
    if isinstance(plain, bool):
        return f"bool_value: {str(plain).lower()}\n"
    if isinstance(plain, str):
        return f"string_value: {json.dumps(plain)}\n"
    if isinstance(plain, list):
        inner = "".join(f"  values {{\n    {proto_text(item)}  }}\n" for item in plain)
        return f"list_value {{\n{inner}}}\n"
    if isinstance(plain, dict):
        return "struct_value {\n}\n"
    return f"number_value: {plain:g}\n"


def read_string(plain: Plain) -> str:
    """STRING."""
    return plain if isinstance(plain, str) else _wrong_kind(plain, "STRING")


def read_int(plain: Plain, name: str = "INT64") -> int:
    """INT64: a decimal string."""
    if not isinstance(plain, str):
        _wrong_kind(plain, name)
    if len(plain) <= _SAFE_DIGITS and plain.isascii() and plain.isdigit():
        return int(plain)
    if _INTEGER.fullmatch(plain) is None or not _INT64_MIN <= (number := int(plain)) <= _INT64_MAX:
        _refuse(f"{plain} as an integer")
    return number


def read_enum(plain: Plain, name: str) -> int:
    """ENUM: its number as a decimal string; the number need not be a member of the enum."""
    number = read_int(plain, name)
    if not is_enum_number(number):
        _refuse(f"{plain} as an integer")
    return number


def is_enum_number(number: int) -> bool:
    """Whether a number fits an enum, which has 32 bits."""
    return -(2**31) <= number < 2**31


def read_bool(plain: Plain) -> bool:
    """BOOL."""
    return plain if isinstance(plain, bool) else _wrong_kind(plain, "BOOL")


def read_float64(plain: Plain, name: str = "FLOAT64") -> float:
    """FLOAT64: a number, or one of three strings."""
    if not isinstance(plain, bool) and isinstance(plain, float | int):
        return float(plain)
    if not isinstance(plain, str):
        _wrong_kind(plain, name)
    if plain not in _SPECIAL_FLOATS:
        _refuse(
            f"{plain} as a {name}. Only the following string values are supported for {name}: "
            f"'Infinity', 'NaN', and '-Infinity'. See {_DOCS}data-types#floating-point-type "
            "for more details"
        )
    return _SPECIAL_FLOATS[plain]


def read_float32(plain: Plain) -> float:
    """FLOAT32: as FLOAT64, rounded to the precision of four bytes."""
    number = read_float64(plain, "FLOAT32")
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        _wrong_kind(plain, "FLOAT32")
    return rounded


def read_numeric(plain: Plain) -> Decimal:
    """NUMERIC: 29 digits before the point, 9 after it."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "NUMERIC")
    number = _decimal(plain)
    if number is None or not _fits_numeric(number):
        _refuse(
            f"{plain} as a NUMERIC. The NUMERIC type supports 38 digits of precision and 9 digits "
            f"of scale. See {_DOCS}data-types for more details"
        )
    return number


def _decimal(plain: str) -> Decimal | None:
    if _DECIMAL.fullmatch(plain) is None:
        return None
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def _fits_numeric(number: Decimal) -> bool:
    if number.is_zero():
        return True
    return number.adjusted() <= _NUMERIC_ADJUSTED_MAX and (
        _WIDE.quantize(number, _NUMERIC_STEP) == number
    )


def read_pg_numeric(plain: Plain) -> Decimal:
    """PostgreSQL's numeric: keeps its scale, may be NaN, has no infinity and no negative zero."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "PG.NUMERIC")
    if plain.strip().lower() == "nan":
        return Decimal("NaN")
    number = _decimal(plain)
    if number is None or not _fits_pg_numeric(number):
        _refuse(
            f"{plain} as a PG.NUMERIC. See {_DOCS}reference/postgresql/data-types for more details"
        )
    if number.is_zero():
        number = number.copy_abs()
    return Decimal(f"{number:f}")


def _fits_pg_numeric(number: Decimal) -> bool:
    exponent = number.as_tuple().exponent
    return (
        number.adjusted() <= _PG_ADJUSTED_MAX
        and isinstance(exponent, int)
        and exponent >= -_PG_SCALE_MAX
    )


def read_bytes(plain: Plain, name: str = "BYTES") -> bytes:
    """BYTES: base64."""
    if not isinstance(plain, str):
        _wrong_kind(plain, name)
    try:
        return base64.b64decode(plain, validate=True)
    except (binascii.Error, ValueError):
        _refuse(
            f"{plain[:200]} as {name}. Byte strings must be base64-encoded. For more details, see "
            f"{_DOCS}reference/rpc/google.spanner.v1#typecode"
        )


def read_proto(plain: Plain, name: str) -> bytes:
    """PROTO: base64 of the message, which is not parsed."""
    if not isinstance(plain, str):
        _wrong_kind(plain, name)
    return read_bytes(plain)


def read_date(plain: Plain) -> dt.date:
    """DATE; months and days may have one digit."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "DATE")
    match = _DATE.fullmatch(plain)
    if match is None:
        _refuse(f"{plain} as a DATE. {_DATE_HINT}")
    year, month, day = (int(part) for part in match.groups())
    if year == 0:
        raise invalid_argument(f"Invalid date value: {plain}. {_DATE_HINT}")
    try:
        return dt.date(year, month, day)
    except ValueError:
        _refuse(f"{plain} as a DATE. {_DATE_HINT}")


def read_timestamp(plain: Plain) -> int:
    """TIMESTAMP: nanoseconds since the epoch of an RFC 3339 text that ends in Z."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "TIMESTAMP")
    try:
        if plain.endswith("Z"):
            return parse_ns(plain)
    except SpannerError as error:
        if plain[:5] == "0000-":
            raise invalid_argument(
                f"Timestamp out of range: {plain}. For details on the TIMESTAMP type encoding, "
                f"see {_DOCS}data-types#timestamp-type",
            ) from error
    _refuse(
        f"{plain} as a TIMESTAMP. The timestamp value must end with an uppercase literal 'Z' to "
        "specify Zulu time (UTC-0). For details on the TIMESTAMP type encoding, see "
        f"{_DOCS}data-types#timestamp-type"
    )


def read_json(plain: Plain) -> str:
    """JSON, normalised as in GoogleSQL."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "JSON")
    try:
        return normalise_json(plain)
    except ValueError:
        _refuse(f"{plain[:1000]} as a JSON. See {_DOCS}data-types for more details")


def read_jsonb(plain: Plain) -> str:
    """PostgreSQL's jsonb, normalised."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "JSONB")
    try:
        return normalise_jsonb(plain)
    except ValueError:
        _refuse(
            f"{plain[:1000]} as a JSONB. See {_DOCS}reference/postgresql/data-types for more "
            "details"
        )


def read_uuid(plain: Plain) -> str:
    """UUID in any case, with or without hyphens and braces; lower case with hyphens."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "UUID")
    bare = plain.lower()
    if bare.startswith("{") and bare.endswith("}"):
        bare = bare[1:-1]
    if _UUID.fullmatch(bare) is None:
        _refuse(f"{plain} as a UUID")
    digits = bare.replace("-", "")
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def read_interval(plain: Plain) -> str:
    """INTERVAL: an ISO 8601 duration, unchanged."""
    if not isinstance(plain, str):
        _wrong_kind(plain, "INTERVAL")
    if _INTERVAL.fullmatch(plain) is None:
        _refuse(f"{plain} as an INTERVAL. The value must be an ISO 8601 duration")
    return plain

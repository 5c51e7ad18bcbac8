"""Arithmetic and conversion of numbers where Spanner and DuckDB differ.

NUMERIC has 29 digits before and 9 after the point and rounds half away from zero; PG_NUMERIC
keeps the scale as PostgreSQL does and travels as text.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from spanner_simulator.errors import Code, SpannerError, invalid_argument, out_of_range
from spanner_simulator.sql.functions.routines import postgres_reader, routine
from spanner_simulator.sql.sql_types import pg_numeric_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_STEP: Final = Decimal("1e-9")
_LIMIT: Final = Decimal("1e29")
_CONTEXT: Final = Context(prec=120, rounding=ROUND_HALF_UP)
_OPERATIONS: Final[dict[str, Callable[[Decimal, Decimal], Decimal]]] = {
    "+": _CONTEXT.add,
    "-": _CONTEXT.subtract,
    "*": _CONTEXT.multiply,
    "/": _CONTEXT.divide,
    "%": _CONTEXT.remainder,
}
_INTEGER = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)\s*")
_DECIMAL = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*")
_SPECIAL_FLOATS: Final = {
    "nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf,
    "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip
_N = "DECIMAL(38,9)"
# Six digits, also after the exponent of a number is added to it.
_EXPONENT_MAX: Final = 500_000
_NINES: Final = str.maketrans("0123456789", "9876543210")


def _numeric(value: Decimal, describe: str) -> Decimal:
    try:
        rounded = value.quantize(_STEP, context=_CONTEXT)
    except InvalidOperation:
        rounded = _LIMIT
    if rounded.copy_abs() >= _LIMIT:
        raise out_of_range(f"numeric overflow: {describe}")
    return rounded


@routine("VARCHAR", _N)
def numeric_text(value: Decimal) -> str:
    """Plain notation without trailing zeros."""
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


@routine(_N, _N, "VARCHAR", _N)
def numeric_computed(left: Decimal, sign: str, right: Decimal) -> Decimal:
    """`+`, `-`, `*`, `/` and the remainder, rounded to nine digits."""
    shown = f"{numeric_text(left)} {sign} {numeric_text(right)}"
    if sign in "/%" and right == 0:
        raise out_of_range(f"division by zero: {shown}")
    return _numeric(_OPERATIONS[sign](left, right), shown)


@routine(_N, _N, "BIGINT")
def numeric_round(value: Decimal, digits: int) -> Decimal:
    """Half away from zero."""
    rounded = value.quantize(Decimal(1).scaleb(-max(-40, min(9, digits))), context=_CONTEXT)
    return _numeric(rounded, f"ROUND({numeric_text(value)}, {digits})")


def _int64(value: Decimal, error: SpannerError) -> int:
    number = int(value.to_integral_value(ROUND_HALF_UP))
    if not -(2**63) <= number < 2**63:
        raise error
    return number


@routine("BIGINT", _N)
def numeric_to_int(value: Decimal) -> int:
    """Half away from zero."""
    return _int64(value, out_of_range(f"int64 out of range: {numeric_text(value)}"))


def _finite(value: float, kind: str) -> float:
    if not math.isfinite(value):
        raise out_of_range(
            f"Illegal conversion of non-finite floating point number to {kind}: {float_text(value)}"
        )
    return value


@routine("BIGINT", "DOUBLE")
def float_to_int(value: float) -> int:
    """Half away from zero."""
    number = Decimal(_finite(value, "an integer"))
    return _int64(number, out_of_range(f"int64 out of range: {float_text(value)}"))


@routine(_N, "DOUBLE")
def float_to_numeric(value: float) -> Decimal:
    """The nearest NUMERIC of the shortest text for this double."""
    return _numeric(Decimal(repr(_finite(value, "numeric"))), float_text(value))


@routine("VARCHAR", "DOUBLE")
def float_text(value: float) -> str:
    """The shortest text for this double, in C's notation."""
    if math.isnan(value):
        return "nan"
    texts = (f"{value:.{digits}g}" for digits in (15, 16, 17))
    return next(text for text in texts if float(text) == value)


@routine("VARCHAR", "FLOAT")
def float32_text(value: float) -> str:
    """The shortest text for this 32-bit float."""
    if not math.isfinite(value):
        return str(float_text(value))
    texts = (f"{value:.{digits}g}" for digits in range(6, 10))
    wanted = struct.pack("f", value)
    return next(text for text in texts if struct.pack("f", float(text)) == wanted)


@routine("BIGINT", "VARCHAR")
def text_to_int(text: str) -> int:
    """CAST to INT64."""
    match = _INTEGER.fullmatch(text)
    number = int(text, 16 if "x" in text.lower() else 10) if match else 2**63
    if not -(2**63) <= number < 2**63:
        raise out_of_range(f"Bad int64 value: {text}")
    return number


@routine("VARCHAR", "VARCHAR")
def text_to_float(text: str) -> str:
    """CAST to FLOAT64, as a text for DuckDB, which reads a routine's NaN as NULL."""
    special = _SPECIAL_FLOATS.get(text.strip().lower())
    if special is None and _DECIMAL.fullmatch(text) is None:
        raise out_of_range(f"Bad double value: {text}")
    return repr(float(text) if special is None else special)


@routine(_N, "VARCHAR")
def text_to_numeric(text: str) -> Decimal:
    """CAST to NUMERIC."""
    if _DECIMAL.fullmatch(text) is None or Decimal(text.strip()).adjusted() > 28:
        raise out_of_range(f"Invalid NUMERIC value: {text}")
    return _numeric(Decimal(text.strip()), text)


@routine("BIGINT", "BIGINT", "BIGINT", "BIGINT")
def array_place(index: int, length: int, shown: int) -> int:
    """The 1-based place of an element; `shown` is the position as written in the statement."""
    if not 0 <= index < length:
        raise out_of_range(f"Array index {shown} is out of bounds")
    return index + 1


# -- PostgreSQL's numeric


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


@routine("VARCHAR", "VARCHAR", "VARCHAR", "VARCHAR")
def pg_numeric_computed(left_text: str, sign: str, right_text: str) -> str:
    """`+`, `-`, `*`, `/` and `%`, with the scales that PostgreSQL gives to the results."""
    first, second = Decimal(left_text), Decimal(right_text)
    if sign not in "/%" or first.is_nan() or second.is_nan():
        return pg_numeric_text(_OPERATIONS[sign](first, second))
    if second == 0:
        raise out_of_range("[ERROR] division by zero")
    result = _OPERATIONS[sign](first, second)
    if sign == "/":  # at least sixteen significant digits
        scale = max(_scale(first), _scale(second), 16 - 4 * _quotient_weight(first, second), 0)
        result = result.quantize(Decimal(1).scaleb(-scale), context=_CONTEXT)
    return pg_numeric_text(result)


def _quotient_weight(dividend: Decimal, divisor: Decimal) -> int:
    """The quotient's first digit in base 10,000, as PostgreSQL estimates it."""

    def first(value: Decimal) -> tuple[int, int]:
        weight = 0 if value == 0 else value.adjusted() // 4
        return weight, int(value.copy_abs().scaleb(-4 * weight, _CONTEXT))

    weight, digit = first(dividend)
    other_weight, other_digit = first(divisor)
    return weight - other_weight - (1 if digit <= other_digit else 0)


@routine("BIGINT", "VARCHAR")
def pg_numeric_to_int(value: str) -> int:
    """Half away from zero."""
    if value == "NaN":
        raise SpannerError(Code.UNIMPLEMENTED, "[ERROR] cannot convert NaN to bigint")
    return _int64(Decimal(value), out_of_range("[ERROR] bigint out of range"))


@routine("VARCHAR", "DOUBLE")
def float_to_pg_numeric(value: float) -> str:
    """The shortest decimal for this double."""
    if math.isinf(value):
        raise invalid_argument("Cannot cast infinity to PG.NUMERIC")
    return pg_numeric_text(Decimal(f"{value:.15g}"))


@postgres_reader("numeric", "VARCHAR")
def text_to_pg_numeric(text: str) -> str:
    """CAST to numeric; keeps the scale as written."""
    if text.strip().lower() == "nan":
        return "NaN"
    if _DECIMAL.fullmatch(text) is None:
        raise ValueError(text)
    return pg_numeric_text(Decimal(text.strip()))


@routine("VARCHAR", "VARCHAR")
def pg_numeric_order(value: str) -> str:
    """A text in the order of PG_NUMERIC values, equal for 1.0 and 1.00; NaN is the greatest."""
    number = Decimal(value)
    if number.is_nan():
        return "z"
    if number == 0:
        return "o"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    ascending = f"{number.adjusted() + _EXPONENT_MAX}{digits}"
    # Negative numbers sort in reverse, also if one has more digits than the other.
    return f"n{ascending.translate(_NINES)}~" if number < 0 else f"p{ascending}"


@routine("VARCHAR", "VARCHAR[]", "VARCHAR")
def pg_numeric_aggregate(values: Sequence[str | None], function: str) -> str | None:
    """SUM with the largest scale, AVG, MIN or MAX; NULL without values, and NaN is the greatest."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    if function in ("min", "max"):
        return (min if function == "min" else max)(present, key=pg_numeric_order)
    total = Decimal(0)
    for value in present:
        total = _CONTEXT.add(total, Decimal(value))
    if function == "sum":
        return pg_numeric_text(total)
    return str(pg_numeric_computed(pg_numeric_text(total), "/", str(len(present))))


pg_text_to_int = postgres_reader("bigint", "BIGINT")(text_to_int, name="pg_text_to_int")
pg_text_to_float = postgres_reader("double precision", "VARCHAR")(
    text_to_float, name="pg_text_to_float"
)

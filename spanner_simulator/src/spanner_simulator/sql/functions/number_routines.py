"""Arithmetic and conversion of numbers where Spanner and DuckDB differ.

NUMERIC has 29 digits before and 9 after the point and rounds half away from zero; PG_NUMERIC
keeps the scale as PostgreSQL does and travels as text.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import ROUND_DOWN, ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions.routines import out_of_range, routine

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_STEP: Final = Decimal("1e-9")
_LIMIT: Final = Decimal("1e29")
_CONTEXT: Final = Context(prec=120, rounding=ROUND_HALF_UP)
_INTEGER = re.compile(r"\s*[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)\s*")
_DECIMAL = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*")
_SPECIAL_FLOATS: Final = {
    "nan": math.nan, "inf": math.inf, "+inf": math.inf, "-inf": -math.inf,
    "infinity": math.inf, "+infinity": math.inf, "-infinity": -math.inf,
}  # fmt: skip
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_ALL_BITS: Final = 2**64 - 1
_N = "DECIMAL(38,9)"
# Of six digits, and still so when the exponent of a number is added to it.
_EXPONENT_MAX: Final = 500_000
_NINES: Final = str.maketrans("0123456789", "9876543210")


def _numeric(value: Decimal, describe: Callable[[], str]) -> Decimal:
    try:
        rounded = value.quantize(_STEP, context=_CONTEXT)
    except InvalidOperation:
        rounded = _LIMIT
    if rounded.copy_abs() >= _LIMIT:
        raise out_of_range(f"numeric overflow: {describe()}")
    return rounded


def numeric_to_text(value: Decimal) -> str:
    """Plain notation without trailing zeros."""
    text = f"{value:f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


@routine(_N, _N, _N)
def numeric_add(one: Decimal, other: Decimal) -> Decimal:
    """Sum."""
    return _numeric(
        _CONTEXT.add(one, other), lambda: f"{numeric_to_text(one)} + {numeric_to_text(other)}"
    )


@routine(_N, _N, _N)
def numeric_subtract(one: Decimal, other: Decimal) -> Decimal:
    """Difference."""
    return _numeric(
        _CONTEXT.subtract(one, other), lambda: f"{numeric_to_text(one)} - {numeric_to_text(other)}"
    )


@routine(_N, _N, _N)
def numeric_multiply(one: Decimal, other: Decimal) -> Decimal:
    """Product, rounded to nine digits."""
    return _numeric(
        _CONTEXT.multiply(one, other), lambda: f"{numeric_to_text(one)} * {numeric_to_text(other)}"
    )


@routine(_N, _N, _N)
def numeric_divide(one: Decimal, other: Decimal) -> Decimal:
    """Quotient, rounded to nine digits."""
    if other == 0:
        raise out_of_range(f"division by zero: {numeric_to_text(one)} / {numeric_to_text(other)}")
    return _numeric(
        _CONTEXT.divide(one, other), lambda: f"{numeric_to_text(one)} / {numeric_to_text(other)}"
    )


@routine(_N, _N, _N)
def numeric_mod(one: Decimal, other: Decimal) -> Decimal:
    """Remainder with the sign of the dividend."""
    if other == 0:
        raise out_of_range(f"division by zero: MOD({numeric_to_text(one)}, 0)")
    return _CONTEXT.remainder(one, other)


@routine(_N, _N, "BIGINT")
def numeric_round(value: Decimal, digits: int) -> Decimal:
    """Half away from zero."""
    return _numeric(
        value.quantize(Decimal(1).scaleb(-max(-40, min(9, digits))), context=_CONTEXT),
        lambda: f"ROUND({numeric_to_text(value)}, {digits})",
    )


@routine(_N, _N, "BIGINT")
def numeric_trunc(value: Decimal, digits: int) -> Decimal:
    """Towards zero."""
    step = Decimal(1).scaleb(-max(-40, min(9, digits)))
    return value.quantize(step, rounding=ROUND_DOWN, context=_CONTEXT)


def _int64(value: Decimal | int, describe: str) -> int:
    number = int(value)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise out_of_range(f"int64 out of range: {describe}")
    return number


@routine("BIGINT", _N)
def numeric_to_int(value: Decimal) -> int:
    """Half away from zero."""
    return _int64(value.to_integral_value(ROUND_HALF_UP), numeric_to_text(value))


@routine("VARCHAR", _N)
def numeric_text(value: Decimal) -> str:
    """As CAST to STRING prints it."""
    return numeric_to_text(value)


@routine("BIGINT", "DOUBLE")
def float_to_int(value: float) -> int:
    """Half away from zero."""
    if not math.isfinite(value):
        raise out_of_range(f"Illegal conversion of non-finite floating point number to an integer: "
                           f"{float_to_text(value)}")  # fmt: skip
    return _int64(Decimal(value).to_integral_value(ROUND_HALF_UP), float_to_text(value))


@routine(_N, "DOUBLE")
def float_to_numeric(value: float) -> Decimal:
    """The nearest NUMERIC of the shortest text that means this double."""
    if not math.isfinite(value):
        raise out_of_range(
            "Illegal conversion of non-finite floating point number to numeric: "
            + float_to_text(value)
        )
    return _numeric(Decimal(repr(value)), lambda: float_to_text(value))


def float_to_text(value: float) -> str:
    """The shortest text that means this double, in C's notation."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    for digits in (15, 16, 17):
        text = f"{value:.{digits}g}"
        if float(text) == value:
            return text
    return repr(value)


@routine("VARCHAR", "DOUBLE")
def float_text(value: float) -> str:
    """As CAST to STRING prints it."""
    return float_to_text(value)


@routine("VARCHAR", "FLOAT")
def float32_text(value: float) -> str:
    """The shortest text that means this 32-bit float."""
    if not math.isfinite(value):
        return float_to_text(value)
    for digits in range(6, 10):
        text = f"{value:.{digits}g}"
        if struct.pack("f", float(text)) == struct.pack("f", value):
            return text
    return repr(value)


@routine("BIGINT", "VARCHAR")
def text_to_int(text: str) -> int:
    """CAST to INT64."""
    if _INTEGER.fullmatch(text) is None:
        raise out_of_range(f"Bad int64 value: {text}")
    stripped = text.strip()
    number = int(stripped, 16) if "x" in stripped.lower() else int(stripped)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise out_of_range(f"Bad int64 value: {text}")
    return number


@routine("VARCHAR", "VARCHAR")
def text_to_float(text: str) -> str:
    """CAST to FLOAT64, as a text that DuckDB reads: it takes a routine's NaN for NULL."""
    special = _SPECIAL_FLOATS.get(text.strip().lower())
    if special is not None:
        return repr(special)
    if _DECIMAL.fullmatch(text) is None:
        raise out_of_range(f"Bad double value: {text}")
    return repr(float(text))


@routine(_N, "VARCHAR")
def text_to_numeric(text: str) -> Decimal:
    """CAST to NUMERIC."""
    if _DECIMAL.fullmatch(text) is None:
        raise out_of_range(f"Invalid NUMERIC value: {text}")
    value = Decimal(text.strip())
    if value.adjusted() > 28:
        raise out_of_range(f"Invalid NUMERIC value: {text}")
    return _numeric(value, lambda: text)


# -- PostgreSQL's numeric


def pg_number(text: str) -> Decimal:
    """The number that a PG_NUMERIC carrier holds."""
    return Decimal(text)


def pg_text(value: Decimal) -> str:
    """The carrier of a number."""
    return "NaN" if value.is_nan() else f"{value:f}"


def _scale(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return max(0, -exponent) if isinstance(exponent, int) else 0


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def pg_numeric_add(one: str, other: str) -> str:
    """Sum with the larger scale."""
    return pg_text(_CONTEXT.add(Decimal(one), Decimal(other)))


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def pg_numeric_subtract(one: str, other: str) -> str:
    """Difference with the larger scale."""
    return pg_text(_CONTEXT.subtract(Decimal(one), Decimal(other)))


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def pg_numeric_multiply(one: str, other: str) -> str:
    """Product with the sum of the scales."""
    return pg_text(_CONTEXT.multiply(Decimal(one), Decimal(other)))


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def pg_numeric_divide(one: str, other: str) -> str:
    """Quotient with at least sixteen significant digits, as PostgreSQL chooses its scale."""
    dividend, divisor = Decimal(one), Decimal(other)
    if dividend.is_nan() or divisor.is_nan():
        return "NaN"
    if divisor == 0:
        raise out_of_range("[ERROR] division by zero")
    scale = max(_scale(dividend), _scale(divisor), 16 - 4 * _quotient_weight(dividend, divisor), 0)
    return pg_text(
        _CONTEXT.divide(dividend, divisor).quantize(Decimal(1).scaleb(-scale), context=_CONTEXT)
    )


def _quotient_weight(dividend: Decimal, divisor: Decimal) -> int:
    """The quotient's first digit in base 10,000, as PostgreSQL estimates it."""

    def first(value: Decimal) -> tuple[int, int]:
        if value == 0:
            return 0, 0
        weight = value.adjusted() // 4
        return weight, int(value.copy_abs().scaleb(-4 * weight, _CONTEXT))

    weight, digit = first(dividend)
    other_weight, other_digit = first(divisor)
    return weight - other_weight - (1 if digit <= other_digit else 0)


@routine("VARCHAR", "VARCHAR", "VARCHAR")
def pg_numeric_mod(one: str, other: str) -> str:
    """Remainder with the sign of the dividend."""
    dividend, divisor = Decimal(one), Decimal(other)
    if divisor == 0:
        raise out_of_range("[ERROR] division by zero")
    return pg_text(_CONTEXT.remainder(dividend, divisor))


@routine("VARCHAR", "VARCHAR")
def pg_numeric_negate(value: str) -> str:
    """The negative; there is no negative zero."""
    number = Decimal(value)
    return pg_text(number if number == 0 else number.copy_negate())


@routine("VARCHAR", "VARCHAR")
def pg_numeric_abs(value: str) -> str:
    """The absolute value."""
    return pg_text(Decimal(value).copy_abs())


@routine("VARCHAR", "VARCHAR", "BIGINT")
def pg_numeric_round(value: str, digits: int) -> str:
    """Half away from zero."""
    return pg_text(Decimal(value).quantize(Decimal(1).scaleb(-digits), context=_CONTEXT))


@routine("BIGINT", "VARCHAR")
def pg_numeric_to_int(value: str) -> int:
    """Half away from zero."""
    number = Decimal(value)
    if number.is_nan():
        raise SpannerError(Code.UNIMPLEMENTED, "[ERROR] cannot convert NaN to bigint")
    rounded = int(number.to_integral_value(ROUND_HALF_UP))
    if not _INT64_MIN <= rounded <= _INT64_MAX:
        raise out_of_range("[ERROR] bigint out of range")
    return rounded


@routine("VARCHAR", "DOUBLE")
def float_to_pg_numeric(value: float) -> str:
    """The shortest decimal that means this double."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        raise SpannerError(Code.INVALID_ARGUMENT, "Cannot cast infinity to PG.NUMERIC")
    return f"{Decimal(f'{value:.15g}'):f}"


@routine("VARCHAR", "VARCHAR")
def text_to_pg_numeric(text: str) -> str:
    """CAST to numeric; the scale as written stays."""
    if text.strip().lower() == "nan":
        return "NaN"
    if _DECIMAL.fullmatch(text) is None:
        raise _pg_syntax("numeric", text)
    return pg_text(Decimal(text.strip()))


@routine("VARCHAR", "VARCHAR")
def pg_numeric_order(value: str) -> str:
    """A text in the order of PG_NUMERIC values, the same for 1.0 and 1.00; NaN is the greatest."""
    number = Decimal(value)
    if number.is_nan():
        return "z"
    if number == 0:
        return "o"
    digits = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    ascending = f"{number.adjusted() + _EXPONENT_MAX}{digits}"
    # What is below zero runs the other way, also where one has more digits than the other.
    return f"n{ascending.translate(_NINES)}~" if number < 0 else f"p{ascending}"


def _pg_syntax(name: str, text: str) -> SpannerError:
    return SpannerError(
        Code.INVALID_ARGUMENT, f'[ERROR] invalid input syntax for type {name}: "{text}"'
    )


@routine("BIGINT", "VARCHAR")
def pg_text_to_int(text: str) -> int:
    """CAST to bigint."""
    if re.fullmatch(r"\s*[+-]?[0-9]+\s*", text) is None:
        raise _pg_syntax("bigint", text)
    number = int(text)
    if not _INT64_MIN <= number <= _INT64_MAX:
        raise out_of_range(f'[ERROR] value "{text}" is out of range for type bigint')
    return number


@routine("VARCHAR", "VARCHAR")
def pg_text_to_float(text: str) -> str:
    """CAST to double precision, as a text that DuckDB reads."""
    special = _SPECIAL_FLOATS.get(text.strip().lower())
    if special is not None:
        return repr(special)
    if _DECIMAL.fullmatch(text) is None:
        raise _pg_syntax("double precision", text)
    return repr(float(text))


@routine("VARCHAR", "VARCHAR[]")
def pg_numeric_sum(values: Sequence[str | None]) -> str | None:
    """SUM with the largest scale; NULL without values."""
    present = [Decimal(value) for value in values if value is not None]
    total = Decimal(0)
    for value in present:
        total = _CONTEXT.add(total, value)
    return pg_text(total) if present else None


@routine("VARCHAR", "VARCHAR[]")
def pg_numeric_average(values: Sequence[str | None]) -> str | None:
    """AVG; NULL without values."""
    present = [value for value in values if value is not None]
    total = pg_numeric_sum(present)
    return None if total is None else str(pg_numeric_divide(total, str(len(present))))


@routine("VARCHAR", "VARCHAR[]", "BOOLEAN")
def pg_numeric_extreme(values: Sequence[str | None], largest: bool) -> str | None:  # noqa: FBT001  # SQL calls it
    """MIN or MAX; NaN is the largest."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    choose = max if largest else min
    return choose(present, key=pg_numeric_order)


@routine("BIGINT", "BIGINT", "BOOLEAN")
def bit_reversed(value: int, preserve_sign: bool) -> int:  # noqa: FBT001  # SQL calls it
    """BIT_REVERSE, of 63 bits when the sign stays."""
    if preserve_sign:
        reversed_bits = int(f"{value & _INT64_MAX:063b}"[::-1], 2)
        return reversed_bits - 2**63 if value < 0 else reversed_bits
    return _as_signed(int(f"{value & _ALL_BITS:064b}"[::-1], 2))


@routine("BIGINT", "BIGINT", "BIGINT", "BIGINT")
def array_place(index: int, length: int, shown: int) -> int:
    """The 1-based place of an element; `shown` is the position as the statement has it."""
    if not 0 <= index < length:
        raise out_of_range(f"Array index {shown} is out of bounds")
    return index + 1


@routine("BIGINT", "BIGINT", "VARCHAR")
def array_end(length: int, which: str) -> int:
    """The 1-based place of the FIRST or LAST element."""
    if length == 0:
        raise out_of_range(
            f"ARRAY_{which} cannot get the {which.lower()} element of an empty array"
        )
    return 1 if which == "FIRST" else length


@routine("BIGINT", "BIGINT", "BIGINT")
def shifted_left(value: int, count: int) -> int:
    """`<<`: the 64 bits move, whatever they mean."""
    return _as_signed(value << count) if _shift_of(count) < 64 else 0


@routine("BIGINT", "BIGINT", "BIGINT")
def shifted_right(value: int, count: int) -> int:
    """`>>`: zeros come in from the left, also for a negative number."""
    return _as_signed((value & _ALL_BITS) >> _shift_of(count))


def _shift_of(count: int) -> int:
    if count < 0:
        raise out_of_range("Bitwise shift by negative offset.")
    return min(count, 64)


def _as_signed(bits: int) -> int:
    bits &= _ALL_BITS
    return bits - 2**64 if bits > _INT64_MAX else bits

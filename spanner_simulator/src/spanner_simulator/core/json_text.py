"""Normalised text of JSON documents, as the service stores and returns them.

GoogleSQL's JSON is compact, its keys are sorted and the first of equal ones counts; numbers are
64-bit integers or doubles.  PostgreSQL's jsonb has blanks after `:` and `,`, orders keys by length
and then by bytes, lets the last of equal ones count, and keeps numbers as decimals with their
scale.  Anything else, including a document that is nested too deeply, is a `ValueError`.
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, InvalidOperation
from typing import Final, NoReturn

_DEPTH_MAX: Final = 80
_INT_MIN, _UINT_MAX = -(2**63), 2**64 - 1
# Above this many digits a double is printed with an exponent, unlike in Python.
_PLAIN_DOUBLE_MAX: Final = 1e15
_PG_EXPONENT_MAX: Final = 131_072
_PG_SCALE_MAX: Final = 16_383


def normalise_json(text: str) -> str:
    """The normal form of a GoogleSQL JSON value; ValueError if it is invalid."""
    return _google(_parse(text, Decimal, _first_of_equal_keys), 0)


def normalise_jsonb(text: str) -> str:
    """The normal form of a PostgreSQL jsonb value; ValueError if it is invalid."""
    return _postgres(_parse(text, Decimal, dict), 0)


def _parse(text: str, number: type[Decimal], pairs: object) -> object:
    try:
        return json.loads(
            text,
            parse_int=number,
            parse_float=number,
            parse_constant=_refuse_constant,
            object_pairs_hook=pairs,  # type: ignore[arg-type]  # a function of pairs
        )
    except (RecursionError, InvalidOperation) as error:
        raise ValueError("no JSON that can be stored") from error


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _first_of_equal_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    return dict(reversed(pairs))


def _string(text: str) -> str:
    text.encode()  # a lone surrogate is a UnicodeEncodeError, which is a ValueError
    return json.dumps(text, ensure_ascii=False)


def _check_depth(depth: int) -> None:
    if depth > _DEPTH_MAX:
        raise ValueError(f"a document is nested deeper than {_DEPTH_MAX} levels")


def _google(value: object, depth: int) -> str:
    match value:
        case dict():
            _check_depth(depth + 1)
            members = (f"{_string(k)}:{_google(value[k], depth + 1)}" for k in sorted(value))
            return "{" + ",".join(members) + "}"
        case list():
            _check_depth(depth + 1)
            return "[" + ",".join(_google(item, depth + 1) for item in value) + "]"
        case Decimal():
            return _google_number(value)
        case str():
            return _string(value)
        case _:
            return json.dumps(value)


def _google_number(value: Decimal) -> str:
    is_integer = value.as_tuple().exponent == 0
    if is_integer and _INT_MIN <= value <= _UINT_MAX:
        return str(int(value))
    double = float(value)
    if math.isinf(double):
        raise ValueError(f"{value} is out of a double's range")
    if _PLAIN_DOUBLE_MAX <= abs(double) < _PLAIN_DOUBLE_MAX * 10:
        mantissa = repr(double).removesuffix(".0").rstrip("0")
        digits = mantissa.replace(".", "").lstrip("-").rstrip("0")
        sign = "-" if double < 0 else ""
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{fraction}e+15"
    return repr(double)


def _postgres(value: object, depth: int) -> str:
    match value:
        case dict():
            _check_depth(depth + 1)
            keys = sorted(value, key=lambda key: (len(key.encode()), key.encode()))
            members = (f"{_string(key)}: {_postgres(value[key], depth + 1)}" for key in keys)
            return "{" + ", ".join(members) + "}"
        case list():
            _check_depth(depth + 1)
            return "[" + ", ".join(_postgres(item, depth + 1) for item in value) + "]"
        case Decimal():
            return _postgres_number(value)
        case str():
            return _string(value)
        case _:
            return json.dumps(value)


def _postgres_number(value: Decimal) -> str:
    exponent = value.as_tuple().exponent
    if value.adjusted() >= _PG_EXPONENT_MAX or (
        isinstance(exponent, int) and exponent < -_PG_SCALE_MAX
    ):
        raise ValueError("a number has too many digits")
    return f"{abs(value) if value.is_zero() else value:f}"

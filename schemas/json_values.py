"""Values as JSON text in events of other products."""

from __future__ import annotations

import json
import math
import struct
from datetime import date
from decimal import Decimal

_UNIX_EPOCH_DAY = date(1970, 1, 1).toordinal()
_SPECIAL = {math.inf: '"Infinity"', -math.inf: '"-Infinity"'}
_FLOAT32 = struct.Struct(">f")
_FLOAT32_DIGITS = range(1, 9)


def quoted(text: str) -> str:
    """Return a text as a JSON string."""
    return json.dumps(text, ensure_ascii=False)


def double_text(number: float) -> str:
    """Return a FLOAT64: a number, or Spanner's text for NaN and infinities."""
    return '"NaN"' if math.isnan(number) else _SPECIAL.get(number) or repr(number)


def float_text(number: float) -> str:
    """Return a FLOAT32 with as many digits as it needs: 0.1 and not 0.10000000149011612."""
    if math.isfinite(number):
        for digits in _FLOAT32_DIGITS:
            shorter = float(f"{number:.{digits}g}")
            if _is_same_float32(shorter, number):
                return repr(shorter)
        return repr(float(f"{number:.9g}"))
    return double_text(number)


def decimal_text(number: Decimal) -> str:
    """Return a NUMERIC: a number with all its digits, without exponent or trailing zeros."""
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def date_text(day: int) -> str:
    """Return a DATE, from days since 1970."""
    return f'"{date.fromordinal(day + _UNIX_EPOCH_DAY).isoformat()}"'


def _is_same_float32(left: float, right: float) -> bool:
    try:
        return _FLOAT32.pack(left) == _FLOAT32.pack(right)
    except OverflowError:  # rounded up beyond the largest one
        return False

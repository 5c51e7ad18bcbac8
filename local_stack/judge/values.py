"""One canonical form for values from three sources.

The commit log has values in Spanner's JSON form, the official client has protobuf values or Python
objects, and Delta has Arrow values.  All become: int, float (NaN as the text `NaN`), bool, str,
bytes, Decimal, date; a timestamp becomes integer microseconds since 1970; an array becomes a tuple.
"""

from __future__ import annotations

import base64
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def rfc3339_us(text: str) -> int:
    """Return microseconds since 1970; digits below a microsecond are cut off."""
    whole, _, zone_free_fraction = text.rstrip("Z").partition(".")
    if text[-1] not in "Zz":
        return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
    instant = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    return (instant - _EPOCH) // _MICROSECOND + int(zone_free_fraction[:6].ljust(6, "0"))


def canonical(value: Any) -> Any:
    """Return the canonical form of an object from Arrow or the official client."""
    match value:
        case None | bool() | int() | str() | bytes() | Decimal():
            return value
        case float():
            return "NaN" if math.isnan(value) else value
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return (aware - _EPOCH) // _MICROSECOND
        case date():
            return value
        case list() | tuple():
            return tuple(canonical(item) for item in value)
        case _:
            raise TypeError(f"the judge cannot compare a {type(value).__name__}")


def canonical_json(value: Any, kind: pa.DataType) -> Any:
    """Return the canonical form of a value in Spanner's JSON form, by its column's Arrow type.

    A value that is in canonical form is returned unchanged.
    """
    if value is None:
        return None
    if pa.types.is_integer(kind):
        return int(value)
    if pa.types.is_floating(kind):
        return canonical(float(value))
    if pa.types.is_timestamp(kind):
        return value if isinstance(value, int) else rfc3339_us(value)
    if pa.types.is_date(kind):
        return date.fromisoformat(value)
    if pa.types.is_decimal(kind):
        return Decimal(value)
    if _is_bytes(kind):
        return base64.b64decode(value)
    if _is_list(kind):
        return tuple(canonical_json(item, kind.value_type) for item in value)
    return value


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_list_view(kind)
    )

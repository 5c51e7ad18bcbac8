r"""Primary keys as byte strings that sort as the keys do, in one keyspace over all tables.

A key is the table's prefix and then its parts. A part is a tag and a payload that is
of fixed length or ends with 00 01, so no part is a prefix of another one; that is why a
descending part can simply be inverted, and why any byte string is a legal range bound.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any, Final, NamedTuple

from spanner_simulator.core.values import TypeCode, Value, ValueType

_INT_BIAS = 1 << 63
_TIMESTAMP_BIAS = 1 << 95
_NUMERIC_BIAS = 1 << 135
_NUMERIC_SCALE = Decimal(10) ** 9
# The default context keeps 28 digits, NUMERIC has 38.
_WIDE = Context(prec=60)
_INVERT = bytes(255 - byte for byte in range(256))
_NULL, _PRESENT, _GREATEST_NULL = b"\x00", b"\x01", b"\x02"


class KeyPart(NamedTuple):
    """A key column's type and order; NULL is the smallest value unless it is the greatest."""

    value_type: ValueType
    descending: bool = False
    null_is_greatest: bool = False


def table_prefix(table: str) -> bytes:
    """The prefix of every key of a table; tables follow each other by name."""
    return table.encode() + b"\x00"


def encode_key(prefix: bytes, parts: Sequence[KeyPart], values: Sequence[Value]) -> bytes:
    """The byte string of a key, or of its first parts if fewer values are given."""
    out = [prefix]
    for (value_type, descending, null_is_greatest), value in zip(parts, values, strict=False):
        if value is None:
            piece = _GREATEST_NULL if null_is_greatest else _NULL
        else:
            piece = _PRESENT + _payload(value_type, value)
        out.append(piece.translate(_INVERT) if descending else piece)
    return b"".join(out)


def _payload(value_type: ValueType, value: Value) -> bytes:
    write = _PAYLOADS.get(value_type.code)
    if write is None:
        raise TypeError(f"{value_type.ddl()} is no key type for {value!r}")
    return write(value)


def _int_payload(value: int) -> bytes:
    return (value + _INT_BIAS).to_bytes(8, "big")


def _string_payload(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def _bytes_payload(value: bytes) -> bytes:
    return value.replace(b"\x00", b"\x00\xff") + b"\x00\x01"


def _bool_payload(value: bool) -> bytes:  # noqa: FBT001  # one of the writers, called by value
    return b"\x01" if value else b"\x00"


def _timestamp_payload(value: int) -> bytes:
    return (value + _TIMESTAMP_BIAS).to_bytes(12, "big")


def _date_payload(value: dt.date) -> bytes:
    return value.toordinal().to_bytes(4, "big")


def _numeric_payload(value: Decimal) -> bytes:
    return (int(_WIDE.multiply(value, _NUMERIC_SCALE)) + _NUMERIC_BIAS).to_bytes(17, "big")


def _float_payload(value: float, form: str = ">d") -> bytes:
    """IEEE 754 with the bits changed so that byte order is number order."""
    width = struct.calcsize(form)
    if math.isnan(value):  # sorts before every number
        return b"\x00" * width
    bits = int.from_bytes(struct.pack(form, value + 0.0), "big")
    sign = 1 << (8 * width - 1)
    flipped = bits ^ (2 * sign - 1) if bits & sign else bits | sign
    return flipped.to_bytes(width, "big")


def _float32_payload(value: float) -> bytes:
    return _float_payload(value, ">f")


def _uuid_payload(value: str) -> bytes:
    return bytes.fromhex(value.replace("-", ""))


_PAYLOADS: Final[dict[TypeCode, Callable[[Any], bytes]]] = {
    "BOOL": _bool_payload,
    "INT64": _int_payload,
    "ENUM": _int_payload,
    "FLOAT32": _float32_payload,
    "FLOAT64": _float_payload,
    "NUMERIC": _numeric_payload,
    "STRING": _string_payload,
    "BYTES": _bytes_payload,
    "DATE": _date_payload,
    "TIMESTAMP": _timestamp_payload,
    "UUID": _uuid_payload,
}


def decode_key(key: bytes, prefix: bytes, parts: Sequence[KeyPart]) -> list[Value] | None:
    """The values of an encoded key; None if the bytes are not a complete key (only a bound)."""
    if not key.startswith(prefix):
        return None
    rest = key[len(prefix) :]
    values: list[Value] = []
    try:
        for value_type, descending, _ in parts:
            view = rest.translate(_INVERT) if descending else rest
            if view[:1] in (_NULL, _GREATEST_NULL):
                values.append(None)
                used = 1
            else:
                value, size = _read_payload(value_type, view[1:])
                values.append(value)
                used = 1 + size
            rest = rest[used:]
    except (ValueError, OverflowError, IndexError, struct.error):
        return None
    return values if not rest and encode_key(prefix, parts, values) == key else None


def _read_payload(value_type: ValueType, view: bytes) -> tuple[Value, int]:
    match value_type.code:
        case "INT64" | "ENUM":
            return int.from_bytes(view[:8], "big") - _INT_BIAS, 8
        case "STRING" | "BYTES":
            end = view.index(b"\x00\x01")
            raw = view[:end].replace(b"\x00\xff", b"\x00")
            return (raw.decode() if value_type.code == "STRING" else raw), end + 2
        case "BOOL":
            return view[0] == 1, 1
        case "FLOAT64":
            return _read_float(view, ">d"), 8
        case "FLOAT32":
            return _read_float(view, ">f"), 4
        case "UUID":
            digits = _exactly(view, 16).hex()
            parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
            return "-".join(parts), 16
        case "TIMESTAMP":
            return int.from_bytes(view[:12], "big") - _TIMESTAMP_BIAS, 12
        case "DATE":
            return dt.date.fromordinal(int.from_bytes(view[:4], "big")), 4
        case "NUMERIC":
            scaled = int.from_bytes(view[:17], "big") - _NUMERIC_BIAS
            return _WIDE.divide(Decimal(scaled), _NUMERIC_SCALE), 17
        case _:
            raise ValueError(value_type.code)


def _exactly(view: bytes, size: int) -> bytes:
    if len(view) < size:
        raise ValueError("a key ends too early")
    return view[:size]


def _read_float(view: bytes, form: str) -> float:
    width = struct.calcsize(form)
    bits = int.from_bytes(_exactly(view, width), "big")
    if bits == 0:
        return math.nan
    sign = 1 << (8 * width - 1)
    bits = bits & ~sign if bits & sign else bits ^ (2 * sign - 1)
    number: float = struct.unpack(form, bits.to_bytes(width, "big"))[0]
    return number


def successor(prefix: bytes) -> bytes | None:
    """The smallest byte string above everything with this prefix; None if there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes([stripped[-1] + 1])


def midpoint(low: bytes, high: bytes | None) -> bytes | None:
    """A byte string strictly between two bounds, near the middle; None if there is no room."""
    width = max(len(low), len(high or b"")) + 2
    bottom = int.from_bytes(low.ljust(width, b"\x00"), "big")
    top = 1 << (8 * width) if high is None else int.from_bytes(high.ljust(width, b"\x00"), "big")
    middle = (bottom + top) // 2
    if not bottom < middle < top:
        return None
    text = middle.to_bytes(width, "big")
    # Shorter is easier to read, as long as it stays inside.
    for size in range(1, width):
        cut = text[:size]
        if cut > low and (high is None or cut < high):
            return cut
    return text

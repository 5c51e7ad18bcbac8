r"""Primary keys as byte strings that sort as the keys do, in one keyspace over all tables.

A key is the table's prefix and then its parts. A part is a tag (NULL first) and a payload that is
of fixed length or ends with 00 01, so no part is a prefix of another one; that is why a
descending part can simply be inverted, and why any byte string is a legal range bound.
"""

from __future__ import annotations

import datetime as dt
import math
import struct
from decimal import Context, Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.spanner_simulator.core.values import Value, ValueType

__all__ = ["KeyPart", "decode_key", "encode_key", "midpoint", "successor", "table_prefix"]

_INT_BIAS = 1 << 63
_TIMESTAMP_BIAS = 1 << 95
_NUMERIC_BIAS = 1 << 135
_NUMERIC_SCALE = Decimal(10) ** 9
# The default context keeps 28 digits, NUMERIC has 38.
_WIDE = Context(prec=60)
_INVERT = bytes(255 - byte for byte in range(256))
_NULL, _PRESENT = b"\x00", b"\x01"

KeyPart = tuple["ValueType", bool]
"""A key column's type and whether it is descending."""


def table_prefix(table: str) -> bytes:
    """What every key of a table begins with; tables follow each other by name."""
    return table.encode() + b"\x00"


def encode_key(prefix: bytes, parts: Sequence[KeyPart], values: Sequence[Value]) -> bytes:
    """The byte string of a key, or of its first parts when fewer values are given."""
    out = [prefix]
    for (value_type, descending), value in zip(parts, values, strict=False):
        piece = _NULL if value is None else _PRESENT + _payload(value_type, value)
        out.append(piece.translate(_INVERT) if descending else piece)
    return b"".join(out)


def _payload(value_type: ValueType, value: Value) -> bytes:
    match value_type.code, value:
        case "INT64", int():
            return (value + _INT_BIAS).to_bytes(8, "big")
        case "STRING", str():
            return (
                value.encode("utf-8", "surrogatepass").replace(b"\x00", b"\x00\xff") + b"\x00\x01"
            )
        case "BYTES", bytes():
            return value.replace(b"\x00", b"\x00\xff") + b"\x00\x01"
        case "BOOL", bool():
            return b"\x01" if value else b"\x00"
        case "FLOAT64", float():
            return _float_payload(value)
        case "TIMESTAMP", int():
            return (value + _TIMESTAMP_BIAS).to_bytes(12, "big")
        case "DATE", dt.date():
            return value.toordinal().to_bytes(4, "big")
        case "NUMERIC", Decimal():
            return (int(_WIDE.multiply(value, _NUMERIC_SCALE)) + _NUMERIC_BIAS).to_bytes(17, "big")
        case _:
            raise TypeError(f"{value_type.ddl()} is no key type for {value!r}")


def _float_payload(value: float) -> bytes:
    if math.isnan(value):  # sorts before every number
        return b"\x00" * 8
    bits = int.from_bytes(struct.pack(">d", value + 0.0), "big")
    flipped = bits ^ 0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else bits | 1 << 63
    return flipped.to_bytes(8, "big")


def decode_key(key: bytes, prefix: bytes, parts: Sequence[KeyPart]) -> list[Value] | None:
    """The values of an encoded key; None when the bytes are no whole key (a mere bound)."""
    if not key.startswith(prefix):
        return None
    rest = key[len(prefix) :]
    values: list[Value] = []
    try:
        for value_type, descending in parts:
            view = rest.translate(_INVERT) if descending else rest
            if view[:1] == _NULL:
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
        case "INT64":
            return int.from_bytes(view[:8], "big") - _INT_BIAS, 8
        case "STRING" | "BYTES":
            end = view.index(b"\x00\x01")
            raw = view[:end].replace(b"\x00\xff", b"\x00")
            return (raw.decode() if value_type.code == "STRING" else raw), end + 2
        case "BOOL":
            return view[0] == 1, 1
        case "FLOAT64":
            bits = int.from_bytes(view[:8], "big")
            if bits == 0:
                return float("nan"), 8
            bits = bits & ~(1 << 63) if bits >> 63 else bits ^ 0xFFFF_FFFF_FFFF_FFFF
            return struct.unpack(">d", bits.to_bytes(8, "big"))[0], 8
        case "TIMESTAMP":
            return int.from_bytes(view[:12], "big") - _TIMESTAMP_BIAS, 12
        case "DATE":
            return dt.date.fromordinal(int.from_bytes(view[:4], "big")), 4
        case "NUMERIC":
            scaled = int.from_bytes(view[:17], "big") - _NUMERIC_BIAS
            return _WIDE.divide(Decimal(scaled), _NUMERIC_SCALE), 17
        case _:
            raise ValueError(value_type.code)


def successor(prefix: bytes) -> bytes | None:
    """The smallest byte string above everything that begins with `prefix`; None: there is none."""
    stripped = prefix.rstrip(b"\xff")
    if not stripped:
        return None
    return stripped[:-1] + bytes([stripped[-1] + 1])


def midpoint(low: bytes, high: bytes | None) -> bytes | None:
    """A byte string strictly between two bounds, about half way; None when there is no room."""
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

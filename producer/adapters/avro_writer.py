"""Avro writers compiled once per schema: closures that append to a bytearray.

Covers what the contract's schemas consist of: records, enums, arrays, unions with null, and plain
types; a schema with anything else is refused, for fastavro to write.  The bytes are those that
fastavro writes, which the tests hold as the oracle.  Values are plain already (`core.values`), so
logical types are not looked at.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from tidegate.schemas.errors import SchemaError

__all__ = ["AvroWriter", "compile_writer"]

AvroWriter: TypeAlias = Callable[[bytearray, Any], None]
"""Appends a value's Avro bytes; raises whatever a value of another type trips over."""

_FLOAT, _DOUBLE = struct.Struct("<f"), struct.Struct("<d")
_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1
_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_BOOLEANS = {True: 1, False: 0}
# Lengths and counts are small: their one or two bytes are looked up.
_SHORT_LENGTHS = 4096


def compile_writer(schema: Any) -> AvroWriter:
    """Return the writer of a schema; raises SchemaError for a type that it does not cover."""
    return _compile(schema, {})


def _compile(schema: Any, named: dict[str, AvroWriter]) -> AvroWriter:
    if isinstance(schema, str):
        writer = _PLAIN.get(schema) or named.get(schema)
        if writer is None:
            raise SchemaError("an Avro type that is not compiled", type=schema)
        return writer
    if isinstance(schema, list):
        return _nullable(_compile(_not_null(schema), named))
    match schema["type"]:
        case "record":
            writer = _record([(f["name"], f["type"]) for f in schema["fields"]], named)
            named[schema["name"]] = writer
        case "enum":
            writer = _enum(schema["symbols"])
            named[schema["name"]] = writer
        case "array":
            writer = _array(_compile(schema["items"], named))
        case other:
            writer = _compile(other, named)
    return writer


def _not_null(union: list[Any]) -> Any:
    """Return the other branch of a union that begins with null."""
    if len(union) != 2 or union[0] != "null":
        raise SchemaError("a union that is not compiled", branches=len(union))
    return union[1]


def _record(fields: list[tuple[str, Any]], named: dict[str, AvroWriter]) -> AvroWriter:
    """Write fields in order; only a nullable one may be missing."""
    compiled: list[tuple[str, bool, AvroWriter]] = []
    for name, schema in fields:
        nullable = isinstance(schema, list)
        compiled.append(
            (name, nullable, _compile(_not_null(schema) if nullable else schema, named))
        )

    def write(out: bytearray, value: Any) -> None:
        for name, nullable, write_field in compiled:
            if nullable:
                item = value.get(name)
                if item is None:
                    out.append(0)
                    continue
                out.append(2)
                write_field(out, item)
            else:
                write_field(out, value[name])

    return write


def _nullable(inner: AvroWriter) -> AvroWriter:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0)
        else:
            out.append(2)
            inner(out, value)

    return write


def _enum(symbols: list[str]) -> AvroWriter:
    encoded = {symbol: _varint(index) for index, symbol in enumerate(symbols)}

    def write(out: bytearray, value: Any) -> None:
        out += encoded[value]

    return write


def _array(item: AvroWriter) -> AvroWriter:
    """Write one block and the empty one that ends the array."""

    def write(out: bytearray, value: Any) -> None:
        if value:
            out += _length(len(value))
            for element in value:
                item(out, element)
        out.append(0)

    return write


def _varint(number: int) -> bytes:
    """Return a signed number as Avro's zigzag variable-length integer."""
    rest = (number << 1) ^ (number >> 63)
    encoded = bytearray()
    while rest > 127:
        encoded.append(rest & 127 | 128)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


_LENGTHS = [_varint(number) for number in range(_SHORT_LENGTHS)]


def _length(number: int) -> bytes:
    return _LENGTHS[number] if number < _SHORT_LENGTHS else _varint(number)


def _long(out: bytearray, value: Any) -> None:
    if 0 <= value < _SHORT_LENGTHS:
        out += _LENGTHS[value]
        return
    if not _INT64_MIN <= value <= _INT64_MAX:
        raise OverflowError("beyond 64 bits")
    rest = (value << 1) ^ (value >> 63)
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    out.append(rest)


def _int(out: bytearray, value: Any) -> None:
    if not _INT32_MIN <= value <= _INT32_MAX:
        raise OverflowError("beyond 32 bits")
    _long(out, value)


def _string(out: bytearray, value: Any) -> None:
    data = value.encode()
    out += _length(len(data))
    out += data


def _bytes(out: bytearray, value: Any) -> None:
    out += _length(len(value))
    out += value


def _boolean(out: bytearray, value: Any) -> None:
    out.append(_BOOLEANS[value])


def _float(out: bytearray, value: Any) -> None:
    out += _FLOAT.pack(value)


def _double(out: bytearray, value: Any) -> None:
    out += _DOUBLE.pack(value)


_PLAIN: dict[str, AvroWriter] = {
    "long": _long,
    "int": _int,
    "string": _string,
    "bytes": _bytes,
    "boolean": _boolean,
    "float": _float,
    "double": _double,
}

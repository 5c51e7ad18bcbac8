"""Confluent's framing of a registered Avro body: magic byte 0, schema id, body.

Pure: it uses neither a registry nor Avro.
"""

from __future__ import annotations

import struct

from tidegate.schemas.errors import SchemaError

_HEADER = struct.Struct(">bI")
_MAGIC = 0
HEADER_BYTES = _HEADER.size


def frame_prefix(schema_id: int) -> bytes:
    """Return the five bytes before every body with this schema."""
    return _HEADER.pack(_MAGIC, schema_id)


def frame(schema_id: int, body: bytes) -> bytes:
    """Return `body` with its five-byte header."""
    return frame_prefix(schema_id) + body


def unframe(data: bytes) -> tuple[int, bytes]:
    """Return (schema id, body); raises SchemaError without such a header."""
    if len(data) < HEADER_BYTES or data[0] != _MAGIC:
        raise SchemaError(
            "bytes have no Confluent header (a zero byte and a schema id)",
            start=data[:HEADER_BYTES].hex(),
            length=len(data),
        )
    _, schema_id = _HEADER.unpack_from(data)
    return schema_id, data[HEADER_BYTES:]

"""Files of records, whole in memory: Avro containers, and JSON lines.

The bytes are a function of the records and the file's name, so that a file that is written again is
the same.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import fastavro

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_BLOCK_BYTES = 64 * 1024
_METADATA = fastavro.parse_schema({"type": "map", "values": "bytes"})
_LONG = fastavro.parse_schema("long")


class FileFormat(StrEnum):
    """How files hold their events; the value is the ending of their names, without the dot."""

    AVRO = "avro"
    JSON = "jsonl"
    JSON_GZIP = "jsonl.gz"


def avro_file(records: Sequence[bytes], schema: Mapping[str, Any], *, name: str) -> bytes:
    """Return an Avro container file, without compression, of encoded records.

    `name` decides the file's sync marker, which is random elsewhere.
    """
    out = io.BytesIO()
    sync = hashlib.sha256(name.encode()).digest()[:_SYNC_BYTES]
    out.write(_MAGIC)
    head = {
        "avro.schema": json.dumps(schema, separators=(",", ":")).encode(),
        "avro.codec": b"null",
    }
    fastavro.schemaless_writer(out, _METADATA, head)
    out.write(sync)
    block: list[bytes] = []
    size = 0
    for record in records:
        block.append(record)
        size += len(record)
        if size >= _BLOCK_BYTES:
            _write_block(out, block, sync)
            block, size = [], 0
    if block:
        _write_block(out, block, sync)
    return out.getvalue()


def json_file(lines: Sequence[bytes], *, is_compressed: bool) -> bytes:
    """Return a file of JSON lines, plain or with gzip."""
    data = b"".join(lines)
    return gzip.compress(data, mtime=0) if is_compressed else data


def _write_block(out: io.BytesIO, block: Sequence[bytes], sync: bytes) -> None:
    data = b"".join(block)
    for number in (len(block), len(data)):
        fastavro.schemaless_writer(out, _LONG, number)
    out.write(data)
    out.write(sync)

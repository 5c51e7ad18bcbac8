r"""Result rows straight to protobuf bytes, without a message object per value.

A field of a serialised message may be appended by concatenation, so a row is encoded once (as the
`values` field of PartialResultSet) and then goes to any number of readers, in messages of any size.
Field numbers: google.protobuf.Value {null 1, number 2, string 3, bool 4, list 6}, ListValue
{values 1}, PartialResultSet {metadata 1, values 2, chunked_value 3, resume_token 4, stats 5,
precommit_token 8}, ResultSet {metadata 1, rows 2, stats 3, precommit_token 5}.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from spanner_simulator.core.values import Plain

NULL = b"\x08\x00"
TRUE, FALSE = b"\x20\x01", b"\x20\x00"
_METADATA, _VALUES, _RESUME_TOKEN, _PRECOMMIT_TOKEN = b"\x0a", b"\x12", b"\x22", b"\x42"
_CHUNKED, _STATS = b"\x18\x01", b"\x2a"
# Nearly all strings are short: their tags and sizes are made once.
_STRING_HEADS = tuple(b"\x1a" + bytes((size,)) for size in range(128))
_VALUE_HEADS = tuple(_VALUES + bytes((size,)) for size in range(128))
_SET_ROWS, _SET_STATS, _SET_PRECOMMIT_TOKEN = b"\x12", b"\x1a", b"\x2a"


# Most sizes are small; a look-up takes a third of the time of encoding.
_SMALL = [bytes((size,)) for size in range(128)] + [
    bytes((size & 127 | 128, size >> 7)) for size in range(128, 16384)
]


def varint(tag: bytes, size: int) -> bytes:
    """A tag and the size after it."""
    if size < 16384:
        return tag + _SMALL[size]
    digits = bytearray(tag)
    while size > 127:
        digits.append(size & 127 | 128)
        size >>= 7
    digits.append(size)
    return bytes(digits)


def sized(tag: bytes, payload: bytes) -> bytes:
    """A length-delimited field: its tag, the size, the payload."""
    size = len(payload)
    return tag + _SMALL[size] + payload if size < 16384 else varint(tag, size) + payload


def string_bytes(text: str | bytes) -> bytes:
    """A Value that holds a string; bytes must be UTF-8."""
    raw = text.encode() if isinstance(text, str) else text
    size = len(raw)
    return _STRING_HEADS[size] + raw if size < 128 else varint(b"\x1a", size) + raw


def list_bytes(values: Iterable[bytes]) -> bytes:
    """A Value that holds a list of encoded Values."""
    return sized(b"\x32", b"".join([sized(b"\x0a", value) for value in values]))


def plain_bytes(plain: Plain) -> bytes:
    """A Value from plain form."""
    if plain is None:
        return NULL
    if isinstance(plain, bool):
        return TRUE if plain else FALSE
    if isinstance(plain, str):
        return string_bytes(plain)
    if isinstance(plain, list):
        return list_bytes([plain_bytes(item) for item in plain])
    if isinstance(plain, dict):
        raise TypeError("a result value is never an object")
    return b"\x11" + struct.pack("<d", plain)


def row_bytes(values: Iterable[bytes]) -> bytes:
    """The `values` field of PartialResultSet, once per encoded Value."""
    return b"".join(
        [
            _VALUE_HEADS[len(value)] + value if len(value) < 128 else sized(_VALUES, value)
            for value in values
        ]
    )


def message_bytes(
    rows: Iterable[bytes],
    *,
    metadata: bytes | None = None,
    is_chunked: bool = False,
    resume_token: bytes | None = None,
    stats: bytes | None = None,
    precommit_token: bytes | None = None,
) -> bytes:
    """A whole PartialResultSet; `metadata`, `stats` and `precommit_token` are serialised messages.

    `is_chunked`: the last value continues in the next message.
    """
    parts = [] if metadata is None else [sized(_METADATA, metadata)]
    parts.extend(rows)
    if is_chunked:
        parts.append(_CHUNKED)
    ends = (_RESUME_TOKEN, resume_token), (_STATS, stats), (_PRECOMMIT_TOKEN, precommit_token)
    return b"".join((*parts, *[sized(tag, end) for tag, end in ends if end is not None]))


def result_set_bytes(
    rows: Iterable[Iterable[bytes]],
    *,
    metadata: bytes,
    stats: bytes | None = None,
    precommit_token: bytes | None = None,
) -> bytes:
    """A whole ResultSet, from rows of encoded Values."""
    parts = [sized(_METADATA, metadata)]
    parts.extend(
        sized(_SET_ROWS, b"".join([sized(b"\x0a", value) for value in row])) for row in rows
    )
    ends = (_SET_STATS, stats), (_SET_PRECOMMIT_TOKEN, precommit_token)
    return b"".join((*parts, *[sized(tag, end) for tag, end in ends if end is not None]))

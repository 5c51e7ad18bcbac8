"""The order key: one byte string per change that sorts, bytewise, as commit order.

    commit timestamp   8 bytes   microseconds since 1970, unsigned, big endian
    transaction id     UTF-8     then one 0x00
    record sequence   16 bytes   two unsigned big-endian integers (high, low)
    mod number         4 bytes   unsigned, big endian

Spanner orders changes by (commit_timestamp, server_transaction_id, record_sequence) and, within a
record, by the position of the mod.  The record sequence is decimal digits in streams with immutable
key ranges (high is 0), `<hex>-<hex>` in those with mutable ones.  This is the only place that
encodes or decodes the key, apart from the accelerator's copy of the encoding.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from tidegate.schemas.errors import SchemaError

TIMESTAMP_BYTES = 8
_TAIL = struct.Struct(">QQI")
_UINT64_MAX = (1 << 64) - 1
# Bounded digits: parsing a long run of them would take seconds.
_SEQUENCE = re.compile(
    r"(?P<decimal>[0-9]{1,40})|(?P<high>[0-9A-Fa-f]{1,40})-(?P<low>[0-9A-Fa-f]{1,40})"
)


def sequence_pair(record_sequence: str) -> tuple[int, int]:
    """Return a record sequence as comparable integers (high, low).

    Raises SchemaError if it is neither decimal digits nor `<hex>-<hex>`, or a number exceeds 64
    bits.
    """
    # A stream with immutable key ranges: up to 19 digits fit 64 bits.
    if len(record_sequence) < 20 and record_sequence.isascii() and record_sequence.isdigit():
        return 0, int(record_sequence)
    match = _SEQUENCE.fullmatch(record_sequence)
    if match is None:
        pair = (_UINT64_MAX + 1, 0)
    elif match["decimal"]:
        pair = (0, int(match["decimal"]))
    else:
        pair = (int(match["high"], 16), int(match["low"], 16))
    if max(pair) > _UINT64_MAX:
        raise SchemaError(
            "record sequence is neither decimal digits nor <hex>-<hex>",
            record_sequence=record_sequence[:80],
        )
    return pair


@dataclass(frozen=True, slots=True, order=False)
class OrderKey:
    """A change's place in commit order; `encode` returns bytes that sort in the same order."""

    commit_timestamp_us: int
    server_transaction_id: str
    record_sequence: tuple[int, int]
    mod_number: int

    def encode(self) -> bytes:
        """Return the byte string; raises SchemaError for a field that it cannot represent."""
        (encoded,) = self.encode_mods(1)
        return encoded

    def encode_mods(self, count: int) -> list[bytes]:
        """Return the byte strings of `count` mods of a record; this key is that of the first mod.

        Raises SchemaError for a field that they cannot represent.
        """
        if "\0" in self.server_transaction_id:
            raise SchemaError(
                "server transaction id contains a NUL, which the order key cannot represent",
                server_transaction_id=self.server_transaction_id,
            )
        try:
            start = (
                self.commit_timestamp_us.to_bytes(TIMESTAMP_BYTES, "big")
                + self.server_transaction_id.encode()
                + b"\0"
            )
            high, low = self.record_sequence
            numbers = range(self.mod_number, self.mod_number + count)
            return [start + _TAIL.pack(high, low, number) for number in numbers]
        except (OverflowError, struct.error, UnicodeEncodeError) as error:
            raise SchemaError(
                "coordinates of a change are out of the order key's range", order_key=repr(self)
            ) from error

    @classmethod
    def decode(cls, data: bytes) -> OrderKey:
        """Decode a byte string; raises SchemaError if it is not an order key."""
        try:
            end = data.index(b"\0", TIMESTAMP_BYTES)
            high, low, mod_number = _TAIL.unpack(data[end + 1 :])
            transaction_id = data[TIMESTAMP_BYTES:end].decode()
        except (ValueError, struct.error) as error:
            raise SchemaError(
                "bytes are not an order key", start=data[:64].hex(), length=len(data)
            ) from error
        timestamp_us = int.from_bytes(data[:TIMESTAMP_BYTES], "big")
        return cls(timestamp_us, transaction_id, (high, low), mod_number)


def first_key_after(commit_timestamp_us: int) -> bytes:
    """Return the bound between all keys at or before a commit time and all later ones.

    `key < first_key_after(t)` holds for exactly the changes with a commit timestamp <= t; there are
    no changes before 1970.
    """
    return max(commit_timestamp_us + 1, 0).to_bytes(TIMESTAMP_BYTES, "big")

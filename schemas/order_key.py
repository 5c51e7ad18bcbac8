"""The order key: one byte string per change that sorts, bytewise, as commit order.

    commit timestamp   8 bytes   microseconds since 1970, unsigned, big endian
    transaction id     UTF-8     then one 0x00
    record sequence   16 bytes   two unsigned big-endian integers (high, low)
    mod number         4 bytes   unsigned, big endian

Spanner orders changes by (commit_timestamp, server_transaction_id, record_sequence) and, within a
record, by the position of the mod (seed: "Data change records").  The record sequence is decimal
digits in streams with immutable key ranges (high is 0), `<hex>-<hex>` in those with mutable ones.
This is the only place where the key is built or taken apart.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass

from tidegate.schemas.errors import SchemaError

__all__ = [
    "CHECKSUM_MODULUS",
    "TIMESTAMP_BYTES",
    "OrderKey",
    "first_key_after",
    "order_key_checksum",
    "sequence_pair",
]

TIMESTAMP_BYTES = 8
CHECKSUM_MODULUS = 1 << 64
_TAIL = struct.Struct(">QQI")
_UINT64_MAX = (1 << 64) - 1
# Bounded digits: a run of them must not become a number that takes seconds to read.
_SEQUENCE = re.compile(
    r"(?P<decimal>[0-9]{1,40})|(?P<high>[0-9A-Fa-f]{1,40})-(?P<low>[0-9A-Fa-f]{1,40})"
)


def sequence_pair(record_sequence: str) -> tuple[int, int]:
    """Return a record sequence as comparable integers (high, low).

    Raises SchemaError if it is neither decimal digits nor `<hex>-<hex>`, or does not fit 64 bits
    each.
    """
    match = _SEQUENCE.fullmatch(record_sequence)
    if match is None:
        pair = (_UINT64_MAX + 1, 0)
    elif match["decimal"]:
        pair = (0, int(match["decimal"]))
    else:
        pair = (int(match["high"], 16), int(match["low"], 16))
    if max(pair) > _UINT64_MAX:
        message = "a record sequence is neither decimal digits nor <hex>-<hex>"
        raise SchemaError(message, record_sequence=record_sequence[:80])
    return pair


@dataclass(frozen=True, slots=True, order=False)
class OrderKey:
    """A change's place in commit order; `encode` gives the bytes that sort like it."""

    commit_timestamp_us: int
    server_transaction_id: str
    record_sequence: tuple[int, int]
    mod_number: int

    def encode(self) -> bytes:
        """Return the byte string; raises SchemaError for a field that has no place in it."""
        if "\0" in self.server_transaction_id:
            message = "a server transaction id holds a NUL, which ends it in the order key"
            raise SchemaError(message, server_transaction_id=self.server_transaction_id)
        try:
            return (
                self.commit_timestamp_us.to_bytes(TIMESTAMP_BYTES, "big")
                + self.server_transaction_id.encode()
                + b"\0"
                + _TAIL.pack(*self.record_sequence, self.mod_number)
            )
        except (OverflowError, struct.error, UnicodeEncodeError) as error:
            message = "a change's coordinates do not fit the order key"
            raise SchemaError(message, order_key=repr(self)) from error

    @classmethod
    def decode(cls, data: bytes) -> OrderKey:
        """Take a byte string apart; raises SchemaError if it is not an order key."""
        try:
            end = data.index(b"\0", TIMESTAMP_BYTES)
            high, low, mod_number = _TAIL.unpack(data[end + 1 :])
            transaction_id = data[TIMESTAMP_BYTES:end].decode()
        except (ValueError, struct.error) as error:
            message = "these bytes are not an order key"
            raise SchemaError(message, start=data[:64].hex(), length=len(data)) from error
        timestamp_us = int.from_bytes(data[:TIMESTAMP_BYTES], "big")
        return cls(timestamp_us, transaction_id, (high, low), mod_number)


def first_key_after(commit_timestamp_us: int) -> bytes:
    """Return the bound between all keys at or before a commit time and all later ones.

    `key < first_key_after(t)` holds for exactly the changes with a commit timestamp <= t; before
    1970 there are none.
    """
    return max(commit_timestamp_us + 1, 0).to_bytes(TIMESTAMP_BYTES, "big")


def order_key_checksum(encoded: bytes) -> int:
    """Return a key's share of a checksum; shares are added modulo 2^64, so their order is free."""
    return int.from_bytes(hashlib.blake2b(encoded, digest_size=8).digest(), "big")

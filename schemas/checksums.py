"""Checksums of many changes, from their order keys: the sum of a hash, modulo 2^64.

A sum does not depend on the order, and shows a change that is counted twice.
The same hash names a parked key, and the stream partition that a change comes from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

from xxhash import xxh64_digest, xxh64_intdigest

from tidegate.schemas.progress import ChecksumKind

CHECKSUM_MODULUS = 1 << 64
_SEED = 42
"""The seed of Spark's `xxhash64`, which computes the same hash as a signed number."""


def xxhash_64(order_key: bytes) -> int:
    """Return a key's summand: XXH64 with seed 42."""
    return xxh64_intdigest(order_key, _SEED)


def parked_key(topic: str, key: bytes) -> int:
    """Return the id of a parked key: XXH64 of its data topic, a zero byte and the framed key.

    A signed 64-bit number.  Two keys with the same id are parked together.
    """
    number = xxh64_intdigest(b"\0".join((topic.encode(), key)), _SEED)
    return number - CHECKSUM_MODULUS if number >> 63 else number


def origin_of(token: str) -> bytes:
    """Return the id of a stream partition in the header of its changes: XXH64 of its token.

    8 bytes, big endian.  Spark's `xxhash64` of the token is the same as a signed number.
    """
    return xxh64_digest(token.encode(), _SEED)


def blake2b_64(order_key: bytes) -> int:
    """Return a key's summand under version 1: BLAKE2b of 8 bytes, big endian."""
    return int.from_bytes(hashlib.blake2b(order_key, digest_size=8).digest(), "big")


CHECKSUMS: Mapping[ChecksumKind, Callable[[bytes], int]] = MappingProxyType(
    {ChecksumKind.BLAKE2B_64: blake2b_64, ChecksumKind.XXHASH_64: xxhash_64}
)

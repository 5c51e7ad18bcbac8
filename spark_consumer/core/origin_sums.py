"""Changes summed by the stream partition they come from, as completion markers state them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.schemas.checksums import CHECKSUM_MODULUS, origin_of, xxhash_64

Pair: TypeAlias = tuple[int | None, str]
"""An `origin` as a signed number, None where a record does not say it, and a topic."""


@dataclass(frozen=True, slots=True)
class OriginSum:
    """What one `origin` has in one topic; `checksum` is modulo 2^64."""

    mods: int
    value_bytes: int
    checksum: int

    def __add__(self, other: OriginSum) -> OriginSum:
        """Return the sum of both."""
        return OriginSum(
            self.mods + other.mods,
            self.value_bytes + other.value_bytes,
            (self.checksum + other.checksum) % CHECKSUM_MODULUS,
        )

    def content(self) -> dict[str, int | str]:
        """Return the figures as an audit names them."""
        return {
            "mods": self.mods,
            "value_bytes": self.value_bytes,
            "checksum": f"{self.checksum:016x}",
        }


NO_CHANGES_OF_ORIGIN = OriginSum(0, 0, 0)


def signed_origin(token: str) -> int:
    """Return the `origin` of a token as Spark's rows hold it."""
    return int.from_bytes(origin_of(token), "big", signed=True)


def sum_by_origin(
    changes: Iterable[tuple[int | None, str, bytes, int]],
) -> Mapping[Pair, OriginSum]:
    """Sum changes: of each its `origin`, topic, order key and the bytes of its value."""
    sums: dict[Pair, OriginSum] = {}
    for origin, topic, order_key, value_bytes in changes:
        one = OriginSum(1, value_bytes, xxhash_64(order_key))
        sums[origin, topic] = sums.get((origin, topic), NO_CHANGES_OF_ORIGIN) + one
    return sums

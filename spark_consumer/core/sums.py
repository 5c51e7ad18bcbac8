"""Sums of rows and changes: how many, and a checksum of their contents.

Changes are also summed by their stream partition, as completion markers state them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tidegate.schemas.checksums import CHECKSUM_MODULUS, origin_of, xxhash_64
from tidegate.spark_consumer.core.transactions import ALL_WHOLE, TransactionFaults

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
        total = OriginSum(1, value_bytes, xxhash_64(order_key))
        sums[origin, topic] = sums.get((origin, topic), NO_CHANGES_OF_ORIGIN) + total
    return sums


@dataclass(frozen=True, slots=True)
class RowSum:
    """How many rows, and the sum of their hashes modulo 2^64."""

    rows: int
    checksum: int

    def __add__(self, other: RowSum) -> RowSum:
        """Return the sum of both."""
        checksum = (self.checksum + other.checksum) % CHECKSUM_MODULUS
        return RowSum(self.rows + other.rows, checksum)


NO_ROWS = RowSum(0, 0)


@dataclass(frozen=True, slots=True)
class SegmentRead:
    """The part of a segment that is read: `after_us` < commit timestamp <= `through_us`.

    `expected` is the sum when it was written; None if an older program wrote the segment,
    uncounted.
    """

    name: str
    after_us: int
    through_us: int
    expected: RowSum | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Records that have one order key, and differ in topic, key, value or mod."""

    changes: int
    """Order keys with such records."""
    commit_timestamp_us: int
    """The commit time of the lowest of these order keys."""
    first: str
    """The first record of that order key, as topic/topic partition/offset."""
    last: str
    """Its last record, likewise."""


@dataclass(frozen=True, slots=True)
class ReleaseCount:
    """The counts of a release, made before it is written."""

    rows: int
    """Changes, each once."""
    copies: int
    """The same with every copy."""
    waiting: RowSum = NO_ROWS
    """All that was read of the counted segments, also outside the release's bounds."""
    waiting_due: int = 0
    """Rows of all its segments within the release's bounds."""
    conflict: Conflict | None = None
    transactions: TransactionFaults = ALL_WHOLE
    origins: Mapping[Pair, OriginSum] = field(default_factory=dict)
    """The sums of its changes by origin."""
    dead_letters: int = 0
    """Records within its bounds that cannot be decoded, and are to be set aside: no changes."""
    leaves_out: bool = False
    """Whether the change stream leaves changes out, by the plan's value schemas."""

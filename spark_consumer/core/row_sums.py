"""How many rows there are, and a checksum of what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate.spark_consumer.core.origin_sums import OriginSum, Pair
from tidegate.spark_consumer.core.transactions import ALL_WHOLE, TransactionFaults

CHECKSUM_MODULUS = 1 << 64


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
    """What is read of a segment: `after_us` < commit timestamp <= `through_us`.

    `expected` is what was written there; None if an older program wrote the segment, uncounted.
    """

    name: str
    after_us: int
    through_us: int
    expected: RowSum | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """Records that have one order key, and differ in topic, key, value or mod."""

    changes: int
    """Order keys of which this is true."""
    commit_timestamp_us: int
    """One of them: its time; its first and its last record, as topic/topic partition/offset."""
    first: str
    last: str


@dataclass(frozen=True, slots=True)
class ReleaseCount:
    """What was found for a release, before it is written."""

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
    """Its changes, summed by where they come from."""
    dead_letters: int = 0
    """Records within its bounds that cannot be decoded, and are to be set aside: no changes."""
    leaves_out: bool = False
    """Whether the change stream leaves changes out, as far as the plan's value schemas say."""

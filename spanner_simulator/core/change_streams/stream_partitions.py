"""The stream partitions of one change stream: who holds which keys, from when to when.

At any time the live ones cover the whole keyspace without overlap. A stream partition's records
lie in [start, end); its children start exactly at its end. All parents of a merge name the same
child. Tokens are opaque and never used twice.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from tidegate.spanner_simulator.errors import Code, SpannerError, invariant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.spanner_simulator.core.change_streams.assembly import DataChangeRecord

__all__ = ["Chance", "StreamPartition", "StreamPartitions"]

_RECENT_KEYS_MAX = 512
_TOKEN_BYTES = 132


class Chance(Protocol):
    """The seeded source of chance; `random.Random` fits."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """An integer of k bits."""
        ...


@dataclass(slots=True)
class StreamPartition:
    """One stream partition over its whole life; `end_us` and `children` are set when it ends."""

    token: str
    low: bytes
    high: bytes | None
    start_us: int
    parents: tuple[str, ...] = ()
    end_us: int | None = None
    children: tuple[StreamPartition, ...] = ()
    records: list[DataChangeRecord] = field(default_factory=list)
    recent_keys: deque[bytes] = field(default_factory=lambda: deque(maxlen=_RECENT_KEYS_MAX))

    @property
    def is_live(self) -> bool:
        """Whether new records may still come."""
        return self.end_us is None

    def append(self, record: DataChangeRecord) -> None:
        """Add the next record in commit order."""
        invariant(self.end_us is None, "a record for a stream partition that has ended")
        invariant(record.commit_timestamp_us >= self.start_us, "a record before the start")
        self.records.append(record)


class StreamPartitions:
    """All stream partitions, live and ended, of one change stream."""

    def __init__(self, chance: Chance, bounds: Sequence[bytes], *, start_us: int) -> None:
        """`bounds` are the inner borders, ascending; one more stream partition than borders."""
        self._chance = chance
        self.by_token: dict[str, StreamPartition] = {}
        edges: list[bytes | None] = [b"", *bounds, None]
        self.live: list[StreamPartition] = [
            self._make(low or b"", high, start_us=start_us) for low, high in pairwise(edges)
        ]
        self._index()

    def _make(
        self,
        low: bytes,
        high: bytes | None,
        *,
        start_us: int,
        parents: Sequence[StreamPartition] = (),
    ) -> StreamPartition:
        raw = self._chance.getrandbits(8 * _TOKEN_BYTES).to_bytes(_TOKEN_BYTES, "big")
        token = base64.urlsafe_b64encode(raw).decode()
        child = StreamPartition(
            token, low, high, start_us, tuple(parent.token for parent in parents)
        )
        for parent in parents:
            child.recent_keys.extend(
                key for key in parent.recent_keys if low <= key and (high is None or key < high)
            )
        self.by_token[token] = child
        return child

    def _index(self) -> None:
        self.live.sort(key=lambda one: one.low)
        self._lows = [one.low for one in self.live]

    def locate(self, key: bytes) -> StreamPartition:
        """The live stream partition that holds a key."""
        return self.live[bisect_right(self._lows, key) - 1]

    def find_live(self, token: str) -> StreamPartition:
        """A live stream partition by token: NOT_FOUND, or FAILED_PRECONDITION when it ended."""
        found = self.by_token.get(token)
        if found is None:
            raise SpannerError(Code.NOT_FOUND, f"No stream partition has the token {token}")
        if not found.is_live:
            raise SpannerError(
                Code.FAILED_PRECONDITION, f"The stream partition {token} has ended already"
            )
        return found

    def active_at(self, timestamp_ns: int) -> list[StreamPartition]:
        """Those whose life [start, end) holds this time, in key order."""
        found = [
            one
            for one in self.by_token.values()
            if one.start_us * 1000 <= timestamp_ns
            and (one.end_us is None or timestamp_ns < one.end_us * 1000)
        ]
        return sorted(found, key=lambda one: one.low)

    def split(self, parent: StreamPartition, at: bytes, *, at_us: int) -> list[StreamPartition]:
        """End one, start two that meet at the key `at`, which must lie strictly inside."""
        if not (parent.low < at and (parent.high is None or at < parent.high)):
            raise SpannerError(
                Code.INVALID_ARGUMENT, "The split key is not inside the stream partition"
            )
        children = [
            self._make(parent.low, at, start_us=at_us, parents=(parent,)),
            self._make(at, parent.high, start_us=at_us, parents=(parent,)),
        ]
        return self._succeed([parent], children, at_us=at_us)

    def merge(self, parents: Sequence[StreamPartition], *, at_us: int) -> list[StreamPartition]:
        """End neighbours, start one that covers them."""
        ordered = sorted(parents, key=lambda one: one.low)
        neighbours = all(left.high == right.low for left, right in pairwise(ordered))
        if len(ordered) < 2 or not neighbours:
            raise SpannerError(
                Code.INVALID_ARGUMENT,
                "A merge needs two or more stream partitions whose key ranges touch each other",
            )
        child = self._make(ordered[0].low, ordered[-1].high, start_us=at_us, parents=ordered)
        return self._succeed(ordered, [child], at_us=at_us)

    def move(self, parent: StreamPartition, *, at_us: int) -> list[StreamPartition]:
        """End one, start one with the same keys."""
        child = self._make(parent.low, parent.high, start_us=at_us, parents=(parent,))
        return self._succeed([parent], [child], at_us=at_us)

    def _succeed(
        self, parents: Sequence[StreamPartition], children: list[StreamPartition], *, at_us: int
    ) -> list[StreamPartition]:
        for parent in parents:
            invariant(parent.start_us < at_us, "a stream partition must have lived")
            invariant(
                not parent.records or parent.records[-1].commit_timestamp_us < at_us,
                "a parent's record at or after its children's start",
            )
            parent.end_us = at_us
            parent.children = tuple(children)
        self.live = [one for one in self.live if one.is_live] + children
        self._index()
        return children

"""The stream partitions of one change stream: their keys and lifetimes.

At any time the live ones cover the whole keyspace without overlap.  A stream partition's records
lie in [start, end); its children start exactly at its end.  With immutable key ranges each has one
fixed range and all parents of a merge name the same child; with mutable ones ranges also move
between live stream partitions, and each reports it in its own records.  Tokens are opaque and never
used twice.
"""

from __future__ import annotations

import base64
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import pairwise

from spanner_simulator.core.change_streams.mutable_events import (
    announce_keys_moved,
    announce_succession,
)
from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.rng import Rng
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.errors import failed_precondition, invalid_argument, invariant, not_found

_EXPIRED_TOKENS_MAX = 65_536
_TOKEN_BYTES = 132
# For a stream partition that has ended; without room, nothing can be added by mistake.
_NO_KEYS: deque[bytes] = deque(maxlen=0)


class StreamPartitions:
    """All stream partitions, live and ended, of one change stream.

    A turn (split, merge, move) happens at `at_us`; its `order` distinguishes it from transactions
    in the record sequences of mutable key ranges, and grows with time.  Records older than
    `kept_since_us` were dropped; a longer retention period does not restore them.
    """

    def __init__(
        self, chance: Rng, bounds: Sequence[bytes], *, start_us: int, is_mutable: bool = False
    ) -> None:
        """`bounds` are the inner borders, ascending; one more stream partition than borders."""
        self._chance = chance
        self.is_mutable = is_mutable
        self.by_token: dict[str, StreamPartition] = {}
        self.expired_tokens: dict[str, None] = {}
        self.kept_since_us = 0
        edges: list[bytes | None] = [b"", *bounds, None]
        self.live: list[StreamPartition] = [
            self._make((KeyRange(low or b"", high),), start_us=start_us)
            for low, high in pairwise(edges)
        ]
        self._index()

    def _make(
        self,
        ranges: tuple[KeyRange, ...],
        *,
        start_us: int,
        parents: Sequence[StreamPartition] = (),
    ) -> StreamPartition:
        raw = self._chance.getrandbits(8 * _TOKEN_BYTES).to_bytes(_TOKEN_BYTES, "big")
        token = base64.urlsafe_b64encode(raw).decode()
        names = tuple(parent.token for parent in parents)
        child = StreamPartition(token, ranges, start_us, names, self.is_mutable)
        for parent in parents:
            child.recent_keys.extend(key for key in parent.recent_keys if child.holds(key))
        self.by_token[token] = child
        return child

    def _index(self) -> None:
        self.live.sort(key=lambda partition: (partition.low, partition.start_us))
        owned = sorted(
            ((held.low, partition) for partition in self.live for held in partition.ranges),
            key=lambda pair: pair[0],
        )
        self._lows = [low for low, _ in owned]
        self._owners = [partition for _, partition in owned]

    def locate(self, key: bytes) -> StreamPartition:
        """The live stream partition that holds a key."""
        return self._owners[bisect_right(self._lows, key) - 1]

    def find_live(self, token: str) -> StreamPartition:
        """A live stream partition by token: NOT_FOUND, or FAILED_PRECONDITION if it has ended."""
        partition = self.by_token.get(token)
        if partition is None:
            raise not_found(f"No stream partition has the token {token}")
        if not partition.is_live:
            raise failed_precondition(f"The stream partition {token} has ended already")
        return partition

    def active_at(self, timestamp_ns: int) -> list[StreamPartition]:
        """The stream partitions whose lifetime [start, end) includes this time, in key order.

        With mutable key ranges the end is included, because the records that move the keys out have
        its time.
        """
        active = [
            partition
            for partition in self.by_token.values()
            if partition.start_us * 1000 <= timestamp_ns
            and (
                partition.end_us is None
                or timestamp_ns < partition.end_us * 1000
                or (self.is_mutable and timestamp_ns == partition.end_us * 1000)
            )
        ]
        return sorted(active, key=lambda partition: (partition.low, partition.start_us))

    def split(
        self, parent: StreamPartition, boundary: bytes, *, at_us: int, order: int = 0
    ) -> list[StreamPartition]:
        """End one and start two that meet at the key `boundary`, which must be strictly inside."""
        below, above = _cut(parent.ranges, boundary)
        if not below or not above:
            raise invalid_argument("The split key is not inside the stream partition")
        children = [
            self._make(below, start_us=at_us, parents=(parent,)),
            self._make(above, start_us=at_us, parents=(parent,)),
        ]
        return self._succeed([parent], children, at_us=at_us, order=order)

    def merge(
        self, parents: Sequence[StreamPartition], *, at_us: int, order: int = 0
    ) -> list[StreamPartition]:
        """End neighbours and start one with all their keys; mutable ones need not be neighbours."""
        ordered = sorted(parents, key=lambda parent: parent.low)
        neighbours = self.is_mutable or all(
            left.high == right.low for left, right in pairwise(ordered)
        )
        if len(ordered) < 2 or not neighbours:
            raise invalid_argument(
                "A merge needs two or more stream partitions whose key ranges touch each other",
            )
        ranges = _joined(held for parent in ordered for held in parent.ranges)
        child = self._make(ranges, start_us=at_us, parents=ordered)
        return self._succeed(ordered, [child], at_us=at_us, order=order)

    def move(self, parent: StreamPartition, *, at_us: int, order: int = 0) -> list[StreamPartition]:
        """End one and start one with the same keys."""
        child = self._make(parent.ranges, start_us=at_us, parents=(parent,))
        return self._succeed([parent], [child], at_us=at_us, order=order)

    def move_keys(
        self,
        source: StreamPartition,
        destination: StreamPartition,
        keys: KeyRange,
        *,
        at_us: int,
        order: int = 0,
    ) -> None:
        """Move those of `keys` that one live mutable stream partition holds to another one."""
        if not self.is_mutable:
            raise failed_precondition(
                "Keys move between stream partitions only with partition_mode MUTABLE_KEY_RANGE",
            )
        below, rest = _cut(source.ranges, keys.low)
        moved, above = (rest, ()) if keys.high is None else _cut(rest, keys.high)
        if source is destination or not moved:
            raise invalid_argument(
                "A move needs two stream partitions and keys that the first of them holds",
            )
        source.ranges = (*below, *above)
        destination.ranges = _joined((*destination.ranges, *moved))
        recent = list(source.recent_keys)
        source.recent_keys.clear()
        for key in recent:
            (source if source.holds(key) else destination).recent_keys.append(key)
        announce_keys_moved(source, destination, at_us=at_us, order=order)
        self._index()

    def _succeed(
        self,
        parents: Sequence[StreamPartition],
        children: list[StreamPartition],
        *,
        at_us: int,
        order: int,
    ) -> list[StreamPartition]:
        for parent in parents:
            invariant(parent.start_us < at_us, "a stream partition must have lived")
            last_us = parent.records.last_us
            invariant(
                last_us is None or last_us < at_us,
                "a parent's record at or after its children's start",
            )
        if self.is_mutable:
            announce_succession(parents, children, at_us=at_us, order=order)
        for parent in parents:
            parent.end_us = at_us
            parent.children = tuple(children)
            # The children have its keys now; an empty deque of its own would be half its memory.
            parent.recent_keys = _NO_KEYS
        self.live = [partition for partition in self.live if partition.is_live] + children
        self._index()
        return children

    def expire(self, earliest_us: int) -> int:
        """Drop records older than a time, and stream partitions that ended before it."""
        count = 0
        self.kept_since_us = max(self.kept_since_us, earliest_us)
        for partition in list(self.by_token.values()):
            if partition.end_us is not None and partition.end_us < earliest_us:
                count += len(partition.records)
                partition.records.forget_before(partition.end_us + 1)
                del self.by_token[partition.token]
                self.expired_tokens[partition.token] = None
            else:
                count += partition.records.forget_before(earliest_us)
        while len(self.expired_tokens) > _EXPIRED_TOKENS_MAX:
            del self.expired_tokens[next(iter(self.expired_tokens))]
        return count


def _cut(
    ranges: Sequence[KeyRange], boundary: bytes
) -> tuple[tuple[KeyRange, ...], tuple[KeyRange, ...]]:
    """Ranges below a key, and those from it on."""
    below: list[KeyRange] = []
    above: list[KeyRange] = []
    for keys in ranges:
        if keys.high is not None and keys.high <= boundary:
            below.append(keys)
        elif boundary <= keys.low:
            above.append(keys)
        else:
            below.append(KeyRange(keys.low, boundary))
            above.append(KeyRange(boundary, keys.high))
    return tuple(below), tuple(above)


def _joined(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """The same keys in the smallest number of ranges, in key order."""
    joined: list[KeyRange] = []
    for keys in sorted(ranges, key=lambda keys: keys.low):
        if joined and joined[-1].high == keys.low:
            joined[-1] = KeyRange(joined[-1].low, keys.high)
        else:
            joined.append(keys)
    return tuple(joined)

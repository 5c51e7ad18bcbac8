"""The stream partitions of one change stream: who holds which keys, from when to when.

At any time the live ones cover the whole keyspace without overlap. A stream partition's records
lie in [start, end); its children start exactly at its end. With immutable key ranges each has one
range for life and all parents of a merge name the same child; with mutable ones ranges also move
between the living, and each reports it in its own records. Tokens are opaque and never used twice.
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
# Of a stream partition that has ended; with no room, nothing can be added by mistake.
_NO_KEYS: deque[bytes] = deque(maxlen=0)


class StreamPartitions:
    """All stream partitions, live and ended, of one change stream.

    A turn (split, merge, move) happens at `at_us`; its `order` tells it apart from transactions in
    the record sequences of mutable key ranges, and grows with time. What is older than
    `kept_since_us` has been forgotten, and no longer retention period brings it back.
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
        self.live.sort(key=lambda one: (one.low, one.start_us))
        owned = sorted(
            ((held.low, one) for one in self.live for held in one.ranges), key=lambda pair: pair[0]
        )
        self._lows = [low for low, _ in owned]
        self._owners = [one for _, one in owned]

    def locate(self, key: bytes) -> StreamPartition:
        """The live stream partition that holds a key."""
        return self._owners[bisect_right(self._lows, key) - 1]

    def find_live(self, token: str) -> StreamPartition:
        """A live stream partition by token: NOT_FOUND, or FAILED_PRECONDITION when it ended."""
        found = self.by_token.get(token)
        if found is None:
            raise not_found(f"No stream partition has the token {token}")
        if not found.is_live:
            raise failed_precondition(f"The stream partition {token} has ended already")
        return found

    def active_at(self, timestamp_ns: int) -> list[StreamPartition]:
        """Those whose life [start, end) holds this time, in key order.

        With mutable key ranges the end counts, too: the records that hand the keys over are there.
        """
        found = [
            one
            for one in self.by_token.values()
            if one.start_us * 1000 <= timestamp_ns
            and (
                one.end_us is None
                or timestamp_ns < one.end_us * 1000
                or (self.is_mutable and timestamp_ns == one.end_us * 1000)
            )
        ]
        return sorted(found, key=lambda one: (one.low, one.start_us))

    def split(
        self, parent: StreamPartition, at: bytes, *, at_us: int, order: int = 0
    ) -> list[StreamPartition]:
        """End one, start two that meet at the key `at`, which must lie strictly inside."""
        below, above = _cut(parent.ranges, at)
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
        """End neighbours, start one that covers them; mutable ones need not be neighbours."""
        ordered = sorted(parents, key=lambda one: one.low)
        neighbours = self.is_mutable or all(
            left.high == right.low for left, right in pairwise(ordered)
        )
        if len(ordered) < 2 or not neighbours:
            raise invalid_argument(
                "A merge needs two or more stream partitions whose key ranges touch each other",
            )
        ranges = _joined(held for one in ordered for held in one.ranges)
        child = self._make(ranges, start_us=at_us, parents=ordered)
        return self._succeed(ordered, [child], at_us=at_us, order=order)

    def move(self, parent: StreamPartition, *, at_us: int, order: int = 0) -> list[StreamPartition]:
        """End one, start one with the same keys."""
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
        """Give those of `keys` that one living mutable stream partition holds to another one."""
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
        self.live = [one for one in self.live if one.is_live] + children
        self._index()
        return children

    def expire(self, earliest_us: int) -> int:
        """Forget records older than a time, and stream partitions that ended before it."""
        count = 0
        self.kept_since_us = max(self.kept_since_us, earliest_us)
        for one in list(self.by_token.values()):
            if one.end_us is not None and one.end_us < earliest_us:
                count += len(one.records)
                one.records.forget_before(one.end_us + 1)
                del self.by_token[one.token]
                self.expired_tokens[one.token] = None
            else:
                count += one.records.forget_before(earliest_us)
        while len(self.expired_tokens) > _EXPIRED_TOKENS_MAX:
            del self.expired_tokens[next(iter(self.expired_tokens))]
        return count


def _cut(
    ranges: Sequence[KeyRange], at: bytes
) -> tuple[tuple[KeyRange, ...], tuple[KeyRange, ...]]:
    """Ranges below a key, and those from it on."""
    below: list[KeyRange] = []
    above: list[KeyRange] = []
    for one in ranges:
        if one.high is not None and one.high <= at:
            below.append(one)
        elif at <= one.low:
            above.append(one)
        else:
            below.append(KeyRange(one.low, at))
            above.append(KeyRange(at, one.high))
    return tuple(below), tuple(above)


def _joined(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """The same keys in as few ranges as possible, in key order."""
    joined: list[KeyRange] = []
    for one in sorted(ranges, key=lambda each: each.low):
        if joined and joined[-1].high == one.low:
            joined[-1] = KeyRange(joined[-1].low, one.high)
        else:
            joined.append(one)
    return tuple(joined)

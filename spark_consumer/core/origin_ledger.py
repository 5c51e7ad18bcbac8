"""Released changes of each open stream partition, until its marker is compared with them.

A stream partition is followed from its announcement, which is read before any of its changes is
released, until a release passes its end.  A stream partition that began at or below `since_us` is
not followed: some of its changes were released without being summed.  The rules are those of an
audit (`docs/protocol.md`, 6.4); uncertain cases are not judged.  The announcements and markers that
a batch reads are in its plan, so that a replay makes the same comparisons without progress rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    ChecksumKind,
    PartitionAnnounced,
    PartitionFinished,
    ProgressBody,
)
from tidegate.spark_consumer.core.proof import Fault, Mismatch
from tidegate.spark_consumer.core.sums import (
    NO_CHANGES_OF_ORIGIN,
    OriginSum,
    Pair,
    signed_origin,
)


@dataclass(frozen=True, slots=True)
class MarkerChunk:
    """One chunk of a completion marker; `totals` is by topic."""

    token: str
    end_us: int
    parked: int
    has_checksum: bool
    """Whether Spark can compute the checksum: the stream partition began under version 2."""
    chunk: int
    chunks: int
    totals: tuple[tuple[str, OriginSum], ...]

    @property
    def size(self) -> int:
        """How many entries it has, with its totals."""
        return 1 + len(self.totals)

    @classmethod
    def of(cls, marker: PartitionFinished) -> MarkerChunk:
        """Return the compared part of a marker's chunk."""
        totals = (
            (total.topic, OriginSum(total.mods, total.value_bytes, total.checksum))
            for total in marker.totals
        )
        return cls(
            marker.token,
            marker.end_ns // NS_PER_US,
            marker.parked,
            marker.checksums is ChecksumKind.XXHASH_64,
            marker.chunk,
            marker.chunks,
            tuple(totals),
        )

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> MarkerChunk:
        """Rebuild it from what `asdict` and JSON made of it."""
        totals = tuple((topic, OriginSum(**total)) for topic, total in data["totals"])
        return cls(**{**data, "totals": totals})


@dataclass(frozen=True, slots=True)
class MarkerNews:
    """The news of a batch: tokens and starts of announced stream partitions, and chunks of markers.

    Stream partitions that began at or below `forgets_us` are no longer followed: there were too
    many.
    """

    announced: tuple[tuple[str, int], ...] = ()
    finished: tuple[MarkerChunk, ...] = ()
    forgets_us: int | None = None

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> MarkerNews:
        """Rebuild it from what `asdict` and JSON made of it."""
        announced = tuple((token, start_us) for token, start_us in data["announced"])
        finished = tuple(MarkerChunk.restore(chunk) for chunk in data["finished"])
        return cls(announced, finished, data["forgets_us"])


NO_NEWS = MarkerNews()


class NewsReader:
    """Collects a batch's news from its progress rows, in the order of each slot."""

    def __init__(self, *, after_us: int, items_max: int) -> None:
        """Pass over what began before `after_us`: it was announced by an earlier batch.

        The news of a batch have `items_max` items at most: announcements, chunks of markers, and
        their totals.
        """
        self._after_us = after_us
        self._items_max = items_max
        self._announced: dict[str, int] = {}
        self._finished: dict[tuple[str, int], MarkerChunk] = {}
        self._forgets_us: int | None = None
        self._items = 0
        """A repeated record counts again."""

    def take(self, body: ProgressBody) -> None:
        """Take a record."""
        if isinstance(body, PartitionAnnounced):
            start_us = body.child.start_ns // NS_PER_US
            if start_us >= self._after_us:
                self._announced[body.child.token] = start_us
                self._items += 1
        elif isinstance(body, PartitionFinished):
            chunk = self._finished[body.token, body.chunk] = MarkerChunk.of(body)
            self._items += chunk.size
        if self._items > self._items_max:
            starts_us = [*self._announced.values(), self._after_us, self._forgets_us or 0]
            # A marker may be read before the announcement, which is in another slot.
            ends_us = (chunk.end_us for chunk in self._finished.values())
            self._forgets_us = max(*starts_us, *ends_us)
            self._announced, self._finished, self._items = {}, {}, 0

    @property
    def news(self) -> MarkerNews:
        """Everything that was taken."""
        return MarkerNews(
            tuple(self._announced.items()), tuple(self._finished.values()), self._forgets_us
        )


@dataclass(frozen=True, slots=True)
class OriginFaults:
    """The number of topics of stream partitions that contradict markers, and the first ones."""

    number: int = 0
    listed: tuple[Mismatch, ...] = ()


ALL_AGREE = OriginFaults()


@dataclass(frozen=True, slots=True)
class Followed:
    """A stream partition: where it began, and the chunks of its marker that were read."""

    start_us: int
    chunks: Mapping[int, MarkerChunk] = field(default_factory=dict)

    def is_over(self, through_us: int) -> bool:
        """Whether its whole marker was read, and it ended at or below a time."""
        chunks = self.chunks.values()
        sent = max((chunk.chunks for chunk in chunks), default=-1)
        return len(self.chunks) == sent and all(chunk.end_us <= through_us for chunk in chunks)


@dataclass(frozen=True, slots=True)
class OriginLedger:
    """The followed stream partitions, by token, and the released sums of each `origin`."""

    since_us: int = -1
    followed: Mapping[str, Followed] = field(default_factory=dict)
    sums: Mapping[Pair, OriginSum] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """How many entries it has."""
        chunks = (
            chunk for partition in self.followed.values() for chunk in partition.chunks.values()
        )
        return len(self.followed) + len(self.sums) + sum(chunk.size for chunk in chunks)

    def taken(self, news: MarkerNews) -> OriginLedger:
        """Return the ledger with the news of a batch; other markers have no effect."""
        before = self if news.forgets_us is None else self.forgotten(news.forgets_us)
        followed = dict(before.followed)
        for token, start_us in news.announced:
            if start_us > before.since_us:
                followed.setdefault(token, Followed(start_us))
        for chunk in news.finished:
            partition = followed.get(chunk.token)
            if partition is not None:
                chunks = {**partition.chunks, chunk.chunk: chunk}
                followed[chunk.token] = Followed(partition.start_us, chunks)
        return OriginLedger(before.since_us, followed, before.sums)

    def forgotten(self, through_us: int) -> OriginLedger:
        """Return the ledger without the origins of partitions that began by a time."""
        since_us = max(self.since_us, through_us)
        kept = {
            t: partition for t, partition in self.followed.items() if partition.start_us > since_us
        }
        forgotten = {signed_origin(token) for token in self.followed.keys() - kept.keys()}
        kept = {t: partition for t, partition in kept.items() if signed_origin(t) not in forgotten}
        origins = {signed_origin(token) for token in kept}
        sums = {pair: total for pair, total in self.sums.items() if pair[0] in origins}
        return OriginLedger(since_us, kept, sums)

    def within(self, size_max: int) -> OriginLedger:
        """Return the ledger, or if it is too large an empty one that follows later partitions."""
        if self.size <= size_max:
            return self
        return self.forgotten(
            max((partition.start_us for partition in self.followed.values()), default=-1)
        )

    def added(self, released: Mapping[Pair, OriginSum], *, through_us: int) -> OriginLedger:
        """Return the ledger with the sums of a release up to a time.

        If changes do not name their stream partition, the sums of all partitions that began by then
        are uncertain.
        """
        if any(origin is None for origin, _ in released):
            return self.forgotten(through_us).added(
                {pair: total for pair, total in released.items() if pair[0] is not None},
                through_us=through_us,
            )
        origins = {signed_origin(token) for token in self.followed}
        sums = dict(self.sums)
        for pair, total in released.items():
            if pair[0] in origins:
                sums[pair] = sums.get(pair, NO_CHANGES_OF_ORIGIN) + total
        return OriginLedger(self.since_us, self.followed, sums)

    def settled(
        self, through_us: int, *, complete_from_us: int, keeps_faulty: bool = False
    ) -> tuple[OriginLedger, tuple[Mismatch, ...]]:
        """Return the ledger without partitions that ended by a time, and the mismatches.

        A partition that began at or below `complete_from_us` is not judged.  `keeps_faulty`:
        partitions that contradict their markers stay in the ledger.
        """
        tokens: dict[int, list[str]] = {}
        for token in self.followed:
            tokens.setdefault(signed_origin(token), []).append(token)
        faults: list[Mismatch] = []
        done: set[int | None] = set()
        for origin, of_origin in tokens.items():
            partitions = [self.followed[token] for token in of_origin]
            if not all(partition.is_over(through_us) for partition in partitions):
                continue
            is_judged = min(partition.start_us for partition in partitions) > complete_from_us
            mismatches = list(self._faults(origin, sorted(of_origin))) if is_judged else []
            faults += mismatches
            if not (mismatches and keeps_faulty):
                done.add(origin)
        return self._without(done), tuple(faults)

    def _without(self, origins: Collection[int | None]) -> OriginLedger:
        followed = {
            t: partition
            for t, partition in self.followed.items()
            if signed_origin(t) not in origins
        }
        sums = {pair: total for pair, total in self.sums.items() if pair[0] not in origins}
        return OriginLedger(self.since_us, followed, sums)

    def _faults(self, origin: int, tokens: list[str]) -> Iterator[Mismatch]:
        """Compare the released changes of an origin with the sums over all its markers."""
        chunks = [chunk for token in tokens for chunk in self.followed[token].chunks.values()]
        expected: dict[str, OriginSum] = {}
        for chunk in chunks:
            for topic, total in chunk.totals:
                expected[topic] = expected.get(topic, NO_CHANGES_OF_ORIGIN) + total
        by_topic = {
            topic: total
            for (origin_of_sum, topic), total in self.sums.items()
            if origin_of_sum == origin
        }
        parked = sum(
            max(chunk.parked for chunk in self.followed[token].chunks.values()) for token in tokens
        )
        has_checksum = all(chunk.has_checksum for chunk in chunks)
        for topic in sorted(expected.keys() | by_topic.keys()):
            stated = expected.get(topic, NO_CHANGES_OF_ORIGIN)
            released = by_topic.get(topic, NO_CHANGES_OF_ORIGIN)
            fault = fault_of(stated, released, parked=parked, has_checksum=has_checksum)
            if fault is not None:
                yield Mismatch(
                    "stream partition",
                    {"topic": topic, "origin": origin, "token": tokens[0]},
                    fault,
                    expected=stated.content(),
                    found=released.content(),
                )

    def snapshot(self) -> dict[str, Any]:
        """Return plain data for `restore`."""
        followed = [
            [token, partition.start_us, [asdict(chunk) for chunk in partition.chunks.values()]]
            for token, partition in self.followed.items()
        ]
        sums = [
            [*pair, total.mods, total.value_bytes, total.checksum]
            for pair, total in self.sums.items()
        ]
        return {"since_us": self.since_us, "followed": followed, "sums": sums}

    @classmethod
    def restore(cls, data: Mapping[str, Any]) -> OriginLedger:
        """Rebuild what `snapshot` gave."""
        followed = {}
        for token, start_us, chunks in data["followed"]:
            restored = (MarkerChunk.restore(chunk) for chunk in chunks)
            followed[token] = Followed(start_us, {chunk.chunk: chunk for chunk in restored})
        sums = {
            (origin, topic): OriginSum(mods, value_bytes, checksum)
            for origin, topic, mods, value_bytes, checksum in data["sums"]
        }
        return cls(data["since_us"], followed, sums)


NOTHING_FOLLOWED = OriginLedger()


def fault_of(
    expected: OriginSum, released: OriginSum, *, parked: int, has_checksum: bool
) -> Fault | None:
    """Return the fault of a topic of a stream partition, or None.

    A change that was put back is not in the totals, and its row does not say that it was: up to
    `parked` changes more are not a fault.
    """
    if released.mods < expected.mods:
        return Fault.MISSING
    if released.mods > expected.mods + parked:
        return Fault.TOO_MANY
    if released.mods > expected.mods:
        return None
    if has_checksum and released.checksum != expected.checksum:
        return Fault.OTHER_CHANGES
    return Fault.OTHER_VALUES if released.value_bytes != expected.value_bytes else None

"""What a batch reads of stream partitions: which were announced, and what their markers state.

A plan holds it, so that a replay needs no progress row to compare the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import (
    ChecksumKind,
    PartitionAnnounced,
    PartitionFinished,
    ProgressBody,
)
from tidegate.spark_consumer.core.origin_sums import OriginSum


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

    @classmethod
    def of(cls, marker: PartitionFinished) -> MarkerChunk:
        """Return what is compared of a marker's chunk."""
        totals = (
            (one.topic, OriginSum(one.mods, one.value_bytes, one.checksum)) for one in marker.totals
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
        totals = tuple((topic, OriginSum(**one)) for topic, one in data["totals"])
        return cls(**{**data, "totals": totals})


@dataclass(frozen=True, slots=True)
class MarkerNews:
    """What a batch brings: tokens and starts of announced stream partitions, and chunks of markers.

    What began at or below `forgets_us` is not followed any longer: there was too much of it.
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

        The news of a batch have `items_max` items at most.
        """
        self._after_us = after_us
        self._items_max = items_max
        self._announced: dict[str, int] = {}
        self._finished: dict[tuple[str, int], MarkerChunk] = {}
        self._forgets_us: int | None = None

    def take(self, body: ProgressBody) -> None:
        """Take a record."""
        if isinstance(body, PartitionAnnounced):
            start_us = body.child.start_ns // NS_PER_US
            if start_us >= self._after_us:
                self._announced[body.child.token] = start_us
        elif isinstance(body, PartitionFinished):
            self._finished[body.token, body.chunk] = MarkerChunk.of(body)
        if len(self._announced) + len(self._finished) > self._items_max:
            starts_us = [*self._announced.values(), self._after_us, self._forgets_us or 0]
            self._forgets_us = max(starts_us)
            self._announced, self._finished = {}, {}

    @property
    def news(self) -> MarkerNews:
        """Everything that was taken."""
        return MarkerNews(
            tuple(self._announced.items()), tuple(self._finished.values()), self._forgets_us
        )

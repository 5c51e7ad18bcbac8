"""A policy that splits, merges and moves stream partitions at random, from one seed.

Each stream partition gets a random lifetime when it is first seen.  When it is over, the policy
returns a split, a merge or a move of it.  The policy only decides.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from spanner_simulator.core.change_streams.stream_partition import StreamPartition
from spanner_simulator.core.rng import Rng

ChurnKind = Literal["split", "merge", "move"]
_KINDS: tuple[ChurnKind, ...] = ("split", "merge", "move")
CHURN_WEIGHTS: Mapping[ChurnKind, float] = {"split": 1.0, "merge": 1.0, "move": 0.5}
# Longer lifetimes never end in any test.
CHURN_LIFE_MS_MAX = 10**12
CHURN_LIVE_MAX = 10_000


@dataclass(frozen=True, slots=True)
class ChurnSettings:
    """How stream partitions churn.

    `mean_life_ms` is the mean of the exponential distribution of lifetimes.  `live_max`: no split
    starts while at least this many stream partitions are live; a merge takes its place.  `weights`
    are the relative frequencies of the actions.
    """

    mean_life_ms: int
    live_max: int = 64
    weights: Mapping[ChurnKind, float] = field(default_factory=lambda: CHURN_WEIGHTS)


@dataclass(frozen=True, slots=True)
class ChurnAction:
    """An action on live stream partitions: two neighbours for a merge, otherwise one."""

    kind: ChurnKind
    tokens: tuple[str, ...]


class ChurnPolicy:
    """Decides what happens to the stream partitions of one change stream, and when."""

    def __init__(self, chance: Rng, settings: ChurnSettings) -> None:
        self._chance = chance
        self._mean_life_us = settings.mean_life_ms * 1000
        self._weights = [max(0.0, settings.weights.get(kind, 0.0)) for kind in _KINDS]
        self._live_max = settings.live_max
        self._due_us: dict[str, int] = {}

    def due(self, now_us: int, live: Sequence[StreamPartition]) -> list[ChurnAction]:
        """Actions for all whose lifetime is over; no stream partition is in two of them.

        Together they leave at most `live_max` live, or as many as there are now, even if the caller
        replaces an impossible merge with a move.
        """
        tokens = {partition.token for partition in live}
        self._due_us = {token: due_us for token, due_us in self._due_us.items() if token in tokens}
        for partition in live:
            if partition.token not in self._due_us:
                self._due_us[partition.token] = now_us + self._life_us()
        used: set[str] = set()
        splits_left = self._live_max - len(live)
        actions: list[ChurnAction] = []
        for index, partition in enumerate(live):
            if self._due_us[partition.token] <= now_us and partition.token not in used:
                action = self._choose(index, live, used, may_split=splits_left > 0)
                splits_left -= action.kind == "split"
                used.update(action.tokens)
                actions.append(action)
        return actions

    def spare(self, token: str, now_us: int) -> None:
        """Give a new lifetime to a stream partition whose action was impossible."""
        self._due_us[token] = now_us + self._life_us()

    def next_due_us(self) -> int | None:
        """The time of the next action; None before the first call of `due`."""
        return min(self._due_us.values(), default=None)

    def _life_us(self) -> int:
        return 1 + int(-math.log(1.0 - self._chance.random()) * self._mean_life_us)

    def _choose(
        self, index: int, live: Sequence[StreamPartition], used: set[str], *, may_split: bool
    ) -> ChurnAction:
        kind = self._pick_kind()
        token = live[index].token
        if kind == "split" and not may_split:
            kind = "merge"
        if kind == "merge":
            neighbours = [
                live[other].token
                for other in (index - 1, index + 1)
                if 0 <= other < len(live) and live[other].token not in used
            ]
            if neighbours:
                pick = int(self._chance.random() * len(neighbours))
                return ChurnAction("merge", (token, neighbours[pick]))
            kind = "move"
        return ChurnAction(kind, (token,))

    def _pick_kind(self) -> ChurnKind:
        mark = self._chance.random() * sum(self._weights)
        for kind, weight in zip(_KINDS, self._weights, strict=True):
            mark -= weight
            if mark < 0:
                return kind
        return "move"

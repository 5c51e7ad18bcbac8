"""A policy that splits, merges and moves stream partitions by itself, from one seed.

Each stream partition gets a random life when first seen; when it is over, one of three actions
falls on it. The policy only decides: it is told the time and the live ones, and returns actions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tidegate.spanner_simulator.core.change_streams.stream_partitions import (
        Chance,
        StreamPartition,
    )

__all__ = ["ChurnAction", "ChurnKind", "ChurnPolicy"]

ChurnKind = Literal["split", "merge", "move"]
_KINDS: tuple[ChurnKind, ...] = ("split", "merge", "move")


@dataclass(frozen=True, slots=True)
class ChurnAction:
    """Do this to these live stream partitions: two neighbours for a merge, else one."""

    kind: ChurnKind
    tokens: tuple[str, ...]


class ChurnPolicy:
    """Lives are exponential with a mean of `mean_life_ms`; weights choose among the actions."""

    def __init__(
        self,
        chance: Chance,
        *,
        mean_life_ms: int,
        weights: Mapping[ChurnKind, float],
        live_max: int = 64,
    ) -> None:
        """`live_max` bounds the number of live ones: at the bound a split becomes a merge."""
        self._chance = chance
        self._mean_life_us = mean_life_ms * 1000
        self._weights = [max(0.0, weights.get(kind, 0.0)) for kind in _KINDS]
        self._live_max = live_max
        self._due_us: dict[str, int] = {}

    def due(self, now_us: int, live: Sequence[StreamPartition]) -> list[ChurnAction]:
        """Actions for all whose life is over; no stream partition is in two of them."""
        tokens = {one.token for one in live}
        self._due_us = {token: at for token, at in self._due_us.items() if token in tokens}
        for one in live:
            if one.token not in self._due_us:
                self._due_us[one.token] = now_us + self._life_us()
        used: set[str] = set()
        actions: list[ChurnAction] = []
        for index, one in enumerate(live):
            if self._due_us[one.token] <= now_us and one.token not in used:
                action = self._choose(index, live, used)
                used.update(action.tokens)
                actions.append(action)
        return actions

    def spare(self, token: str, now_us: int) -> None:
        """Give one whose action was impossible another life."""
        self._due_us[token] = now_us + self._life_us()

    def next_due_us(self) -> int | None:
        """When `due` has something to say again, as far as is known."""
        return min(self._due_us.values(), default=None)

    def _life_us(self) -> int:
        return 1 + int(-math.log(1.0 - self._chance.random()) * self._mean_life_us)

    def _choose(self, index: int, live: Sequence[StreamPartition], used: set[str]) -> ChurnAction:
        kind = self._pick_kind()
        token = live[index].token
        if kind == "split" and len(live) >= self._live_max:
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

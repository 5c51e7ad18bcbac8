"""What may happen to a consumer inside of one operation on storage, tables or the registry.

Operations have points before and after their effect.  At a point the process may stand still while
another consumer goes on, or the request may fail, with its effect or without.  All chances are of
one profile; a world without a profile disturbs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tidegate.schemas.errors import UnreachableError

_STEPS_MAX = 40


@dataclass(frozen=True, slots=True)
class GateProfile:
    """Chances per point, unless a name says otherwise; each is absent in a part of the seeds."""

    fails: float = 0.0
    stands_still: float = 0.0
    """Another consumer of the same checkpoint, if there is one, runs for some steps."""
    replaced_in_commit: float = 0.0
    """Chance per point of a table's transaction to stand still while a successor is started."""
    lists_late: float = 0.0  # chance per listing and young file to be left out of the listing
    optimizes: float = 0.0
    """Somebody's OPTIMIZE commits to a table, also in the middle of a sink's transaction."""
    dies_in_rename: float = 0.0
    """Chance per file to die between writing its temporary file and naming it."""

    @classmethod
    def drawn(cls, random: Random) -> GateProfile:

        def sometimes(chance: float) -> float:
            return chance * random.choice((0.3, 1, 3)) if random.random() < 0.5 else 0.0

        return cls(
            fails=sometimes(0.001),
            stands_still=sometimes(0.02),
            lists_late=random.choice((0.0, 0.0, 0.5, 1.0)),
            replaced_in_commit=sometimes(0.05),
            optimizes=sometimes(0.1),
            dies_in_rename=sometimes(0.005),
        )


class Disturbance:
    """Draws from a generator of its own, so that it changes nothing in the fleet's story."""

    def __init__(
        self,
        random: Random,
        consumers: Callable[[], list[Any]] = list,
        replace: Callable[[], Any] = lambda: None,
        profile: GateProfile | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.random = random
        self.profile = profile or GateProfile.drawn(random)
        self.is_quiet = False
        self._consumers, self._replace, self.tell = consumers, replace, tell
        self._running: list[Any] = []

    def enter(self, consumer) -> None:
        self._running.append(consumer)

    def leave(self) -> None:
        self._running.pop()

    def point(self, *, is_in_commit: bool = False) -> None:
        if self.is_quiet or not self._running:
            return
        if is_in_commit and self.chance(self.profile.replaced_in_commit):
            self._let_run(self._replace())
        elif self.chance(self.profile.stands_still):
            others = [consumer for consumer in self._consumers() if consumer not in self._running]
            self._let_run(self.random.choice(others) if others else None)
        if self.chance(self.profile.fails):
            message = "the request failed"
            self.tell(message)
            raise UnreachableError(message)

    def chance(self, probability: float) -> bool:
        return bool(probability) and not self.is_quiet and self.random.random() < probability

    def _let_run(self, other) -> None:
        if other is None:
            return
        self.tell("stands still beside another run")
        for _ in range(self.random.randint(1, _STEPS_MAX)):
            if not other.step_beside():
                return

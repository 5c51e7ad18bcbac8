"""Watches for slots that the group protocol leaves to nobody, and says when to do something.

A round may take slots from a static member that dies before it has joined again without them; who
comes back under its name gets its place without a round, the group is stable, and the slots stay
without an owner until something begins a round.  So a member leaves and joins anew.

One member acts, so that a fleet does not begin many rounds for one slot: the one with the fewest
slots, as it disturbs least; the next one only if nothing has changed after another pause.  A round
that is under way looks the same for a moment: what is let go is nobody's until its owner has
joined again.  Hence the patience.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.schemas.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["GroupSeen", "GroupWatch", "RejoinGroup", "WatchLimits"]


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How long a worker waits before it begins a round."""

    patience_us: int = 30_000_000
    """Slots have to be missing for so long: a worker lets go within seconds."""
    pause_us: int = 60_000_000
    """Between two rounds that one worker begins, and between one member's turn and the next's."""


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """The group as its coordinator described it."""

    is_stable: bool
    """No round is under way."""
    slots: Mapping[str, frozenset[int]]
    """Member's name -> what the last round gave it; every member is named."""


@dataclass(frozen=True, slots=True)
class RejoinGroup:
    """Let all slots go, leave the group and join it anew."""

    orphans: tuple[int, ...]
    """The slots that belong to nobody."""


class GroupWatch:
    """See the module."""

    def __init__(self, *, worker: str, slots: int, limits: WatchLimits | None = None) -> None:
        """Have seen nothing; `slots` is how many there are."""
        self._worker = worker
        self._slots = slots
        self._limits = limits or WatchLimits()
        self._seen: GroupSeen | None = None
        """What was seen with slots missing, unchanged since `_since_us`."""
        self._since_us = 0
        self._acted_us: int | None = None

    def handle(self, event: GroupSeen, *, now_us: int) -> RejoinGroup | None:
        """Take a look in; return what is to be done.  A look that failed is no look."""
        orphans = self._orphans(event)
        if not orphans or event != self._seen:
            self._seen, self._since_us = (event if orphans else None), now_us
            return None
        if now_us - self._since_us < self._wait_us(event):
            return None
        if self._acted_us is not None and now_us - self._acted_us < self._limits.pause_us:
            return None
        self._seen, self._acted_us = None, now_us
        return RejoinGroup(orphans)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the watch waits for nothing."""
        if self._seen is not None:
            invariant(self._orphans(self._seen), "a watch waits, and no slot is missing")

    def _orphans(self, seen: GroupSeen) -> tuple[int, ...]:
        if not seen.is_stable or self._worker not in seen.slots:
            return ()
        given = frozenset().union(*seen.slots.values())
        return tuple(slot for slot in range(self._slots) if slot not in given)

    def _wait_us(self, seen: GroupSeen) -> int:
        turns = sorted(seen.slots, key=lambda name: (len(seen.slots[name]), name))
        return self._limits.patience_us + turns.index(self._worker) * self._limits.pause_us

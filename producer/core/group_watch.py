"""The worker's place in the consumer group: when to rejoin, and when to replace the client.

Slots without an owner: a rebalance may revoke slots from a static member that dies before it has
joined again without them.  A process that restarts under its name gets its place without a
rebalance: the group is stable, and the slots stay unassigned until the next rebalance.  So a member
leaves and joins again.

One member acts, so that a fleet does not start many rebalances for one slot: the one with the
fewest slots, because it disturbs least; the next one only if nothing has changed after another
pause.  A rebalance in progress looks the same for a moment, since released slots have no owner
until their next one has joined again.  Therefore a member waits before it acts.

A worker that is not in the group: a Kafka client whose session timed out while its broker was away
has been seen never to rejoin, without an error: the other workers did its work, and this worker was
idle until it ended.  A client that works is a member, also while a rebalance lasts; a client that
is absent for long is replaced by a new one, whatever the state of the group.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidegate.producer.core.effects import RejoinGroup, ReplaceGroupClient
from tidegate.producer.core.events import GroupDescribed
from tidegate.schemas.errors import invariant


@dataclass(frozen=True, slots=True)
class WatchLimits:
    """How long slots are unassigned, or a worker absent, before the worker acts."""

    patience_us: int = 30_000_000
    """How long the same slots must be unassigned, or the worker absent; a worker normally releases
    slots, and joins, within seconds."""
    pause_us: int = 60_000_000
    """The pause between two rejoins of one worker, and between one member's turn and the next
    one's."""


class GroupWatch:
    """The unassigned slots and the absence of one worker, each with its beginning."""

    def __init__(self, *, worker: str, slots: int, limits: WatchLimits) -> None:
        self._worker = worker
        self._slots = slots
        self._limits = limits
        self._last: GroupDescribed | None = None
        """The last description with unassigned slots, the same since `_since_us`."""
        self._since_us = 0
        self._acted_us: int | None = None
        self._absent_since_us: int | None = None
        """Since when the worker is absent; None while it is a member."""

    def handle(
        self, event: GroupDescribed, *, now_us: int
    ) -> RejoinGroup | ReplaceGroupClient | None:
        """Return the worker's reaction to a description; None if there is none."""
        if self._is_absent_too_long(event, now_us):
            self._absent_since_us = None  # the new client gets as long
            return ReplaceGroupClient()
        unassigned = self._unassigned(event)
        if not unassigned or event != self._last:
            self._last, self._since_us = (event if unassigned else None), now_us
            return None
        if now_us - self._since_us < self._wait_us(event):
            return None
        if self._acted_us is not None and now_us - self._acted_us < self._limits.pause_us:
            return None
        self._last, self._acted_us = None, now_us
        return RejoinGroup(unassigned)

    def check_invariants(self) -> None:
        """Raise InvariantViolation if the kept description has no unassigned slot."""
        if self._last is not None:
            invariant(self._unassigned(self._last), "group watch waits without unassigned slots")

    def _is_absent_too_long(self, group: GroupDescribed, now_us: int) -> bool:
        # By name: for a static member whose process was replaced, the coordinator describes the
        # client of the previous process, so `is_member` stays false for a healthy worker.
        if group.is_member or self._worker in group.assignments:
            self._absent_since_us = None
            return False
        if self._absent_since_us is None:
            self._absent_since_us = now_us
        return now_us - self._absent_since_us >= self._limits.patience_us

    def _unassigned(self, group: GroupDescribed) -> tuple[int, ...]:
        if not (group.is_stable and group.is_member and self._worker in group.assignments):
            return ()
        assigned = frozenset().union(*group.assignments.values())
        return tuple(slot for slot in range(self._slots) if slot not in assigned)

    def _wait_us(self, group: GroupDescribed) -> int:
        turns = sorted(group.assignments, key=lambda name: (len(group.assignments[name]), name))
        return self._limits.patience_us + turns.index(self._worker) * self._limits.pause_us

"""What `adapters.group_lookout` does for a worker: looks at the group now and then, and obeys.

More often and with less patience than a real one, so that rounds are begun in the middle of other
things; an answer is as old as the way back was long.
"""

from __future__ import annotations

from tests.simulation.group import GroupClient, State
from tidegate.producer.core.group_watch import GroupSeen, GroupWatch, RejoinGroup, WatchLimits

__all__ = ["Lookout"]

_EVERY_US = 500_000
_LIMITS = WatchLimits(patience_us=2_000_000, pause_us=4_000_000)


class Lookout:
    """See the module."""

    def __init__(self, worker: str, slots: int) -> None:
        self._watch = GroupWatch(worker=worker, slots=slots, limits=_LIMITS)
        self._asked_us = 0
        self._answer: GroupSeen | None = None

    def look(self, client: GroupClient, now_us: int) -> RejoinGroup | None:
        """Take the last answer in, or ask again; rejoin if the watch says so."""
        answer, self._answer = self._answer, None
        if answer is not None:
            decision = self._watch.handle(answer, now_us=now_us)
            self._watch.check_invariants()
            if decision is not None and client.state is State.STABLE and not client.callbacks:
                client.rejoin()
                return decision
        elif now_us - self._asked_us >= _EVERY_US:
            self._asked_us = now_us
            member = client.group.members.get(client.name)
            if member is not None and member.member_id == client.member_id:
                self._answer = client.group.described()
        return None

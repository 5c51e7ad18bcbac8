"""A member's client of the group in memory: what a Kafka consumer does in the background."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from tidegate.producer.memory.group import Group, GroupRefusal, MemberMetadata

Callback: TypeAlias = tuple[str, frozenset[int]]
"""A callback that the application must run: ("assigned", "revoked" or "lost", slots)."""


class ClientState(Enum):
    """Where a client stands in the group."""

    OUT = "not a member"
    JOINING = "waits for the rebalance to end"
    STABLE = "a member"
    LEAVING = "a member until its slots are released, to join again"
    LOST = "removed by the group; the application does not know yet"
    LOCKED_OUT = "another process has the name"
    GONE = "has left for good"
    STUCK = "does nothing any more"
    """Kafka's own client has been seen like this; nothing in memory leads to it."""


@dataclass(slots=True, eq=False)
class GroupClient:
    """One process's membership; `callbacks` wait for the application's next poll."""

    group: Group
    name: str
    state: ClientState = ClientState.OUT
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = frozenset()
    callbacks: deque[Callback] = field(default_factory=deque)
    must_rejoin: bool = False

    @property
    def has_left(self) -> bool:
        """Whether it has no place in the group, and does nothing to get one."""
        return self.state in (ClientState.GONE, ClientState.LOCKED_OUT)

    @property
    def is_settled(self) -> bool:
        """Whether it is a member and has nothing to tell the application."""
        return (
            self.state is ClientState.STABLE and not self.callbacks and not self.group.is_preparing
        )

    def metadata(self) -> MemberMetadata:
        """Return the membership as of now."""
        return MemberMetadata(self.name, self.member_id, self.generation)

    def rejoin(self) -> None:
        """Leave and join again, once the application has released its slots."""
        if self.owned:
            self.callbacks.append(("revoked", self.owned))
        self.must_rejoin = False
        self.state = ClientState.LEAVING

    def leave(self) -> None:
        """Leave for good, without a callback; void for one that the group does not know.

        Where another process has the name, there is no place to give up.
        """
        if self.state is ClientState.LOCKED_OUT:
            return
        with suppress(GroupRefusal):
            self.group.leave(self.name, self.member_id)
        self.member_id, self.generation, self.owned = "", -1, frozenset()
        self.callbacks.clear()
        self.state = ClientState.GONE

    def work(self) -> None:
        """Do the next thing that a client does in the background."""
        try:
            self._work()
        except GroupRefusal:
            self.callbacks.clear()
            self.must_rejoin = False
            if self.name in self.group.members:
                # An error tells the application, and no callback comes.
                self.state = ClientState.LOCKED_OUT
                return
            self.member_id, self.generation = "", -1
            self.callbacks.append(("lost", self.owned))
            self.state = ClientState.LOST

    def done(self, callback: Callback) -> None:
        """Take note that the application has served a callback.

        Void if the group removed the member meanwhile: then the next callback reports the loss.
        """
        if not self.callbacks or self.callbacks[0] is not callback:
            return
        kind, slots = self.callbacks.popleft()
        if kind == "assigned":
            self.owned |= slots
        else:
            self.owned -= slots
        if kind == "lost" and self.state is ClientState.LOST:
            self.state = ClientState.OUT

    def _work(self) -> None:
        group = self.group
        match self.state:
            case ClientState.OUT:
                self.member_id = group.join(self.name, "", frozenset())
                self.state = ClientState.JOINING
            case ClientState.JOINING:
                answer = group.sync(self.name, self.member_id)
                if answer is None:
                    if group.heartbeat(self.name, self.member_id):
                        self._join_again()
                    return
                self.generation, assigned = answer
                self.state = ClientState.STABLE
                revoked, added = self.owned - assigned, assigned - self.owned
                if revoked:
                    self.callbacks.append(("revoked", revoked))
                    self.must_rejoin = True
                if added:
                    self.callbacks.append(("assigned", added))
            case ClientState.STABLE:
                is_wanted = group.heartbeat(self.name, self.member_id)
                if not self.callbacks and (is_wanted or self.must_rejoin):
                    self._join_again()
            case ClientState.LEAVING:
                group.heartbeat(self.name, self.member_id)
                if not self.callbacks:
                    group.leave(self.name, self.member_id)
                    self.member_id, self.generation = "", -1
                    self.state = ClientState.OUT
            case ClientState.LOST | ClientState.LOCKED_OUT | ClientState.STUCK | ClientState.GONE:
                pass

    def _join_again(self) -> None:
        self.must_rejoin = False
        self.state = ClientState.JOINING
        self.member_id = self.group.join(self.name, self.member_id, self.owned)

"""The coordinator of a consumer group in memory, with cooperative rebalances and static members.

A rebalance waits for every member.  A slot that moves is first revoked from its owner and assigned
in the next rebalance, once the owner has joined again without it.  The generation belongs to the
group and is compared with the *member*, never with the slot.  A process that joins under a name in
use takes over its place and slots without a rebalance, and the former process is locked out.

Not for use by several threads.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import NamedTuple, TypeAlias

_SEPARATOR = "\0"
_KEEPS = 0.8


class GroupRefusal(Exception):  # noqa: N818 - named as the coordinator's answer
    """The group does not know the member, or not in this generation."""


class MemberMetadata(NamedTuple):
    """A client's membership as sent with offsets."""

    name: str
    member_id: str
    generation: int

    def encode(self) -> bytes:
        """Return the opaque form in which a publisher gets a membership."""
        return _SEPARATOR.join((self.name, self.member_id, str(self.generation))).encode()

    @classmethod
    def decode(cls, encoded: bytes) -> MemberMetadata:
        """Parse the result of `encode`."""
        name, member_id, generation = encoded.decode().split(_SEPARATOR)
        return cls(name, member_id, int(generation))


@dataclass(slots=True, eq=False)
class _Member:
    member_id: str
    owned: frozenset[int] = frozenset()
    """The slots that it had when it last joined."""
    assigned: frozenset[int] = frozenset()
    """The slots that the last rebalance assigned to it."""


class Group:
    """One group over `slots` topic partitions.

    With `random`, slots sometimes move without a reason; otherwise they stay with their owners
    where that is balanced.
    """

    def __init__(self, slots: int, *, random: Random | None = None) -> None:
        self.slots = slots
        self.generation = 0
        self.members: dict[str, _Member] = {}
        self.is_preparing = False
        self._joined: set[str] = set()
        self._holders: dict[int, str] = {}
        self._random = random
        self._ids = 0

    # ------------------------------------------------------------ requests of clients

    def join(self, name: str, member_id: str, owned: frozenset[int]) -> str:
        """Join, or rejoin; return the member id.  Raises GroupRefusal if locked out."""
        member = self.members.get(name)
        if member_id:
            member = self._require(name, member_id)
        elif member is None:
            member = self.members[name] = _Member(self._new_id(name))
        else:
            member.member_id = self._new_id(name)  # a new process under the name
            if not self.is_preparing:
                return member.member_id
        self._prepare()
        self._joined.add(name)
        member.owned = owned
        released = [s for s, holder in self._holders.items() if holder == name and s not in owned]
        for slot in released:
            del self._holders[slot]
        return member.member_id

    def sync(self, name: str, member_id: str) -> tuple[int, frozenset[int]] | None:
        """Return (generation, assignment) once the rebalance is complete."""
        member = self._require(name, member_id)
        return None if self.is_preparing else (self.generation, member.assigned)

    def heartbeat(self, name: str, member_id: str) -> bool:
        """Return whether a rebalance is being prepared that the member has not joined yet."""
        self._require(name, member_id)
        return self.is_preparing and name not in self._joined

    def check(self, metadata: MemberMetadata) -> bool:
        """Check a transaction's offsets; return whether the member was compared at all.

        A static name is compared even before its process has joined, but not in an empty group.
        Raises GroupRefusal.
        """
        is_nameless = not metadata.member_id and not metadata.name
        if metadata.generation < 0 and (is_nameless or not self.members):
            return False
        self._require(metadata.name, metadata.member_id)
        if metadata.generation != self.generation:
            raise GroupRefusal(metadata.name)
        return True

    def leave(self, name: str, member_id: str) -> None:
        """Remove a member at its own request."""
        self._require(name, member_id)
        self.expire(name)

    # ------------------------------------------------------------ the passing of time

    def complete(self) -> bool:
        """End the rebalance that is being prepared, if every member has joined."""
        members = self.members
        if not self.is_preparing or len(self._joined) < len(members):
            return False
        self.is_preparing = False
        self.generation += 1
        target = self._target(sorted(members))
        owned = {slot for member in members.values() for slot in member.owned}
        for name, member in members.items():
            added = {slot for slot, owner in target.items() if owner == name and slot not in owned}
            member.assigned = frozenset(
                added | {slot for slot in member.owned if target[slot] == name}
            )
            self._holders.update(dict.fromkeys(added, name))
        return True

    def expire(self, name: str) -> bool:
        """Remove a member whose session timed out; return whether there was one."""
        if self.members.pop(name, None) is None:
            return False
        self._joined.discard(name)
        self._holders = {slot: holder for slot, holder in self._holders.items() if holder != name}
        self._prepare()
        return True

    # ------------------------------------------------------------ description

    def held_by(self, metadata: MemberMetadata) -> frozenset[int]:
        """Return the slots that this member holds, as far as the group knows."""
        member = self.members.get(metadata.name)
        if member is None or member.member_id != metadata.member_id:
            return frozenset()
        return frozenset(slot for slot, name in self._holders.items() if name == metadata.name)

    def assignment(self) -> dict[str, frozenset[int]]:
        """Return each member's slots in the last assignment."""
        return {name: member.assigned for name, member in self.members.items()}

    @property
    def unassigned(self) -> frozenset[int]:
        """Slots without an owner since the last rebalance; empty while one is being prepared."""
        if self.is_preparing:
            return frozenset()
        assigned = {slot for slots in self.assignment().values() for slot in slots}
        return frozenset(range(self.slots)) - assigned

    # ------------------------------------------------------------ inside

    def _prepare(self) -> None:
        if not self.is_preparing:
            self.is_preparing = True
            self._joined.clear()

    def _new_id(self, name: str) -> str:
        self._ids += 1
        return f"{name}-{self._ids}"

    def _require(self, name: str, member_id: str) -> _Member:
        member = self.members.get(name)
        if member is None or member.member_id != member_id:
            raise GroupRefusal(name)
        return member

    def _target(self, names: list[str]) -> dict[int, str]:
        """Balance the slots over the members; owners keep their slots where possible."""
        if not names:
            return {}
        most = -(-self.slots // len(names))
        load = dict.fromkeys(names, 0)
        target: dict[int, str] = {}
        owners = {slot: n for n in names for slot in self.members[n].owned}
        for slot in range(self.slots):
            owner = owners.get(slot)
            if owner is not None and load[owner] < most and self._stays():
                target[slot] = owner
                load[owner] += 1
        for slot in range(self.slots):
            if slot not in target:
                target[slot] = self._choose([name for name in names if load[name] < most])
                load[target[slot]] += 1
        return target

    def _stays(self) -> bool:
        return self._random is None or self._random.random() < _KEEPS

    def _choose(self, names: list[str]) -> str:
        return names[0] if self._random is None else self._random.choice(names)


Callback: TypeAlias = tuple[str, frozenset[int]]
"""A callback that the application must run: ("assigned", "revoked" or "lost", slots)."""


class ClientState(Enum):
    """The state of a client in the group."""

    OUT = "not a member"
    JOINING = "waits for the rebalance to end"
    STABLE = "a member"
    LEAVING = "a member until its slots are released, to join again"
    LOST = "removed by the group; the application does not know yet"
    LOCKED_OUT = "another process has the name"
    GONE = "has left for good"
    STUCK = "does nothing any more"
    """Kafka's own client has been seen in this state; nothing in memory leads to it."""


@dataclass(slots=True, eq=False)
class GroupClient:
    """One process's membership, and the background work of a Kafka consumer.

    `callbacks` wait for the application's next poll.
    """

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
        """Whether it is a member without pending callbacks."""
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
        """Leave for good, without a callback; has no effect for a client unknown to the group.

        A client whose name another process has taken has no place to give up.
        """
        if self.state is ClientState.LOCKED_OUT:
            return
        with suppress(GroupRefusal):
            self.group.leave(self.name, self.member_id)
        self.member_id, self.generation, self.owned = "", -1, frozenset()
        self.callbacks.clear()
        self.state = ClientState.GONE

    def work(self) -> None:
        """Do the next step of a client's background work."""
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
        """Record that the application has served a callback.

        Has no effect if the group removed the member meanwhile: then the next callback reports the
        loss.
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

"""The consumer group in memory: a classic coordinator, and a client of it.

Cooperative rebalances with static members, as far as the fence depends on them: a round waits for
every member; a slot that moves is first taken from its owner, and given on in a later round, when
the owner has joined again without it; the generation belongs to the group and is checked with the
*member*, never with the slot; a member that comes back under its name takes over place and slots
without a round, and the former holder of the name is locked out.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from tidegate.producer.core.group_watch import GroupSeen

__all__ = ["Group", "GroupClient", "GroupRefusal", "Metadata"]


class GroupRefusal(Exception):
    """The group does not know the member, or not in this generation."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What a client says of its membership when it sends offsets."""

    name: str
    member_id: str
    generation: int


@dataclass(slots=True, eq=False)
class _Member:
    member_id: str
    owned: frozenset[int] = frozenset()
    """What it said it has when it last joined."""
    assigned: frozenset[int] = frozenset()
    """What the last complete round gave it."""


class Group:
    """The coordinator."""

    def __init__(self, slots: int, random: Random) -> None:
        self.slots = slots
        self.generation = 0
        self.members: dict[str, _Member] = {}
        self.is_preparing = False
        self._joined: set[str] = set()
        self._holders: dict[int, str] = {}
        self._random = random
        self._ids = 0

    # ------------------------------------------------------------ what clients ask

    def join(self, name: str, member_id: str, owned: frozenset[int]) -> str:
        """Join or join again; return the member id.  Raises GroupRefusal for one locked out."""
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
        gone = [s for s, holder in self._holders.items() if holder == name and s not in owned]
        for slot in gone:
            del self._holders[slot]
        return member.member_id

    def sync(self, name: str, member_id: str) -> tuple[int, frozenset[int]] | None:
        """Return (generation, assignment) once the round is complete."""
        member = self._require(name, member_id)
        return None if self.is_preparing else (self.generation, member.assigned)

    def heartbeat(self, name: str, member_id: str) -> bool:
        """Return whether a round is being prepared that the member has not joined yet."""
        self._require(name, member_id)
        return self.is_preparing and name not in self._joined

    def check(self, metadata: Metadata) -> bool:
        """Check a transaction's offsets; return whether anything was compared at all.

        A fixed name (`group.instance.id`) is compared even before its holder has joined, but not
        where nobody is.
        """
        is_nameless = not metadata.member_id and not metadata.name
        if metadata.generation < 0 and (is_nameless or not self.members):
            return False
        self._require(metadata.name, metadata.member_id)
        if metadata.generation != self.generation:
            raise GroupRefusal(metadata.name)
        return True

    # ------------------------------------------------------------ what time does

    def complete(self) -> bool:
        """End the round that is being prepared, if every member has joined."""
        members = self.members
        if not self.is_preparing or len(self._joined) < len(members):
            return False
        self.is_preparing = False
        self.generation += 1
        target = self._target(sorted(members))
        taken = {slot for one in members.values() for slot in one.owned}
        for name, member in members.items():
            fresh = {slot for slot, to in target.items() if to == name and slot not in taken}
            member.assigned = frozenset(
                fresh | {slot for slot in member.owned if target[slot] == name}
            )
            self._holders.update(dict.fromkeys(fresh, name))
        return True

    def leave(self, name: str, member_id: str) -> None:
        """Let a member go that says so."""
        self._require(name, member_id)
        self.expire(name)

    def expire(self, name: str) -> bool:
        """Throw a member out: its session has ended."""
        if self.members.pop(name, None) is None:
            return False
        self._joined.discard(name)
        self._holders = {slot: who for slot, who in self._holders.items() if who != name}
        self._prepare()
        return True

    def held_by(self, metadata: Metadata) -> frozenset[int]:
        """Return the slots that the group holds to be this member's."""
        member = self.members.get(metadata.name)
        if member is None or member.member_id != metadata.member_id:
            return frozenset()
        return frozenset(slot for slot, name in self._holders.items() if name == metadata.name)

    def described(self) -> GroupSeen:
        """Return what the coordinator answers to whoever asks for a description."""
        assigned = {name: member.assigned for name, member in self.members.items()}
        return GroupSeen(is_stable=not self.is_preparing, slots=assigned)

    @property
    def orphans(self) -> frozenset[int]:
        """Slots that the last round has given to nobody, while no other is being prepared."""
        if self.is_preparing:
            return frozenset()
        given = {slot for member in self.members.values() for slot in member.assigned}
        return frozenset(range(self.slots)) - given

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
        """Balance, keep what can be kept, and now and then move something all the same."""
        if not names:
            return {}
        most = -(-self.slots // len(names))
        load = dict.fromkeys(names, 0)
        target: dict[int, str] = {}
        owners = {slot: n for n in names for slot in self.members[n].owned}
        for slot in range(self.slots):
            owner = owners.get(slot)
            if owner is not None and load[owner] < most and self._random.random() < 0.8:
                target[slot] = owner
                load[owner] += 1
        for slot in range(self.slots):
            if slot not in target:
                free = [name for name in names if load[name] < most]
                target[slot] = self._random.choice(free)
                load[target[slot]] += 1
        return target


class State(Enum):
    OUT = "not a member"
    JOINING = "waits for the round to end"
    STABLE = "a member"
    LEAVING = "a member until its slots are let go, to join anew"
    LOST = "thrown out, and the application does not know yet"
    LOCKED_OUT = "another process holds the name"


@dataclass(slots=True, eq=False)
class GroupClient:
    """What the consumer does in the background; `callbacks` wait for the application's poll."""

    group: Group
    name: str
    state: State = State.OUT
    member_id: str = ""
    generation: int = -1
    owned: frozenset[int] = frozenset()
    callbacks: deque[tuple[str, frozenset[int]]] = field(default_factory=deque)
    must_rejoin: bool = False

    @property
    def is_settled(self) -> bool:
        """Whether it is a member and has nothing to tell the application."""
        return self.state is State.STABLE and not self.callbacks and not self.group.is_preparing

    def metadata(self) -> Metadata:
        return Metadata(self.name, self.member_id, self.generation)

    def rejoin(self) -> None:
        """Leave and join anew, once the application has let its slots go."""
        if self.owned:
            self.callbacks.append(("revoked", self.owned))
        self.must_rejoin = False
        self.state = State.LEAVING

    def work(self) -> None:
        """One turn of the background thread."""
        try:
            self._work()
        except GroupRefusal:
            self.callbacks.clear()
            self.must_rejoin = False
            if self.name in self.group.members:
                # The name is another's: an error tells the application, and no callback comes.
                self.state = State.LOCKED_OUT
                return
            self.member_id, self.generation = "", -1
            self.callbacks.append(("lost", self.owned))
            self.state = State.LOST

    def _work(self) -> None:
        group = self.group
        match self.state:
            case State.OUT:
                self.member_id = group.join(self.name, "", frozenset())
                self.state = State.JOINING
            case State.JOINING:
                answer = group.sync(self.name, self.member_id)
                if answer is None:
                    if group.heartbeat(self.name, self.member_id):
                        self._rejoin()
                    return
                self.generation, assigned = answer
                self.state = State.STABLE
                revoked, added = self.owned - assigned, assigned - self.owned
                if revoked:
                    self.callbacks.append(("revoked", revoked))
                    self.must_rejoin = True
                if added:
                    self.callbacks.append(("assigned", added))
            case State.STABLE:
                is_wanted = group.heartbeat(self.name, self.member_id)
                if not self.callbacks and (is_wanted or self.must_rejoin):
                    self._rejoin()
            case State.LEAVING:
                group.heartbeat(self.name, self.member_id)
                if not self.callbacks:
                    group.leave(self.name, self.member_id)
                    self.member_id, self.generation = "", -1
                    self.state = State.OUT
            case State.LOST | State.LOCKED_OUT:
                pass

    def _rejoin(self) -> None:
        self.must_rejoin = False
        self.state = State.JOINING
        self.member_id = self.group.join(self.name, self.member_id, self.owned)

    def done(self, kind: str, slots: frozenset[int]) -> None:
        """The application has taken note of the first callback."""
        self.callbacks.popleft()
        if kind == "assigned":
            self.owned |= slots
        else:
            self.owned -= slots
        if kind == "lost" and self.state is State.LOST:
            self.state = State.OUT

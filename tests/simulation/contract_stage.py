"""What a contract case speaks to: a broker with one data topic, slots, and a group over them."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

SLOTS = 4
DATA_NUMBERS = 2
UNSTABLE = "an open transaction holds it back"

Place = tuple[str, int]  # ("data" or "slots", topic partition)
Seen = tuple[list[tuple[int, bytes]], int]
"""(offset, value) of each record that a `read_committed` reader gets, and its position then."""


class Answer(Enum):
    OK = "done"
    REFUSED = "an error after which the transaction can only be aborted"
    FENCED = "the producer is finished; only a new one can go on"


class ProducerUnderTest(Protocol):
    """A transactional producer; making it took its transactional id over."""

    def begin(self) -> None: ...
    def produce(self, place: Place, key: bytes, value: bytes) -> Answer: ...
    def send_offsets(self, offsets: dict[int, int], metadata: Any) -> Answer: ...
    def commit(self) -> Answer: ...
    def abort(self) -> Answer: ...


class MemberUnderTest(Protocol):
    """A static member of the group; its application runs only inside `Stage.until`."""

    events: list[tuple[str, frozenset[int], int]]
    """What the application was notified of: assigned or revoked, slots, generation."""

    @property
    def slots(self) -> frozenset[int]: ...
    @property
    def generation(self) -> int: ...
    @property
    def is_locked_out(self) -> bool: ...
    def metadata(self) -> Any: ...
    def begin_round(self) -> None:
        """Release the slots, leave the group and join it again."""
        ...


class Stage(Protocol):
    """A broker with nothing in it."""

    def producer(self, name: str) -> ProducerUnderTest: ...
    def impatient_producer(self, name: str) -> ProducerUnderTest: ...
    def time_out(self, name: str) -> None:
        """Return when the broker has given up on the open transaction of an impatient producer."""
        ...

    def limit(self, size_bytes: int, kind: str = "") -> None:
        """Set the largest message of a kind of topic or, without one, of the brokers."""
        ...

    def append(self, place: Place, key: bytes, value: bytes) -> None: ...
    def read(self, place: Place) -> Seen: ...
    def stable_end(self, place: Place) -> int: ...
    def uncommitted_end(self, place: Place) -> int: ...
    def roll(self) -> None:
        """Let what follows stand in a segment of its own: a broker compacts only whole ones."""
        ...

    def compact(self, place: Place) -> None: ...

    def member(self, name: str) -> MemberUnderTest: ...
    def expire(self, name: str) -> None:
        """Let a member fall silent, and return when its session has ended."""
        ...

    def strange_metadata(self, name: str = "") -> Any:
        """Return the metadata of a client that has not joined, with a fixed name or without."""
        ...

    def committed(self, slot: int) -> int | str | None:
        """Return the group's offset, None, or UNSTABLE."""
        ...

    def assigned(self) -> dict[str, frozenset[int]] | None:
        """Return what the last round gave to whom, or None while another is being prepared."""
        ...

    def until(self, condition: Callable[[], bool], *members: MemberUnderTest) -> None:
        """Let time pass, and the applications of these members run; fails at the time-out."""
        ...

    def linger(self, *members: MemberUnderTest) -> None:
        """Let several heartbeats pass."""
        ...

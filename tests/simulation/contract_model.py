"""The model on the contract's stage: time is a turn for everybody, ordered by a seed."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.simulation.contract import DATA_NUMBERS, SLOTS, UNSTABLE, Answer, Place, Seen
from tidegate.producer.memory.broker import MemoryBroker, MessageRefused, ProducerFenced
from tidegate.producer.memory.group import (
    ClientState,
    Group,
    GroupClient,
    GroupRefusal,
    MemberMetadata,
)
from tidegate.producer.messages import batch_bytes

_TURNS_MAX = 2_000
_TURNS_LINGERED = 100


class ModelProducer:
    def __init__(self, broker: MemoryBroker, name: str) -> None:
        self._broker = broker
        self._handle = broker.init_producer(name)
        self._is_refused = False

    def begin(self) -> None:
        self._is_refused = False

    def produce(self, place: Place, key: bytes, value: bytes) -> Answer:
        size = batch_bytes(key, value)
        answer = _answer(
            lambda: self._broker.produce(self._handle, place, key, value, size_bytes=size)
        )
        self._is_refused |= answer is Answer.REFUSED
        return answer

    def send_offsets(self, offsets: dict[int, int], metadata: MemberMetadata) -> Answer:
        sent = tuple(offsets.items())
        return _answer(lambda: self._broker.send_offsets(self._handle, sent, metadata))

    def commit(self) -> Answer:
        if self._is_refused:
            return Answer.REFUSED  # by the client, which knows that a message failed
        return _answer(lambda: self._broker.end(self._handle, commit=True))

    def abort(self) -> Answer:
        return _answer(lambda: self._broker.end(self._handle, commit=False))


def _answer(ask: Callable[[], object]) -> Answer:
    try:
        ask()
    except ProducerFenced:
        return Answer.FENCED
    except (GroupRefusal, MessageRefused):
        return Answer.REFUSED
    return Answer.OK


class ModelMember:
    """A client of the group, and an application that agrees to everything."""

    def __init__(self, group: Group, name: str) -> None:
        self.events: list[tuple[str, frozenset[int], int]] = []
        self.client = GroupClient(group, name)

    @property
    def slots(self) -> frozenset[int]:
        return self.client.owned

    @property
    def generation(self) -> int:
        return self.client.generation

    @property
    def is_locked_out(self) -> bool:
        return self.client.state is ClientState.LOCKED_OUT

    def metadata(self) -> MemberMetadata:
        return self.client.metadata()

    def begin_round(self) -> None:
        self.client.rejoin()

    def serve(self) -> None:
        if self.client.callbacks:
            callback = self.client.callbacks[0]
            self.events.append((*callback, self.generation))
            self.client.done(callback)


class ModelStage:
    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._group = Group(SLOTS, random=self._random)
        self._broker = MemoryBroker(
            {"data": DATA_NUMBERS, "slots": SLOTS}, group=self._group, settles_at_once=False
        )
        self._members: list[ModelMember] = []

    def producer(self, name: str) -> ModelProducer:
        return ModelProducer(self._broker, name)

    impatient_producer = producer

    def time_out(self, name: str) -> None:
        assert self._broker.time_out(name)

    def limit(self, size_bytes: int, kind: str = "") -> None:
        if kind:
            self._broker.topic_bytes_max[kind] = size_bytes
        else:
            self._broker.message_bytes_max = size_bytes

    def append(self, place: Place, key: bytes, value: bytes) -> None:
        self._broker.logs[place].append(key, value, None)

    def read(self, place: Place) -> Seen:
        log = self._broker.logs[place]
        return [(entry.offset, bytes(entry.value)) for entry in log.read(0)], log.stable_end

    def stable_end(self, place: Place) -> int:
        return self._broker.logs[place].stable_end

    def uncommitted_end(self, place: Place) -> int:
        return self._broker.logs[place].uncommitted_end

    def roll(self) -> None:
        """Let what follows stand in a segment of its own: a broker compacts only whole ones."""

    def compact(self, place: Place) -> None:
        log = self._broker.logs[place]
        log.compact(log.end)

    def member(self, name: str) -> ModelMember:
        self._members.append(ModelMember(self._group, name))
        return self._members[-1]

    def expire(self, name: str) -> None:
        self._members = [member for member in self._members if member.client.name != name]
        assert self._group.expire(name)

    def strange_metadata(self, name: str = "") -> MemberMetadata:
        return MemberMetadata(name, "", -1)

    def committed(self, slot: int) -> int | str | None:
        broker = self._broker
        return broker.offsets.get(slot) if broker.offsets_are_stable(slot) else UNSTABLE

    def assigned(self) -> dict[str, frozenset[int]] | None:
        return None if self._group.is_preparing else self._group.assignment()

    def until(self, condition: Callable[[], bool], *members: ModelMember) -> None:
        for _ in range(_TURNS_MAX):
            if condition():
                return
            self._turn(members)
        raise AssertionError(f"the condition does not hold after {_TURNS_MAX} turns")

    def linger(self, *members: ModelMember) -> None:
        for _ in range(_TURNS_LINGERED):
            self._turn(members)

    def _turn(self, members: tuple[ModelMember, ...]) -> None:
        turns: list[Callable[[], object]] = [member.client.work for member in self._members]
        turns += [member.serve for member in members]
        turns += [self._group.complete, self._write_marker]
        self._random.shuffle(turns)
        for turn in turns:
            turn()

    def _write_marker(self) -> None:
        unsettled = self._broker.unsettled
        if unsettled:
            self._broker.write_marker(self._random.choice(unsettled), self._random.randrange(8))

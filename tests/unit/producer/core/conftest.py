"""A worker on a broker in memory, with outcomes on demand."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.events import Now
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.effect_runner import EffectRunner
from tidegate.producer.memory.broker import TOMBSTONE, MemoryBroker
from tidegate.producer.memory.group import Group, MemberMetadata
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.messages import FORM_RECORD, ChangeMessage, ParkedChange, PublishableRecord
from tidegate.producer.records import ChildPartitionsRecord, HeartbeatRecord
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.progress import ChildPartition, DataTopic, SlotChanges, SlotProgress
from tidegate.schemas.progress_chain import SlotChain
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

START_US = 1_700_000_000_000_000
SLOTS = 4
TOPIC, PROGRESS, DEAD_LETTER = "bank.accounts", "bank-progress", "bank-dead-letter"


def kinds(effects):
    """Name the effects, for a comparison of whole sequences."""
    return [type(effect).__name__ for effect in effects]


def record(at_us, transaction="t", sequence="00000000"):
    """Return a record without messages: only its place matters."""
    return PublishableRecord(at_us, transaction, sequence, ())


def message(order_key, key=b"k", topic="t", value=b"value"):
    return ChangeMessage(topic, key, value, order_key, b"U", bytes(8))


def parked_change(order_key, key=b"k", topic="t", token="token"):
    return ParkedChange(
        topic, key, order_key, b"U", b"{}", FORM_RECORD, "SchemaError", "why", token
    )


class Log:
    """What Kafka holds, as a `read_committed` reader gets it."""

    def __init__(self) -> None:
        self.broker = MemoryBroker({TOPIC: 1, PROGRESS: SLOTS, DEAD_LETTER: 1}, group=Group(SLOTS))

    @property
    def slots(self) -> dict[int, list[Any]]:
        """Each slot's progress records by offset; None where there is none to read."""
        found: dict[int, list[Any]] = {}
        for slot in range(SLOTS):
            log = self.broker.logs[PROGRESS, slot]
            read = {e.offset: e.value for e in log.read() if e.value is not TOMBSTONE}
            found[slot] = [read.get(offset) for offset in range(log.end)]
        return found

    @property
    def sizes(self) -> dict[int, int]:
        return {slot: len(records) for slot, records in self.slots.items()}

    @property
    def data(self) -> list[Any]:
        return [entry.value for entry in self.broker.read(TOPIC)]


class BenchPublisher(MemoryPublisher):
    """Answers a commit as the test says."""

    bench: Bench

    def commit(self) -> Any:
        outcome, self.bench.outcome = self.bench.outcome, None
        if outcome is None:
            super().commit()
        else:
            super().abort("the test asks for another outcome")
        if isinstance(outcome, on.ProducerFenced):
            self.bench.membership.is_replaced = outcome.has_successor
        return (outcome or on.TransactionCommitted()) if self.bench.answers_commits else None


class BenchMembership(MemoryMembership):
    """Outside of any group: the test assigns and revokes slots."""

    is_replaced = False

    def metadata(self) -> bytes:
        """Return the metadata of a client without a group, which a fence lets pass."""
        return MemberMetadata("", "", -1).encode()

    def has_successor(self) -> bool:
        return self.is_replaced


class BenchRunner(EffectRunner):
    """Notes every effect."""

    bench: Bench

    def _run(self, effect: do.Effect) -> None:
        self.bench.effects.append(effect)
        super()._run(effect)


class BenchReader:
    """A query that says only what the test lets it say."""

    def __init__(self, bench: Bench, query: do.StartQuery) -> None:
        self._bench = bench
        self._query = query

    def start(self) -> None:
        self._bench.queries[self._query.token] = self._query

    def stop(self) -> None:
        if self._bench.queries.get(self._query.token) is self._query:
            del self._bench.queries[self._query.token]


class Bench:
    """One worker over the models of `producer/memory`; tests say what happens, and when."""

    def __init__(
        self,
        log: Log,
        *,
        name: str = "w1",
        start_us: int = START_US,
        end_ns: int | None = None,
        limits: WorkerLimits | None = None,
        kind: type[Worker] = Worker,
        has_read_commands: bool = True,
    ) -> None:
        """`has_read_commands`: whether it knows already that no operator has paused the stream."""
        self.log = log
        self.now_us = START_US
        self.wall_ahead_us = 0  # how far the wall clock is ahead of the monotonic one
        identity = StreamIdentity(
            "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "g", SLOTS, "pid",
            (DataTopic(TOPIC, "tid", 1, 1),),
        )  # fmt: skip
        self.worker = kind(
            name=name, epoch=f"epoch-of-{name}", identity=identity,
            start_ns=start_us * 1000, end_ns=end_ns, limits=limits,
        )  # fmt: skip
        if has_read_commands:
            self.worker._commands.handle(on.RootSlotRead((), is_at_end=True))
        self.queries: dict[str, do.StartQuery] = {}
        self.effects: list[do.Effect] = []
        self.outcome: on.Event | None = None
        self.answers_commits = True
        publisher = BenchPublisher(
            log.broker, transactional_id=name, progress_topic=PROGRESS, dead_letter=DEAD_LETTER
        )
        publisher.bench = self
        publisher.start()
        self.runner = BenchRunner(
            self.worker,
            publisher=publisher,
            open_reader=lambda query, _deliver: BenchReader(self, query),
            open_stream_start=lambda: MemoryStreamStartFinder(
                log.broker, topic=PROGRESS, root_slot=slot_of(ROOT_TOKEN, SLOTS)
            ),
            deliver=lambda _output: None,
            release_budget=lambda _size: None,
            clock=self,
            observe=lambda _event, worker: worker.check_invariants(),
        )
        self.runner.bench = self
        self.membership = BenchMembership(
            log.broker, worker=name, client_id=name, topic=PROGRESS,
            listener=None, clock=self,  # type: ignore[arg-type]
        )  # fmt: skip
        self.runner.attach(self.membership)

    def successor(self, name: str = "w2", slots: Any = range(SLOTS), **options: Any) -> Bench:
        """Return another worker on the same log, which owns these slots."""
        heir = Bench(self.log, name=name, **options)
        heir.own(*slots)
        return heir

    # -- time

    def monotonic_us(self) -> int:
        return self.now_us

    def wall_us(self) -> int:
        return self.now_us + self.wall_ahead_us

    def sleep(self, seconds: float) -> None:
        self.now_us += round(seconds * 1_000_000)

    @property
    def now(self) -> Now:
        return self.at(self.now_us)

    def at(self, us: int) -> Now:
        """Return the worker's time when its monotonic clock shows `us`."""
        return Now(us, us + self.wall_ahead_us)

    # -- records

    @staticmethod
    def change(
        at_us: int, transaction: str = "t1", sequence: str = "00000000", *, topic: str = TOPIC
    ) -> PublishableRecord:
        key = OrderKey(at_us, transaction, sequence_pair(sequence), 0).encode()
        message = ChangeMessage(topic, b"key", b"value", key, b"I", bytes(8))
        return PublishableRecord(at_us, transaction, sequence, (message,))

    @staticmethod
    def heartbeat(at_us: int) -> HeartbeatRecord:
        return HeartbeatRecord(at_us * 1000)

    @staticmethod
    def children(
        *tokens: str, start_us: int, parents: tuple[str, ...] = ()
    ) -> ChildPartitionsRecord:
        kids = tuple(ChildPartition(token, parents, start_us * 1000) for token in tokens)
        return ChildPartitionsRecord(start_us * 1000, "00000000", kids)

    # -- giving events

    @property
    def stopped(self) -> list[do.Stop]:
        return [effect for effect in self.effects if isinstance(effect, do.Stop)]

    @property
    def error(self) -> Exception | None:
        """The error of the one stop that the core asked for."""
        (stop,) = self.stopped
        return stop.error

    def give(self, event: on.Event) -> list[do.Effect]:
        """Handle an event and everything that follows from it; return all effects in order."""
        before = len(self.effects)
        self.runner.process(event)
        finder = self.runner.stream_start
        if finder is not None:
            record, _ = finder.poll()
            if record is not None:
                self.runner.stream_start = None
                self.runner.process(on.StreamStartFound(record))
            else:
                self.runner.process(on.StreamStartAbsent(self.runner.search_id))
        return self.effects[before:]

    def own(self, *slots: int) -> None:
        """Assign slots and read them to their end."""
        self.give(on.SlotsAssigned(slots))
        self.read()

    def read(self) -> None:
        """Read every owned slot to its end, until nothing new comes or the worker stops."""
        while not self.runner.is_stopped and (
            events := [
                event
                for slot in self.worker.slots
                if slot in self.membership.positions
                for event in self.membership.read_slot(slot, count=1_000)
            ]
        ):
            for event in events:
                self.give(event)

    def later(self, us: int = 1_000_000) -> list[do.Effect]:
        """Let time pass, then tick."""
        self.now_us += us
        effects = self.give(on.Ticked())
        self.read()
        return effects

    def read_root_slot(self) -> None:
        for event in self.membership.read_root_slot():
            self.give(event)

    def returns(self, token: str, *items: object) -> None:
        query = self.queries[token]
        self.give(on.RecordsRead(token, query.query_id, list(items), 100))  # type: ignore[arg-type]

    def ends(self, token: str) -> list[do.Effect]:
        return self.give(on.QueryEnded(token, self.queries.pop(token).query_id))

    def fails(self, token: str, error: Exception) -> list[do.Effect]:
        return self.give(on.QueryFailed(token, self.queries.pop(token).query_id, error))

    def open_stream(self, *tokens: str) -> None:
        """Own every slot and open a stream whose initial query returns these tokens."""
        self.own(*range(SLOTS))
        self.returns(ROOT_TOKEN, self.children(*tokens, start_us=START_US))
        self.ends(ROOT_TOKEN)
        self.read()

    # -- looking

    def bodies(self, kind: type) -> list[Any]:
        return [
            record.body
            for records in self.log.slots.values()
            for record in records
            if record is not None and isinstance(record.body, kind)
        ]

    def last_snapshot(self, token: str) -> SlotProgress:
        """Return the newest committed snapshot of a token's slot, with the changes since it."""
        number = slot_of(token, SLOTS)
        chain: SlotChain | None = None
        for offset, record in enumerate(self.log.slots[number]):
            body = None if record is None else record.body
            if isinstance(body, SlotProgress):
                chain = SlotChain(body, offset=offset)
            elif isinstance(body, SlotChanges) and chain is not None:
                chain.add(body)
        assert chain is not None
        return chain.snapshot(number)

    def released(self) -> int:
        return sum(
            size for e in self.effects if isinstance(e, do.ReleaseBudget) for _, size in e.sizes
        )


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def bench(log: Log) -> Bench:
    return Bench(log)


@pytest.fixture
def opened(bench: Bench) -> Bench:
    """A worker that owns everything and reads the stream partition `a`."""
    bench.open_stream("a")
    return bench


@pytest.fixture
def make_bench(log: Log):
    return lambda **options: Bench(log, **options)

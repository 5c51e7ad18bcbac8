"""A worker whose time is counted, not waited for: the product's loop over Kafka in memory.

Its queries are a schedule: each returns a heartbeat at its times and nothing else, unless the
caller adds to it.  What the worker writes into the progress topic is counted as it commits it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from heapq import heapify, heapreplace
from typing import Any, Self

from benchmarks.producer.memory_fleet import NAMES, data_topic, step, topic_id
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher, _Queued
from tidegate.producer.messages import batch_bytes
from tidegate.producer.records import ChildPartitionsRecord, HeartbeatRecord
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND
from tidegate.schemas.progress import ChildPartition, SlotChanges, SlotProgress
from tidegate.schemas.topics import ROOT_TOKEN, SLOTS_DEFAULT, slot_of

TOPIC = NAMES.data("Accounts")
_TOPIC_PARTITIONS = 6
_TOKEN_CHARACTERS = 140
_ITEM_BYTES = 200
_STEPS_MAX = 10_000
_ENVELOPE_BYTES = batch_bytes(b"", b"")
_FRAMES_BYTES = 10
"""Key and value begin with a schema's id each on a real broker, and have none in memory."""


@dataclass(slots=True)
class Commit:
    """What one transaction has written into the progress topic, by slot."""

    messages: dict[int, int] = field(default_factory=dict)
    size_bytes: dict[int, int] = field(default_factory=dict)
    """Keys and values."""
    moved: dict[int, int] = field(default_factory=dict)
    """Stream partitions that a slot's changes name."""
    begins_chain: set[int] = field(default_factory=set)
    """Slots whose heartbeat is a complete one."""


class VirtualFleet:
    """One worker that owns all slots, and so many stream partitions; a context manager."""

    def __init__(self, stream_partitions: int, *, heartbeat_us: int = US_PER_SECOND) -> None:
        """Start, and read all of them; heartbeats are spread evenly over their interval."""
        self.tokens = [_token(number) for number in range(stream_partitions)]
        self.commits: list[Commit] = []
        self.cpu_s = 0.0
        """CPU seconds of the loop's rounds; what the schedule takes does not count."""
        self._clock = ManualClock()
        self._heartbeat_us = heartbeat_us
        self._queries: dict[str, _Query] = {}
        self._due: list[tuple[int, str]] = []
        self._worker = self._made()
        self._worker.start()
        self._settle(lambda: len(self._queries) == stream_partitions)
        first_us = self._clock.monotonic_us()
        self._due = [
            (first_us + (number + 1) * heartbeat_us // stream_partitions, token)
            for number, token in enumerate(self.tokens)
        ]
        heapify(self._due)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the worker."""
        self._worker.close()

    # ------------------------------------------------------------ what happens to it

    def run(self, seconds: float) -> None:
        """Let time pass, with its heartbeats."""
        until_us = self._clock.monotonic_us() + round(seconds * US_PER_SECOND)
        while (now_us := self._clock.monotonic_us()) < until_us:
            while self._due[0][0] <= now_us:
                at_us, token = self._due[0]
                heapreplace(self._due, (at_us + self._heartbeat_us, token))
                self.deliver(token, self.heartbeat())
            self._step()

    def rest(self) -> None:
        """Let what was returned be published, with no more to come."""
        until_us = self._clock.monotonic_us() + US_PER_SECOND
        while self._clock.monotonic_us() < until_us:
            self._step()

    def move(self, tokens: list[str], item_of: Callable[[str], Any]) -> list[Commit]:
        """Let these alone return an item each; return the transactions that publish them."""
        before = len(self.commits)
        for token in tokens:
            self.deliver(token, item_of(token))
        self.rest()
        return self.commits[before:]

    def heartbeat(self) -> HeartbeatRecord:
        """Return a heartbeat of the present time."""
        return HeartbeatRecord(self._clock.wall_us() * NS_PER_US)

    def wall_us(self) -> int:
        """Return the present time."""
        return self._clock.wall_us()

    def deliver(self, token: str, item: Any) -> None:
        """Let a query return an item."""
        query = self._queries[token]
        query.deliver(on.RecordsRead(token, query.query_id, [item], _ITEM_BYTES))

    # ------------------------------------------------------------ inside

    def _step(self) -> None:
        began = time.thread_time()
        step(self._worker)
        self.cpu_s += time.thread_time() - began

    def _settle(self, is_settled: Callable[[], bool]) -> None:
        for _ in range(_STEPS_MAX):
            if is_settled():
                return
            self._step()
        raise AssertionError("the worker does not settle")

    def _made(self) -> FleetWorker:
        broker = MemoryBroker(
            {TOPIC: _TOPIC_PARTITIONS, NAMES.progress: SLOTS_DEFAULT}, group=Group(SLOTS_DEFAULT)
        )
        identity = StreamIdentity(
            stream="d/changeStreams/s",
            dialect="GOOGLE_STANDARD_SQL",
            group=NAMES.group,
            slots=SLOTS_DEFAULT,
            progress_topic_id=topic_id(broker, NAMES.progress),
            topics=(data_topic(broker, TOPIC),),
        )
        start_ns = self._clock.wall_us() * NS_PER_US
        worker = FleetWorker(
            Worker(name="w", epoch="e", identity=identity, start_ns=start_ns),
            publisher=_CountingPublisher(broker, self.commits),
            open_reader=self._opened,
            open_stream_start=lambda: MemoryStreamStartFinder(
                broker, topic=NAMES.progress, root_slot=slot_of(ROOT_TOKEN, SLOTS_DEFAULT)
            ),
            release_budget=lambda _released: None,
            clock=self._clock,
            threads=_OneThread(self._clock),
        )
        worker.attach(
            MemoryMembership(
                broker,
                worker="w",
                client_id="w-1",
                topic=NAMES.progress,
                listener=worker,
                clock=self._clock,
            )
        )
        return worker

    def _opened(self, effect: do.StartQuery, deliver: Callable[[on.ReaderOutput], None]) -> _Query:
        query = _Query(effect.query_id, deliver, self._queries, effect.token)
        if effect.token != ROOT_TOKEN:
            self._queries[effect.token] = query
            return query
        children = tuple(ChildPartition(one, ("",), effect.start_ns) for one in self.tokens)
        found = ChildPartitionsRecord(effect.start_ns, "00000000", children)
        deliver(on.RecordsRead(effect.token, effect.query_id, [found], _ITEM_BYTES))
        deliver(on.QueryEnded(effect.token, effect.query_id))
        return query


@dataclass(frozen=True, slots=True)
class _Query:
    query_id: int
    deliver: Callable[[on.ReaderOutput], None]
    running: dict[str, _Query]
    token: str

    def start(self) -> None:
        """Its items come when they are due."""

    def stop(self) -> None:
        if self.running.get(self.token) is self:
            del self.running[self.token]


class _CountingPublisher(MemoryPublisher):
    def __init__(self, broker: MemoryBroker, commits: list[Commit]) -> None:
        super().__init__(broker, transactional_id="w", progress_topic=NAMES.progress)
        self._commits = commits
        self._current = Commit()

    def begin(self, metadata: bytes | None) -> Any:
        self._current = Commit()
        return super().begin(metadata)

    def publish_progress(self, effect: do.PublishProgress) -> Any:
        body, one = effect.record.body, self._current
        if isinstance(body, SlotProgress):
            one.begins_chain.add(effect.slot)
        elif isinstance(body, SlotChanges):
            named = len(body.moved) + len(body.added) + len(body.removed)
            one.moved[effect.slot] = one.moved.get(effect.slot, 0) + named
        return super().publish_progress(effect)

    def commit(self) -> Any:
        outcome = super().commit()
        if isinstance(outcome, on.TransactionCommitted):
            self._commits.append(self._current)
        return outcome

    def _enqueue(self, queued: _Queued) -> None:
        super()._enqueue(queued)
        topic, slot = queued.place
        if topic == NAMES.progress:
            one = self._current
            size = queued.size_bytes - _ENVELOPE_BYTES + _FRAMES_BYTES
            one.messages[slot] = one.messages.get(slot, 0) + 1
            one.size_bytes[slot] = one.size_bytes.get(slot, 0) + size


class _OneThread:
    """Conditions whose waiting lets the counted time pass; implements `ports.Threads`."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def condition(self) -> Any:
        """Return one."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def notify_all(self) -> None:
        """Nobody waits."""

    def wait_for(self, predicate: Callable[[], bool], timeout_s: float) -> bool:
        """Let the time pass."""
        self._clock.sleep(timeout_s)
        return predicate()


def _token(number: int) -> str:
    """Return a name as long as the service's, in which a compressor finds nothing that repeats."""
    digests = (sha256(b"%d/%d" % (number, part)).hexdigest() for part in range(3))
    return "".join(digests)[:_TOKEN_CHARACTERS]

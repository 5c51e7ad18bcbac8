"""Two workers find no `StreamStarted` and both begin to open the stream: one of them does.

Both run the production loop over the models of `producer/memory`.  The first is removed from the
group while it opens the stream, at each of its calls to the broker in turn, and goes on when the
second has done all that it can do by then.
"""

from __future__ import annotations

import threading

import pytest

from tests.unit.producer.core.conftest import Bench
from tidegate.producer.core import events as on
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.schemas.progress import DataTopic, PartitionAnnounced, StreamStarted
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

TOPIC, PROGRESS, SLOTS = "bank.accounts", "bank-progress", 4
ROOT_SLOT = slot_of(ROOT_TOKEN, SLOTS)
STEP_US = 100_000
STEPS = 40

# What an opener calls, with two children; the last two are the fence and the commit.
CALLS = (
    "begin", "publish_progress", "publish_progress", "publish_progress", "await_delivery",
    "publish_progress", "publish_progress", "await_delivery", "send_offsets", "commit",
)  # fmt: skip


class InterruptedPublisher:
    """Notes the calls of a publisher, and lets `interrupt` run before one of them."""

    def __init__(self, publisher):
        self.publisher = publisher
        self.calls = []
        self.interrupt_at = None
        self.interrupt = None

    def __getattr__(self, name):
        found = getattr(self.publisher, name)
        if name not in CALLS:
            return found

        def call(*args):
            self.calls.append(name)
            if len(self.calls) - 1 == self.interrupt_at:
                self.interrupt()
            return found(*args)

        return call


class Reader:
    """A query: the initial one names two children and ends, others wait for the test."""

    def __init__(self, program, query, deliver):
        self.program, self.query, self.deliver = program, query, deliver

    def start(self):
        token, query_id = self.query.token, self.query.query_id
        if token != ROOT_TOKEN:
            self.program.readers[token] = self
        else:
            self.program.initial_queries += 1
            children = Bench.children("a", "b", start_us=self.query.start_ns // 1000)
            self.deliver(on.RecordsRead(token, query_id, [children], 100))
            self.deliver(on.QueryEnded(token, query_id))

    def stop(self):
        self.program.readers.pop(self.query.token, None)


class NoThreads:
    """Nothing else runs, so there is nothing to wait for."""

    def condition(self):
        condition = threading.Condition()
        condition.wait_for = lambda predicate, timeout=None: predicate()
        return condition


class Program:
    """One worker's program."""

    def __init__(self, broker, clock, name):
        self.readers = {}
        self.initial_queries = 0
        self.publisher = InterruptedPublisher(
            MemoryPublisher(broker, transactional_id=name, progress_topic=PROGRESS)
        )
        progress_id, data_id = (broker.describe_topic(one).topic_id for one in (PROGRESS, TOPIC))
        identity = StreamIdentity(
            "db/changeStreams/s", "GOOGLE_STANDARD_SQL", "g", SLOTS, progress_id,
            (DataTopic(TOPIC, data_id, 1, 1),),
        )  # fmt: skip
        self.worker = Worker(name=name, epoch=f"epoch-of-{name}", identity=identity, start_ns=None)
        self.loop = FleetWorker(
            self.worker,
            publisher=self.publisher,
            open_reader=lambda query, deliver: Reader(self, query, deliver),
            open_stream_start=lambda: MemoryStreamStartFinder(
                broker, topic=PROGRESS, root_slot=ROOT_SLOT
            ),
            release_budget=lambda _size: None,
            clock=clock,
            threads=NoThreads(),
            observe=lambda _event, worker: worker.check_invariants(),
        )
        self.loop.attach(
            MemoryMembership(
                broker, worker=name, client_id=f"{name}-1", topic=PROGRESS,
                listener=self.loop, clock=clock,
            )
        )  # fmt: skip
        self.loop.start()


class Race:
    """Both programs on one broker."""

    def __init__(self):
        self.broker = MemoryBroker({TOPIC: 1, PROGRESS: SLOTS}, group=Group(SLOTS))
        self.clock = ManualClock()
        self.first = Program(self.broker, self.clock, "w1")
        self.second = Program(self.broker, self.clock, "w2")

    def go_on(self, *programs):
        """Let programs do their rounds in turn, for some seconds."""
        for _ in range(STEPS):
            self.clock.advance(STEP_US)
            for program in programs:
                assert program.loop.step(), program.loop.error

    def bodies(self, kind):
        found = [entry.value for entry in self.broker.read(PROGRESS)]
        return [record for record in found if isinstance(getattr(record, "body", None), kind)]


@pytest.fixture
def race():
    return Race()


@pytest.mark.parametrize("is_timed_out", [False, True], ids=["", "timed out"])
@pytest.mark.parametrize("at", range(len(CALLS)), ids=lambda at: f"{at}-{CALLS[at]}")
def test_one_opens_the_stream_and_the_other_takes_it_over(race, at, is_timed_out):
    first, second, broker = race.first, race.second, race.broker

    def lose_the_slots():
        broker.group.expire("w1")
        if is_timed_out:
            broker.time_out("w1")
        # A new owner waits here until the fence before it has an outcome.
        if broker.offsets_are_stable(ROOT_SLOT):
            race.go_on(second)

    first.publisher.interrupt_at, first.publisher.interrupt = at, lose_the_slots
    race.go_on(first)
    assert first.publisher.calls[: at + 1] == list(CALLS[: at + 1])
    race.go_on(first, second)

    # Once the group has accepted the fence, losing the slot does not change the outcome.
    is_first = CALLS[at] == "commit" and not is_timed_out
    winner, loser = (first, second) if is_first else (second, first)
    (started,) = race.bodies(StreamStarted)
    assert started.epoch == f"epoch-of-{winner.worker.name}"
    assert (first.initial_queries, second.initial_queries) == (1, 0 if is_first else 1)
    assert loser.worker.stream == winner.worker.stream == started.body
    assert loser.worker.epoch == winner.worker.epoch == started.epoch
    announced = race.bodies(PartitionAnnounced)
    assert sorted(one.body.child.token for one in announced) == ["a", "b"]
    assert {one.epoch for one in announced} == {started.epoch}

    # Both work for the one epoch, each stream partition in one of them.
    assert {len(one.worker.slots) for one in (first, second)} == {SLOTS // 2}
    assert sorted([*first.readers, *second.readers]) == ["a", "b"]
    for reader in [*first.readers.values(), *second.readers.values()]:
        query = reader.query
        change = Bench.change(query.start_ns // 1000 + 10)
        reader.deliver(on.RecordsRead(query.token, query.query_id, [change], 100))
    race.go_on(first, second)
    assert len(broker.read(TOPIC)) == 2

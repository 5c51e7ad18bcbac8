"""One contract for each port in memory, in the simulation and on real parts; see the cases.

The broker, the publisher and the membership on a real Kafka; change streams over gRPC.
"""

from __future__ import annotations

import time
import uuid
from collections import defaultdict
from contextlib import suppress
from random import Random

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from spanner_simulator import Simulator
from tests.reading import decoded
from tests.simulation import contract, contract_change_stream, contract_ports
from tests.simulation.contract_broker import BrokerStage
from tests.simulation.contract_change_stream import Turn
from tests.simulation.contract_model import ModelStage
from tests.simulation.contract_ports import SLOTS, TestWorker
from tests.simulation.spanner import QueryDone, SimSpanner, StreamQuery
from tests.simulation.tables import SimTables
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.kafka.dead_letters import KafkaDeadLetters
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.producer.kafka.progress_follower import ProgressFollower
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.change_stream import MemoryChangeStream
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.schemas.progress import ChildPartition, PartitionAnnounced, ProgressRecord
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import TopicNames

# ---------------------------------------------------------------- the broker


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("case", contract.CASES, ids=lambda case: case.__name__)
def test_the_model(case, seed):
    case(ModelStage(seed))


@pytest.mark.integration
@pytest.mark.deep
@pytest.mark.parametrize("case", contract.CASES, ids=lambda case: case.__name__)
def test_a_real_broker(case, stage):
    case(stage)


TIME_OUT_MS = 2_000
FIRST_CALLS = {
    "deliver": lambda publisher: announce(publisher) or publisher.await_delivery(),
    "fence": lambda publisher: publisher.send_offsets(((0, 1),)),
    "commit": lambda publisher: publisher.commit(),
    "abort": lambda publisher: publisher.abort("a slot was lost"),
}


def announce(publisher):
    body = PartitionAnnounced(ChildPartition("child", (), 1), "parent")
    return publisher.publish_progress(do.PublishProgress(0, 0, ProgressRecord("e", "w", body)))


class Publishers:
    """The production adapter, one for each first call, each with a transaction open."""

    def __init__(self, address, stage, *, timeout_ms):
        self._address, self._stage, self._timeout_ms = address, stage, timeout_ms
        self._names = {name: f"{name}-{uuid.uuid4().hex}" for name in FIRST_CALLS}
        self._made = []

    def started(self):
        return {name: self._started(name) for name in FIRST_CALLS}

    def _started(self, name):
        publisher = KafkaPublisher(
            bootstrap_servers=self._address,
            transactional_id=self._names[name],
            transaction_timeout_ms=self._timeout_ms,
            progress_topic=self._stage.topics["slots"],
            topic_partitions={},
            progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)),
        )
        publisher.start()
        self._made.append(publisher)
        return publisher

    def end(self):
        """Release the clients."""
        for publisher in self._made:
            publisher.close()

    def opened(self):
        made = self.started()
        for publisher in made.values():
            assert publisher.begin(self._stage.strange_metadata()) is None
            assert announce(publisher) is None
            assert isinstance(publisher.await_delivery(), on.Delivered)
        return made


@pytest.fixture
def stage(address):
    made = BrokerStage(address)
    yield made
    made.close()


@pytest.fixture
def publishers_with(address, stage):
    """Makes publishers with a transaction time-out; ends them after the test."""
    made = []

    def make(*, timeout_ms):
        made.append(Publishers(address, stage, timeout_ms=timeout_ms))
        return made[-1]

    yield make
    for publishers in made:
        publishers.end()


@pytest.mark.integration
def test_the_adapter_reports_a_fence_after_a_time_out_whatever_it_asks_first(
    publishers_with, stage
):
    """The event alone does not say whether a successor or the time-out did it; the group does."""
    publishers = publishers_with(timeout_ms=TIME_OUT_MS).opened()
    stage.until(lambda: stage.stable_end(("slots", 0)) == 2 * len(publishers))
    outcomes = {name: call(publishers[name]) for name, call in FIRST_CALLS.items()}
    assert outcomes == dict.fromkeys(FIRST_CALLS, on.ProducerFenced())
    again = publishers["commit"]
    again.start()
    assert again.begin(stage.strange_metadata()) is None
    assert announce(again) is None
    assert isinstance(again.await_delivery(), on.Delivered)
    assert again.commit() == on.TransactionCommitted()


@pytest.mark.integration
def test_the_adapter_reports_a_fence_after_a_successor_whatever_it_asks_first(
    publishers_with, stage
):
    publishers = publishers_with(timeout_ms=60_000)
    former, successors = publishers.opened(), publishers.started()
    outcomes = {name: call(former[name]) for name, call in FIRST_CALLS.items()}
    assert outcomes == dict.fromkeys(FIRST_CALLS, on.ProducerFenced())
    for successor in successors.values():
        assert successor.begin(stage.strange_metadata()) is None
        assert announce(successor) is None
        assert successor.commit() == on.TransactionCommitted()


@pytest.mark.integration
def test_the_adapter_goes_on_after_a_refused_fence(publishers_with, stage):
    member = stage.member("worker")
    stage.until(lambda: bool(member.slots), member)
    publisher = publishers_with(timeout_ms=60_000).started()["fence"]
    assert publisher.begin(stage.strange_metadata("worker")) is None
    assert announce(publisher) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    assert isinstance(publisher.send_offsets(((0, 1),)), on.TransactionAborted)
    assert publisher.begin(member.metadata()) is None
    assert announce(publisher) is None
    assert isinstance(publisher.await_delivery(), on.Delivered)
    assert publisher.send_offsets(((0, 1),)) is None
    assert publisher.commit() == on.TransactionCommitted()


# ---------------------------------------------------------------- publisher and membership

TURNS_MAX = 200
PATIENCE_S = 60
BEHIND_S = 2
"""Ten fetches of a client."""
SESSION_TIMEOUT_MS = 6_000
PROGRESS = "bank-progress"
DEAD_LETTER = "bank-dead-letter"
KEY_ID, RECORD_ID = 1, 2


class HesitantDecoder(ProgressDecoder):
    """Does not know the schema of some records when they are read for the first time."""

    def __init__(self):
        super().__init__(InMemorySchemaRegistry().schema, own_ids=[RECORD_ID])
        self._asked = set()
        self._count = 0

    def is_ready(self, value):
        self._count += 1
        if value in self._asked or self._count % 3:
            return True
        self._asked.add(value)
        return False


class MemoryPorts:
    """The models of `producer/memory`."""

    def __init__(self):
        self._broker = MemoryBroker({PROGRESS: SLOTS, DEAD_LETTER: 1}, group=Group(SLOTS))
        self._started = 0

    def worker(self, name):
        self._started += 1
        worker = TestWorker(name)
        worker.publisher = MemoryPublisher(
            self._broker, transactional_id=name, progress_topic=PROGRESS, dead_letter=DEAD_LETTER
        )
        worker.membership = MemoryMembership(
            self._broker, worker=name, client_id=f"{name}-{self._started}", topic=PROGRESS,
            listener=worker, clock=ManualClock(),
        )  # fmt: skip
        worker.publisher.start()
        worker.membership.start()
        return worker

    def finder(self):
        return MemoryStreamStartFinder(self._broker, topic=PROGRESS, root_slot=0)

    def dead_letters(self):
        return [entry.value for entry in self._broker.read(DEAD_LETTER)]

    def truncate(self, slot, below):
        self._broker.logs[PROGRESS, slot].expire(below)

    def let_pass(self):
        """Nothing goes on behind the models."""

    def until(self, condition, *workers):
        for _ in range(TURNS_MAX):
            if condition():
                return
            for worker in workers:
                worker.serve()
        raise AssertionError(f"the condition does not hold after {TURNS_MAX} turns")


class KafkaPorts:
    """The adapters of `producer/kafka`, on topics and a group of the case's own."""

    def __init__(self, address):
        self._address = address
        self._group = f"g{uuid.uuid4().hex[:8]}"
        self._topic = f"{self._group}-progress"
        self._dead_letter = f"{self._group}-dead-letter"
        topics = KafkaTopics(address)
        topics.ensure_progress(self._topic, slots=SLOTS, replication=1)
        topics.ensure_dead_letter(self._dead_letter, replication=1)
        self._workers = []

    def worker(self, name):
        worker = TestWorker(name)
        worker.publisher = KafkaPublisher(
            bootstrap_servers=self._address, transactional_id=f"{self._group}-{name}",
            transaction_timeout_ms=30_000, progress_topic=self._topic,
            topic_partitions={self._dead_letter: 1}, dead_letter=self._dead_letter,
            progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (KEY_ID, RECORD_ID)),
        )  # fmt: skip
        decoder = HesitantDecoder()
        worker.membership = KafkaMembership(
            bootstrap_servers=self._address, group=self._group, worker=name, topic=self._topic,
            session_timeout_ms=SESSION_TIMEOUT_MS, listener=worker, decoder=decoder,
            root_slot=self.finder(),
            open_follower=lambda epoch, with_moves: ProgressFollower(
                bootstrap_servers=self._address, group=self._group, topic=self._topic,
                slots=SLOTS, epoch=epoch, with_moves=with_moves, decoder=decoder,
            ),
        )  # fmt: skip
        worker.publisher.start()
        worker.membership.start()
        self._workers.append(worker)
        return worker

    def finder(self):
        return RootSlotReader(
            bootstrap_servers=self._address, group=self._group, topic=self._topic,
            decoder=HesitantDecoder(),
        )  # fmt: skip

    def dead_letters(self):
        letters = KafkaDeadLetters(
            bootstrap_servers=self._address, group=self._group, topic=self._dead_letter,
            topic_partitions=1, patience_s=PATIENCE_S,
        )  # fmt: skip
        return [letter.change for letter in letters.read() if letter is not None]

    def truncate(self, slot, below):
        # A broker deletes no records of a topic that is compacted only.
        change = ConfigEntry(
            "cleanup.policy", "compact,delete", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, self._topic, incremental_configs=[change]
        )
        admin = AdminClient({"bootstrap.servers": self._address})
        for answer in admin.incremental_alter_configs([resource]).values():
            answer.result(PATIENCE_S)
        self.until(lambda: _deletes(admin, TopicPartition(self._topic, slot, below)))

    def let_pass(self):
        time.sleep(BEHIND_S)

    def until(self, condition, *workers):
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, "timed out: the condition does not hold"
            for worker in workers:
                worker.serve()

    def close(self):
        for worker in self._workers:
            with suppress(AttributeError):  # a case has closed it
                worker.membership.close()


def _deletes(admin, place):
    """Delete records; return whether the broker does already what its topic's new policy allows."""
    (answer,) = admin.delete_records([place]).values()
    try:
        answer.result(PATIENCE_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.POLICY_VIOLATION:
            raise
        return False
    return True


@pytest.mark.parametrize("case", contract_ports.CASES, ids=lambda case: case.__name__)
def test_ports_in_memory(case):
    case(MemoryPorts())


@pytest.mark.integration
@pytest.mark.parametrize("case", contract_ports.CASES, ids=lambda case: case.__name__)
def test_ports_on_a_real_broker(case, address):
    stage = KafkaPorts(address)
    try:
        case(stage)
    finally:
        stage.close()


# ---------------------------------------------------------------- change streams

ALL = (*contract_change_stream.CASES, *contract_change_stream.BOUNDED_CASES)
BEGIN_US = 1_700_000_000_000_000


class MemoryStream:
    """The stream that a test of users' own appends to."""

    def __init__(self, tasks):
        self._tasks = tasks
        self._clock = ManualClock(BEGIN_US)
        self.start_ns = BEGIN_US * 1000
        self._stream = MemoryChangeStream(
            "p0", start_ns=self.start_ns, clock=self._clock, tasks=tasks
        )
        self._live = ["p0"]
        self._truth = defaultdict(list)
        self._number = 0

    def _next(self):
        self._number += 1
        self._clock.advance(1_000)
        return self._clock.wall_us() * 1000

    def live(self):
        return tuple(self._live)

    def truth(self):
        return self._truth

    def commit(self):
        at_ns = self._next()
        token = self._live[self._number % len(self._live)]
        record = DataChangeRecord(
            at_ns, "00000000", f"t{self._number}", True, "Users", (), (), "INSERT",
            "NEW_VALUES", 1, 1, "", False,
        )  # fmt: skip
        self._stream.append(token, record)
        self._truth[token].append(at_ns)

    def split(self):
        return self._turn((self._live.pop(),), 2)

    def merge(self):
        return self._turn((self._live.pop(), self._live.pop()), 1)

    def _turn(self, parents, count):
        at_ns = self._next()
        children = tuple(f"p{self._number}-{n}" for n in range(count))
        self._stream.replace(*parents, children=children, at_ns=at_ns)
        self._live += children
        return Turn(parents, children, at_ns)

    def query(self, token, start_ns, end_ns=None):
        query = self._stream.query(token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=1)
        return decoded(query, self._tasks)


class SimulationStage:
    """The simulation's Spanner, in which a seed chooses keys and cuts."""

    def __init__(self, seed):
        self._random = Random(seed)
        self._now_us = BEGIN_US
        tables = SimTables(["t0"], self._random)
        self._spanner = SimSpanner(self._random, TopicNames("sim"), tables, now_us=BEGIN_US)
        self.start_ns = BEGIN_US * 1000

    def _next_us(self):
        self._now_us += 1_000
        return self._now_us

    def live(self):
        return tuple(part.token for part in self._spanner.active)

    def truth(self):
        return {
            token: [record.commit_timestamp_ns for record in part.records]
            for token, part in self._spanner.parts.items()
        }

    def commit(self):
        self._spanner.commit(self._next_us())

    def split(self):
        return self._turn(lambda parents, children: len(children) == 2)

    def merge(self):
        return self._turn(lambda parents, children: len(parents) == 2)

    def _turn(self, is_wanted):
        while True:
            before = set(self.live())
            self._spanner.churn(self._next_us())
            facts = self._spanner.facts()
            parents = tuple(before - set(self.live()))
            children = tuple(set(self.live()) - before)
            if is_wanted(parents, children):
                return Turn(parents, children, facts[children[0]].start_us * 1000)

    def query(self, token, start_ns, end_ns=None):
        assert end_ns is None
        query = StreamQuery(self._spanner, token, start_ns // 1000, self._random, truncates=False)
        while True:
            try:
                items = query.next(self._next_us())
            except QueryDone:
                return
            if items:
                yield items


class SimulatorStage:
    """Spanner's simulator, read by the adapter that reads the service."""

    def __init__(self, spanner, name, tasks, transport):
        self._tasks = tasks
        table = "CREATE TABLE Users (Id INT64) PRIMARY KEY (Id)"
        stream = "CREATE CHANGE STREAM Feed FOR Users"
        spanner.create_database(name, ddl=[table, stream])
        self._spanner, self._name, self._number = spanner, name, 0
        self._channels = SpannerChannels(
            database=f"projects/test-project/instances/test-instance/databases/{name}",
            emulator_host=spanner.grpc_address,
            query_transport=transport,
        )
        self._stream = SpannerChangeStream(
            self._channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Feed")
        )
        self._table = spanner.client().instance("test-instance").database(name)
        self._queries = []
        self.start_ns = (
            max(
                stream_partition["start_timestamp_us"]
                for stream_partition in spanner.stream_partitions(name, "Feed")
            )
            * 1000
        )

    def live(self):
        return tuple(
            stream_partition["token"]
            for stream_partition in self._spanner.stream_partitions(self._name, "Feed")
        )

    def truth(self):
        times = defaultdict(list)
        for one in self._spanner.commit_log(self._name, "Feed"):
            for token in one["stream_partition_tokens"]:
                times[token].append(one["commit_timestamp_us"] * 1000)
        return times

    def commit(self):
        self._number += 1
        key = self._number if self._number % 2 else -self._number
        with self._table.batch() as batch:
            batch.insert("Users", ["Id"], [[key]])

    def split(self):
        return self._turned(self._spanner.split(self._name, "Feed", table="Users", key=["0"]))

    def merge(self):
        return self._turned(self._spanner.merge(self._name, "Feed"))

    def _turned(self, turn):
        children = tuple(child["token"] for child in turn["children"])
        return Turn(tuple(turn["parents"]), children, turn["start_timestamp_us"] * 1000)

    def query(self, token, start_ns, end_ns=None):
        query = self._stream.query(
            token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=1_000
        )
        self._queries.append(query)
        return decoded(query, self._tasks)

    def close(self):
        for query in self._queries:
            query.cancel()
        self._channels.close()


@pytest.fixture(scope="module")
def simulator():
    with Simulator(seed=7, stream_partitions=1) as running:
        yield running


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.__name__)
def test_the_stream_in_memory(case, tasks):
    case(MemoryStream(tasks))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("case", contract_change_stream.CASES, ids=lambda case: case.__name__)
def test_the_simulations_spanner(case, seed):
    case(SimulationStage(seed))


@pytest.mark.integration
@pytest.mark.parametrize("transport", ["h2", "grpc"])
@pytest.mark.parametrize("case", ALL, ids=lambda case: case.__name__)
def test_a_stream_over_the_wire(case, simulator, tasks, transport):
    stage = SimulatorStage(simulator, f"{transport}-{ALL.index(case)}", tasks, transport)
    try:
        case(stage)
    finally:
        stage.close()

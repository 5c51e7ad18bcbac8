"""The worker's Kafka side on a real broker: takeover, drain, the fence, the group's description.

The source is scripted: each stream partition has a change every 10 ms, which any reader can name,
so what must be in Kafka is known without asking anybody.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import uuid

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    KafkaException,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration.shared_stack import read_bytes, until
from tests.simulation.contract_broker import NO_COORDINATOR_YET
from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.events import GroupDescribed
from tidegate.producer.core.group_watch import WatchLimits
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.kafka import monitors
from tidegate.producer.kafka.admin import SharedAdmin
from tidegate.producer.kafka.membership import KafkaMembership
from tidegate.producer.kafka.monitors import GroupMonitor
from tidegate.producer.kafka.publisher import KafkaPublisher
from tidegate.producer.kafka.root_slot import RootSlotReader
from tidegate.producer.kafka.topics import KafkaTopics
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import ChildPartitionsRecord, HeartbeatRecord
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
)
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

pytestmark = pytest.mark.integration

SLOTS = 6
TOKENS = [f"token-{number}" for number in range(8)]
EVERY_US = 10_000
PATIENCE_S = 90
TRANSACTION_TIMEOUT_MS = 1_000
SESSION_TIMEOUT_MS = 6_000
KEY_ID, RECORD_ID = 1, 2
DECODER = ProgressDecoder(InMemorySchemaRegistry().schema, own_ids=[RECORD_ID])


@pytest.fixture
def broker(mortal_broker):
    """Kafka's address."""
    return mortal_broker.bootstrap_servers


class ScriptedReader:
    """Delivers a token's changes from wherever the query starts, as they come due."""

    def __init__(self, query, deliver, topic):
        self._query, self._deliver, self._topic = query, deliver, topic
        self._stopped = threading.Event()

    def start(self):
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self):
        self._stopped.set()

    def _run(self):
        token, query_id, start_ns = self._query.token, self._query.query_id, self._query.start_ns
        if token == ROOT_TOKEN:
            children = tuple(ChildPartition(name, (), start_ns) for name in TOKENS)
            found = ChildPartitionsRecord(start_ns, "00000000", children)
            self._deliver(on.RecordsRead(token, query_id, [found], 1))
            self._deliver(on.QueryEnded(token, query_id))
            return
        next_us = -(-(start_ns // 1_000) // EVERY_US) * EVERY_US
        while not self._stopped.wait(0.02):
            now_us = time.time_ns() // 1_000
            items = [self._change(at_us) for at_us in range(next_us, now_us + 1, EVERY_US)]
            next_us += EVERY_US * len(items)
            items.append(HeartbeatRecord(now_us * 1_000))
            self._deliver(on.RecordsRead(token, query_id, items, len(items)))

    def _change(self, at_us):
        token = self._query.token
        transaction = f"{token}@{at_us}"
        order_key = OrderKey(at_us, transaction, (0, 0), 0).encode()
        message = ChangeMessage(self._topic, token.encode(), b"value", order_key, b"I", bytes(8))
        return PublishableRecord(at_us, transaction, "00000000", (message,))


class Sleeper(KafkaPublisher):
    """Sleeps in one step of its fifth transaction for longer than the broker leaves it open."""

    asleep_in = ""

    def begin(self, metadata):
        self.begun = getattr(self, "begun", 0) + 1
        return super().begin(metadata)

    def await_delivery(self):
        self._sleep("delivery")
        return super().await_delivery()

    def send_offsets(self, offsets):
        self._sleep("fence")
        return super().send_offsets(offsets)

    def commit(self):
        self._sleep("commit")
        return super().commit()

    def _sleep(self, step):
        if step == self.asleep_in and self.begun == 5:
            self.begun += 1
            time.sleep(TRANSACTION_TIMEOUT_MS / 1_000 + 3)


class Stuck(FleetWorker):
    """Hangs in the middle of the first round that takes slots from it."""

    awake = threading.Event()

    def slots_revoked(self, slots):
        self.awake.wait(2 * PATIENCE_S)
        super().slots_revoked(slots)


class Fleet:
    """Workers in threads of this process, on one prefix."""

    def __init__(self, broker, *, limits=None):
        self.bootstrap_servers = broker
        self.limits = limits
        self.names = TopicNames(f"t{uuid.uuid4().hex[:8]}")
        topics = KafkaTopics(broker)
        progress = topics.ensure_progress(self.names.progress, slots=SLOTS, replication=1)
        self.topic = self.names.data("accounts")
        data = topics.ensure_data([self.topic], topic_partitions=3, replication=1)[self.topic]
        self.identity = StreamIdentity(
            stream="database/changeStreams/scripted",
            dialect="GOOGLE_STANDARD_SQL",
            group=self.names.group,
            slots=SLOTS,
            progress_topic_id=progress.topic_id,
            topics=(DataTopic(data.topic, data.topic_id, data.topic_partitions, 1),),
        )
        self.endings = {}

    def root_slot(self):
        """Return a new reader of the root's slot."""
        return RootSlotReader(
            bootstrap_servers=self.bootstrap_servers,
            group=self.names.group,
            topic=self.names.progress,
            decoder=DECODER,
        )

    def start(
        self,
        name,
        *,
        loop_class=FleetWorker,
        publisher_class=KafkaPublisher,
        transaction_timeout_ms=15_000,
    ):
        """Start a worker; return (core, loop, thread)."""
        core = Worker(name=name, epoch=uuid.uuid4().hex, identity=self.identity, limits=self.limits)
        publisher = publisher_class(
            bootstrap_servers=self.bootstrap_servers,
            transactional_id=f"{self.names.group}-{name}",
            transaction_timeout_ms=transaction_timeout_ms,
            progress_topic=self.names.progress,
            topic_partitions={self.topic: 3},
            progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (KEY_ID, RECORD_ID)),
        )
        loop = loop_class(
            core,
            publisher=publisher,
            open_reader=lambda query, deliver: ScriptedReader(query, deliver, self.topic),
            open_stream_start=self.root_slot,
            release_budget=lambda _size: None,
        )
        loop.attach(
            KafkaMembership(
                bootstrap_servers=self.bootstrap_servers,
                group=self.names.group,
                worker=name,
                topic=self.names.progress,
                data_topics=[self.topic],
                session_timeout_ms=SESSION_TIMEOUT_MS,
                listener=loop,
                decoder=DECODER,
                root_slot=self.root_slot(),
            )
        )
        thread = threading.Thread(target=self._run, args=(name, loop), daemon=True)
        thread.start()
        return core, loop, thread

    def _run(self, name, loop):
        try:
            loop.run()
        except Exception as error:  # noqa: BLE001 - the test looks at how each worker ended
            # Its traceback would keep the worker and its clients alive.
            self.endings[name] = error.with_traceback(None)
        else:
            self.endings[name] = None

    def assigned(self):
        """Return how many slots each member has, as the group tells it; None within a round."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        try:
            group = admin.describe_consumer_groups([self.names.group])[self.names.group].result()
        except KafkaException as error:
            if error.args[0].code() not in NO_COORDINATOR_YET:
                raise
            return None
        if group.state is not ConsumerGroupState.STABLE:
            return None
        return {m.group_instance_id: len(m.assignment.topic_partitions) for m in group.members}

    def published(self):
        """Return the committed order keys per topic key, in the log's order."""
        found = {}
        for message in read_bytes(self, self.topic):
            found.setdefault(message.key().decode(), []).append(message.headers()[0][1])
        return found


def assert_each_once_in_order(published):
    """Every token's changes are there without a gap, a repetition or a step back."""
    assert sorted(published) == TOKENS
    for keys in published.values():
        times = [OrderKey.decode(key).commit_timestamp_us for key in keys]
        assert times == list(range(times[0], times[-1] + 1, EVERY_US))


def drain(worker):
    """Ask a worker to drain and wait until it has."""
    _, loop, thread = worker
    loop.request_drain()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


@pytest.mark.rule("P1")
def test_slots_move_to_a_second_worker_and_back_without_a_gap(broker):
    fleet = Fleet(broker)
    first = fleet.start("w1")
    until(lambda: len(first[0].slots) == SLOTS and first[0].counters.counts["committed"] > 3)
    second = fleet.start("w2")
    until(lambda: len(second[0].slots) == SLOTS // 2 and second[0].counters.counts["committed"] > 3)
    drain(second)
    until(lambda: len(first[0].slots) == SLOTS)
    committed = first[0].counters.counts["committed"]
    until(lambda: first[0].counters.counts["committed"] > committed + 3)
    drain(first)

    assert fleet.endings == {"w1": None, "w2": None}
    assert_each_once_in_order(fleet.published())


@pytest.mark.deep  # half a minute of chaos replaces workers too, in processes of their own
def test_a_second_process_of_one_name_ends_the_first(broker):
    fleet = Fleet(broker)
    first = fleet.start("w1")
    until(lambda: first[0].counters.counts["committed"] > 3)
    second = fleet.start("w1")
    until(lambda: second[0].counters.counts["committed"] > 3)
    first[2].join(PATIENCE_S)
    ending = fleet.endings["w1"]
    drain(second)

    assert "name" in str(ending)
    assert_each_once_in_order(fleet.published())


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("delivery", marks=pytest.mark.deep),
        pytest.param("fence", marks=pytest.mark.deep),
        "commit",
    ],
)
def test_a_worker_that_slept_over_its_transactions_timeout_goes_on(broker, step):
    """The broker fences it as it would for a second process of its name, of which there is none."""
    fleet = Fleet(broker)
    sleeper = type("SleeperIn", (Sleeper,), {"asleep_in": step})
    first = fleet.start(
        "w1", publisher_class=sleeper, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
    )
    until(lambda: first[0].counters.counts["unknown_outcome"] or fleet.endings)
    committed = first[0].counters.counts["committed"]
    until(lambda: first[0].counters.counts["committed"] > committed + 3 or fleet.endings)
    assert fleet.endings == {}
    drain(first)

    assert fleet.endings == {"w1": None}
    # A loaded machine may sleep over the next one as well.
    assert first[0].counters.counts["unknown_outcome"] >= 1
    assert_each_once_in_order(fleet.published())


def test_slots_that_the_group_leaves_to_nobody_get_an_owner(broker, monkeypatch):
    """A round takes them from a worker that is replaced before it has joined again."""
    monkeypatch.setattr(monitors, "_INTERVAL_US", 500_000)
    stuck = type("StuckHere", (Stuck,), {"awake": threading.Event()})
    limits = WorkerLimits(group_watch=WatchLimits(patience_us=8_000_000))
    fleet = Fleet(broker, limits=limits)
    former = fleet.start("w1", loop_class=stuck)
    until(lambda: former[0].counters.counts["committed"] > 3)
    other = fleet.start("w2")
    until(lambda: fleet.assigned() == {"w1": SLOTS // 2, "w2": 0})
    heir = fleet.start("w1")
    until(lambda: len(heir[0].slots) == SLOTS // 2)
    assert fleet.assigned() == {"w1": SLOTS // 2, "w2": 0}
    assert [worker[0].counters.counts["rejoin"] for worker in (heir, other)] == [0, 0]
    until(lambda: len(heir[0].slots) == len(other[0].slots) == SLOTS // 2)
    committed = other[0].counters.counts["committed"]
    until(lambda: other[0].counters.counts["committed"] > committed + 3)
    stuck.awake.set()
    former[2].join(PATIENCE_S)
    ending = fleet.endings["w1"]
    for worker in (heir, other):
        drain(worker)

    assert [worker[0].counters.counts["rejoin"] for worker in (heir, other)] == [0, 1]
    assert "name" in str(ending)
    assert fleet.endings == {"w1": None, "w2": None}
    assert_each_once_in_order(fleet.published())


@pytest.mark.parametrize("end", [pytest.param("stop", marks=pytest.mark.deep), "kill"])
def test_every_worker_works_again_when_the_broker_is_back(mortal_broker, end):
    """It is away for longer than the session time-out, so the group has to be formed again."""
    fleet = Fleet(mortal_broker.bootstrap_servers)
    workers = [fleet.start("w1")]
    until(lambda: workers[0][0].counters.counts["committed"] > 3)
    workers.append(fleet.start("w2"))
    until(lambda: len(workers[1][0].slots) == SLOTS // 2)
    getattr(mortal_broker, end)()
    time.sleep(SESSION_TIMEOUT_MS / 1_000 + 2)
    mortal_broker.start()
    until(lambda: fleet.endings or all(len(core.slots) == SLOTS // 2 for core, _, _ in workers))
    committed = [core.counters.counts["committed"] for core, _, _ in workers]
    until(
        lambda: (
            fleet.endings
            or all(
                core.counters.counts["committed"] > before + 3
                for (core, _, _), before in zip(workers, committed, strict=True)
            )
        )
    )
    assert fleet.endings == {}
    for worker in workers:
        drain(worker)

    assert fleet.endings == {"w1": None, "w2": None}
    assert_each_once_in_order(fleet.published())


def test_a_slots_recovery_waits_for_the_open_transaction_of_the_dead(broker):
    fleet = Fleet(broker)
    first = fleet.start("w1")
    until(lambda: first[0].counters.counts["committed"] > 3)
    drain(first)
    slot = slot_of(TOKENS[0], SLOTS)
    dead = KafkaPublisher(
        bootstrap_servers=broker,
        transactional_id=f"{fleet.names.group}-dead",
        transaction_timeout_ms=60_000,
        progress_topic=fleet.names.progress,
        topic_partitions={},
        progress_schema_ids=dict.fromkeys((1, 2, 3, 4), (1, 2)),
    )
    dead.start()
    assert dead.begin(b"any") is None
    ghost = PartitionAnnounced(ChildPartition("ghost", (), 1), ROOT_TOKEN)
    record = ProgressRecord(first[0].epoch, "dead", ghost)
    assert dead.publish_progress(do.PublishProgress(slot, slot, record)) is None
    assert isinstance(dead.await_delivery(), on.Delivered)
    heir = fleet.start("w1")
    others = [number for number in range(SLOTS) if number != slot]
    until(
        lambda: all(
            number in heir[0].slots and heir[0].slots[number].phase is SlotPhase.OWNED
            for number in others
        )
    )
    phase_while_open = heir[0].slots[slot].phase
    dead.abort("the test ends the transaction")
    until(lambda: heir[0].slots[slot].phase is SlotPhase.OWNED)
    until(lambda: TOKENS[0] in heir[0].slots[slot].tokens)
    tokens = set(heir[0].slots[slot].tokens)
    drain(heir)

    assert phase_while_open is SlotPhase.RECOVERING
    assert "ghost" not in tokens
    assert_each_once_in_order(fleet.published())


# ---------------------------------------------------------------- the group

ASKING = """
import sys, time
from tidegate.producer.kafka import monitors
from tidegate.producer.kafka.admin import SharedAdmin
monitors._INTERVAL_US = 10_000
monitors = [
    monitors.GroupMonitor(
        SharedAdmin({"bootstrap.servers": sys.argv[1], "log_level": 0}),
        group="g", worker="w", client_id="w-1",
    )
    for _ in range(10)
]
while True:
    for monitor in monitors:
        monitor.poll(time.monotonic_ns() // 1_000)
    time.sleep(0.005)
"""


def test_a_worker_survives_a_broker_that_goes_away_while_the_group_is_described(mortal_broker):
    """librdkafka's other question ended the process within the first round."""
    asking = subprocess.Popen(
        [sys.executable, "-c", ASKING, mortal_broker.bootstrap_servers], stderr=subprocess.PIPE
    )
    try:
        for number in range(2):
            time.sleep(4)
            (mortal_broker.kill if number % 2 else mortal_broker.stop)()
            time.sleep(2)
            mortal_broker.start()
        assert asking.poll() is None, asking.stderr.read().decode()
    finally:
        asking.kill()
        asking.wait(30)


def test_a_static_member_is_described_by_its_name(mortal_broker, monkeypatch):
    monkeypatch.setattr(monitors, "_INTERVAL_US", 200_000)
    servers = {"bootstrap.servers": mortal_broker.bootstrap_servers}
    admin = AdminClient(servers)
    for created in admin.create_topics([NewTopic("slots", 3, 1)]).values():
        created.result(PATIENCE_S)
    member = Consumer(
        {**servers, "group.id": "g", "group.instance.id": "w-of-7", "client.id": "w-of-7-now"}
    )
    member.subscribe(["slots"])
    monitor = GroupMonitor(SharedAdmin(servers), group="g", worker="w-of-7", client_id="w-of-7-now")
    whole = GroupDescribed(True, True, {"w-of-7": frozenset(range(3))})
    found = None
    give_up_at = time.monotonic() + PATIENCE_S
    while found != whole:
        assert time.monotonic() < give_up_at, found
        member.poll(0.1)
        found = monitor.poll(time.monotonic_ns() // 1_000) or found
    member.close()


LEAVES = 8
# A process of its own: what hangs keeps the GIL.
LEAVING = """
import sys, time
from confluent_kafka import Consumer
from tidegate.producer.kafka.admin import RetryingAdmin
from tidegate.producer.kafka.group import group_members
from tidegate.producer.kafka.group import leave_group

servers = {"bootstrap.servers": sys.argv[1]}
admin = RetryingAdmin(servers)

def assigned(client, places):
    calls.append("assigned")
    client.incremental_assign(places)

def revoked(client, places):
    calls.append("revoked")
    client.incremental_unassign(places)

topic = sys.argv[3]
for number in range(int(sys.argv[2])):
    group, calls = f"{topic}-{number}", []
    client = Consumer({
        **servers, "group.id": group, "group.instance.id": "w", "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky",
    })
    client.subscribe([topic], on_assign=assigned, on_revoke=revoked, on_lost=revoked)
    while not group_members(admin, group):
        time.sleep(0.1)
    time.sleep(0.5)  # the group's answer is here, and waits for a poll
    leave_group(client)
    print("left after", *calls, flush=True)
"""


def test_a_worker_that_is_stopped_while_slots_are_about_to_be_assigned_leaves(broker):
    """Closing the client hangs within the first rounds."""
    servers, topic = broker, f"t{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(topic, 3, 1)]).values():
        created.result(PATIENCE_S)
    ran = subprocess.run(
        [sys.executable, "-c", LEAVING, servers, str(LEAVES), topic],
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip

    assert ran.stdout.splitlines() == ["left after assigned revoked"] * LEAVES, ran.stderr
    assert ran.returncode == 0

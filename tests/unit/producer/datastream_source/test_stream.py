"""Datastream's files as the source of a fleet: production loop and core, Kafka in memory."""

import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.datastream_files import SOURCES, delivered, history, write_stream
from tests.datastream_table import drawn_table
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream_source.description import FILES_DIALECT, FilesCatalogue
from tidegate.producer.datastream_source.limits import SourceLimits
from tidegate.producer.datastream_source.stream import DatastreamFiles
from tidegate.producer.datastream_source.translator import EventTranslator
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.errors import TokenRefused
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

PATIENCE_S = 30
NAMES = TopicNames("shop")
SLOTS = 2
START_NS = (int(time.time()) - 3_600) * 1_000_000_000
TOPICS = {
    "mysql": "shop.orders",
    "oracle": "SHOP.ORDERS",
    "postgresql": "public.orders",
    "sqlserver": "dbo.orders",
    "salesforce": "Order",
}


class Topics:
    """Reports the topic of a later table, as `KafkaDataTopics` does; it exists in the broker."""

    def __init__(self, workers):
        self._workers = workers

    def ensure(self, topic, *, key_schema_id):
        self._workers[0].add_table(DataTopic(topic, "tid", 2, key_schema_id))


class Fleet:
    """Workers over one broker, registry and folder: one after the other, or side by side."""

    def __init__(self, folder, topic, *, tables=()):
        self.folder = folder
        self.topics = (topic, *tables)
        self.registry = InMemorySchemaRegistry()
        topics = dict.fromkeys(self.topics, 2)
        self.broker = MemoryBroker({**topics, NAMES.progress: SLOTS}, group=Group(SLOTS))
        self.workers = 0

    def start(self, name="w"):
        """Return a worker that has started, and its tasks."""
        self.workers += 1
        tasks, holder = TaskThread(), []
        budget = ByteBudget(1 << 20, tasks=tasks)
        registrar = TableRegistrar(NAMES, self.registry)
        plain = Translator({}, change_stream="files")
        topics = Topics(holder)
        translator = EventTranslator(
            RefreshingTranslator(plain, FilesCatalogue(), registrar, topics), parks=True,
            columns_of=plain.registered_columns,
        )  # fmt: skip
        files = DatastreamFiles(
            LocalStore(), str(self.folder), tasks, SystemClock(),
            limits=SourceLimits(open_minutes=10), poll_ms=100, parks=True,
        )  # fmt: skip
        identity = StreamIdentity("datastream/x", FILES_DIALECT, NAMES.group, SLOTS, "pid", ())
        worker = FleetWorker(
            Worker(name=name, epoch=f"e{self.workers}", identity=identity, start_ns=START_NS),
            publisher=MemoryPublisher(
                self.broker, transactional_id=name, progress_topic=NAMES.progress
            ),
            open_reader=lambda query, deliver: PartitionReader(
                files.resumed(query.resumption), translator, token=query.token,
                query_id=query.query_id, start_ns=query.start_ns, heartbeat_ms=100,
                deliver=deliver, budget=budget, tasks=tasks,
            ),
            open_stream_start=lambda: MemoryStreamStartFinder(
                self.broker, topic=NAMES.progress, root_slot=slot_of(ROOT_TOKEN, SLOTS)
            ),
            release_budget=budget.release,
        )  # fmt: skip
        holder.append(worker)
        worker.attach(
            MemoryMembership(
                self.broker, worker=name, client_id=f"{name}-{self.workers}",
                topic=NAMES.progress, listener=worker, clock=ManualClock(),
            )
        )  # fmt: skip
        worker.start()
        return worker, tasks

    def run(self, *, until):
        """Run a worker until a number of changes is there, then drain it."""
        worker, tasks = self.start()
        self.step([worker], until=until)
        drain(worker)
        worker.close()
        tasks.close()

    def step(self, workers, *, until):
        """Let workers take turns until a number of changes is there."""
        give_up_at = time.monotonic() + PATIENCE_S
        while len(self.changes()) < until and time.monotonic() < give_up_at:
            for worker in workers:
                assert worker.step()

    def kill(self, name, tasks):
        """End a worker as a kill does: the group and its transaction time out."""
        tasks.close()
        self.broker.group.expire(name)
        self.broker.time_out(name)
        self.broker.settle()

    def changes(self):
        return [entry for topic in self.topics for entry in self.broker.read(topic)]


def drain(worker):
    worker.request_drain()
    while worker.step():
        pass


@pytest.mark.rule("datastream-published-once")
@pytest.mark.parametrize("source", SOURCES)
def test_a_folder_is_published_once_by_workers_that_follow_each_other(tmp_path, source):
    rng = random.Random(5)
    table = drawn_table(source, rng, changes=40, rows=4)
    events = delivered(table.changes, table.backfill, rng)
    fleet = Fleet(tmp_path, NAMES.data(TOPICS[source]))
    count = len({event["uuid"] for event in events})
    first = datetime.now(UTC) - timedelta(minutes=8)
    write_stream(tmp_path, source, events[:21], first=first)
    fleet.run(until=10)
    write_stream(tmp_path, source, events, first=first)
    fleet.run(until=count)
    fleet.run(until=count)
    keys = Counter(entry.value.order_key for entry in fleet.changes())
    assert len(keys) == count == len(fleet.changes())


def test_objects_are_published_once_by_two_workers_of_which_one_is_killed(tmp_path):
    tables = [f"orders{number}" for number in range(6)]
    rng = random.Random(8)
    first, per_table = datetime.now(UTC) - timedelta(minutes=8), 0
    sent = {}
    for table in tables:
        events = delivered(history("mysql", rng, 30), [], rng)
        for event in events:
            event["source_metadata"]["table"] = table
        sent[table] = events
        per_table += len({event["uuid"] for event in events})

    def write(table, events):
        (tmp_path / "made").mkdir(exist_ok=True)
        for number, path in enumerate(
            write_stream(tmp_path / "made", "mysql", events, first=first)
        ):
            below = path.relative_to(tmp_path / "made" / "shop_orders")
            target = tmp_path / "files" / f"shop_{table}" / below
            target.parent.mkdir(parents=True, exist_ok=True)
            path.rename(target.with_name(f"{len(events)}-{number}.avro"))

    for table, events in sent.items():
        write(table, events[:14])
    topics = [NAMES.data(f"shop.{table}") for table in tables]
    fleet = Fleet(tmp_path / "files", topics[0], tables=topics[1:])
    one, other = fleet.start("a"), fleet.start("b")
    early = sum(len({event["uuid"] for event in events[:14]}) for events in sent.values())
    fleet.step([one[0], other[0]], until=early // 2)
    assert all(fleet.broker.group.assignment().values())
    fleet.kill("b", other[1])
    for table, events in sent.items():
        write(table, events[14:])
    fleet.step([one[0]], until=per_table)
    drain(one[0])
    one[0].close()
    one[1].close()
    keys = Counter((entry.value.topic, entry.value.order_key) for entry in fleet.changes())
    assert len(keys) == per_table == len(fleet.changes())


def test_a_token_of_another_source_is_refused(tmp_path):
    files = DatastreamFiles(LocalStore(), str(tmp_path), TaskThread(), SystemClock())
    with pytest.raises(TokenRefused, match="another source"):
        files.query(token="P1", start_ns=0, end_ns=None, heartbeat_ms=100)

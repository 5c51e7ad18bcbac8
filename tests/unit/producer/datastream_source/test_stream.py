"""Datastream's files as the source of a fleet: production loop and core, Kafka in memory."""

import random
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from tests.datastream_files import SOURCES, backfill, delivered, history, write_stream
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
    """One worker after the other over one broker, registry and folder."""

    def __init__(self, folder, topic):
        self.folder = folder
        self.topic = topic
        self.registry = InMemorySchemaRegistry()
        self.broker = MemoryBroker({topic: 2, NAMES.progress: SLOTS}, group=Group(SLOTS))
        self.workers = 0

    def run(self, *, until):
        """Run a worker until a number of changes is there; end it as a kill does."""
        self.workers += 1
        tasks, holder = TaskThread(), []
        budget = ByteBudget(1 << 20, tasks=tasks)
        registrar = TableRegistrar(NAMES, self.registry)
        plain = Translator({}, change_stream="files")
        topics = Topics(holder)
        translator = EventTranslator(
            RefreshingTranslator(plain, FilesCatalogue(), registrar, topics), parks=True
        )
        files = DatastreamFiles(
            LocalStore(), str(self.folder), tasks, SystemClock(),
            limits=SourceLimits(open_minutes=10), poll_ms=100, parks=True,
        )  # fmt: skip
        identity = StreamIdentity("datastream/x", FILES_DIALECT, NAMES.group, SLOTS, "pid", ())
        worker = FleetWorker(
            Worker(name="w", epoch=f"e{self.workers}", identity=identity, start_ns=START_NS),
            publisher=MemoryPublisher(
                self.broker, transactional_id="w", progress_topic=NAMES.progress
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
                self.broker, worker="w", client_id=f"w-{self.workers}", topic=NAMES.progress,
                listener=worker, clock=ManualClock(),
            )
        )  # fmt: skip
        worker.start()
        give_up_at = time.monotonic() + PATIENCE_S
        while len(self.changes()) < until and time.monotonic() < give_up_at:
            assert worker.step()
        worker.request_drain()
        while worker.step():
            pass
        worker.close()
        tasks.close()

    def changes(self):
        return self.broker.read(self.topic)


@pytest.mark.parametrize("source", SOURCES)
def test_a_folder_is_published_once_by_workers_that_follow_each_other(tmp_path, source):
    rng = random.Random(5)
    events = delivered(history(source, rng, 40), backfill(source, rng, 4), rng)
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


def test_a_token_of_another_source_is_refused(tmp_path):
    files = DatastreamFiles(LocalStore(), str(tmp_path), TaskThread(), SystemClock())
    with pytest.raises(TokenRefused, match="another source"):
        files.query(token="P1", start_ns=0, end_ns=None, heartbeat_ms=100)

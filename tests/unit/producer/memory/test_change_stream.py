"""The change stream in memory, and a worker that reads it; contract suites hold the rest."""

import time

import pytest

from tests.reading import decoded
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.driver.runtime import TaskThread
from tidegate.producer.errors import QueryInterrupted
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.change_stream import MemoryChangeStream
from tidegate.producer.memory.clock import ManualClock
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.records import (
    ChildPartitionsRecord,
    DataChangeRecord,
    HeartbeatRecord,
    Mod,
    RecordColumn,
)
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.progress import ChildPartition, DataTopic
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

START_NS = 1_700_000_000_000_000_000
INT64 = ColumnType("INT64")
PATIENCE_S = 60


def record(after_ns, key=1):
    return DataChangeRecord(
        START_NS + after_ns, "00000000", f"t{after_ns}", True, "accounts",
        (RecordColumn("id", INT64, True, 1),), (Mod({"id": str(key)}, {}, {}),),
        "INSERT", "NEW_VALUES", 1, 1, "", False,
    )  # fmt: skip


@pytest.fixture
def clock():
    return ManualClock(START_NS // 1_000)


@pytest.fixture
def stream(clock, tasks):
    return MemoryChangeStream("a", start_ns=START_NS, clock=clock, tasks=tasks)


@pytest.fixture
def ask(stream, tasks):
    """Start a query; its responses come decoded."""

    def query(token="a", *, start_ns=START_NS, end_ns=None, is_cancelled=False):
        asked = stream.query(token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=1)
        if is_cancelled:
            asked.cancel()
        return decoded(asked, tasks)

    return query


def test_a_query_without_news_returns_heartbeats_that_hold(stream, clock, ask):
    query = iter(ask())
    clock.advance(5)
    assert next(query) == [HeartbeatRecord(START_NS + 5_000)]
    with pytest.raises(ValueError, match="takes no record"):
        stream.append("a", record(4_999))
    stream.append("a", record(5_000))
    assert next(query) == [record(5_000)]


def test_an_ended_stream_partition_names_its_children(stream, ask):
    for after_ns in (1, 2, 3):
        stream.append("a", record(after_ns))
    assert list(ask(start_ns=START_NS + 2, end_ns=START_NS + 2)) == [[record(2)]]
    stream.replace("a", children=("b",), at_ns=START_NS + 5)
    children = (ChildPartition("b", ("a",), START_NS + 5),)
    assert list(ask()) == [
        [record(1), record(2), record(3)],
        [ChildPartitionsRecord(START_NS + 5, "00000000", children)],
    ]
    ((after,),) = ask(ROOT_TOKEN, start_ns=START_NS + 5)
    assert [child.token for child in after.children] == ["b"]
    with pytest.raises(ValueError, match="cannot end"):
        stream.replace("a", children=("c",), at_ns=START_NS + 9)


def test_a_cancelled_query_is_interrupted(ask):
    with pytest.raises(QueryInterrupted):
        next(iter(ask(is_cancelled=True)))


def test_a_worker_over_everything_in_memory():
    """How a test of your own runs a worker: every port in memory, the production loop."""
    names, registry = TopicNames("bank"), InMemorySchemaRegistry()
    table = TableSchema("accounts", (Column("id", INT64, 1, 1),))
    encoding = TableRegistrar(names, registry).register(table)
    translator = Translator({"accounts": encoding}, change_stream="s")
    tasks = TaskThread()
    stream = MemoryChangeStream("a", start_ns=START_NS, tasks=tasks)
    broker = MemoryBroker({encoding.topic: 2, names.progress: 4}, group=Group(4))
    identity = StreamIdentity(
        "db/changeStreams/s", "GOOGLE_STANDARD_SQL", names.group, 4, "pid",
        (DataTopic(encoding.topic, "tid", 2, 1),),
    )  # fmt: skip
    budget = ByteBudget(1 << 20, tasks=tasks)
    worker = FleetWorker(
        Worker(name="w", epoch="e", identity=identity, start_ns=START_NS),
        publisher=MemoryPublisher(broker, transactional_id="w", progress_topic=names.progress),
        open_reader=lambda query, deliver: PartitionReader(
            stream, translator, token=query.token, query_id=query.query_id,
            start_ns=query.start_ns, end_ns=query.end_ns, heartbeat_ms=100, deliver=deliver,
            budget=budget, tasks=tasks,
        ),
        open_stream_start=lambda: MemoryStreamStartFinder(
            broker, topic=names.progress, root_slot=slot_of(ROOT_TOKEN, 4)
        ),
        release_budget=budget.release,
    )  # fmt: skip
    worker.attach(
        MemoryMembership(
            broker, worker="w", client_id="w-1", topic=names.progress, listener=worker,
            clock=ManualClock(),
        )
    )  # fmt: skip
    stream.append("a", record(1, key=1))
    stream.append("a", record(2, key=2))
    worker.start()
    give_up_at = time.monotonic() + PATIENCE_S
    while len(broker.read(encoding.topic)) < 2 and time.monotonic() < give_up_at:
        assert worker.step()
    worker.request_drain()
    while worker.step():
        pass
    worker.close()
    # A reader may end a moment later, and what it delivers then is dropped.
    while budget.taken and time.monotonic() < give_up_at:
        time.sleep(0.001)
    tasks.close()
    assert sorted(entry.value.mod for entry in broker.read(encoding.topic)) == [b"I", b"I"]
    assert budget.taken == 0

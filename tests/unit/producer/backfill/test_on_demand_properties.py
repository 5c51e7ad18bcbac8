"""A table that is read by a whole worker while its stream runs: all parts but Kafka are real."""

import io
import time
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import fastavro
import pytest
from google.cloud.spanner_v1 import KeySet

from spanner_simulator import Simulator, SimulatorConfig
from tidegate.local_stack.demo.bank_database import create_database
from tidegate.local_stack.parts.database_name import DatabaseName
from tidegate.producer.backfill.on_demand import OnDemandStream
from tidegate.producer.backfill.requests import RunState, TableRequest, TableRequests
from tidegate.producer.backfill.table_run import place_of
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.data_topics import MemoryDataTopics
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.message_limits import MemoryMessageLimits
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.spanner.table_reads import SpannerChunkReads
from tidegate.producer.spanner.tables_at import TablesAt
from tidegate.producer.translation.beside_tables import BesideCatalogue
from tidegate.producer.translation.limited import LimitedTranslator
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.progress import DataTopic, PartitionFinished
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of
from tidegate.schemas.wire_format import unframe

NAMES, SLOTS = TopicNames("bank"), 4
DATA, BESIDE = NAMES.data("Users"), NAMES.data("Users__backfill")
DDL = [
    "CREATE TABLE Users (Shop INT64, Id INT64, Note STRING(MAX)) PRIMARY KEY (Shop, Id DESC)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
COLUMNS = ("Shop", "Id", "Note")
ROWS = 300
EVEN = "MOD(Id, 2) = 0 OR Shop IS NULL -- and no others"
PATIENCE_S = 120.0


INTEGER, TEXT = ColumnType("INT64"), ColumnType("STRING")
TABLE = TableSchema(
    "Users", (Column("Shop", INTEGER, 1, 1), Column("Id", INTEGER, 2, 2), Column("Note", TEXT, 3))
)


def row(number, note):
    """Return a row; those of one shop have no shop."""
    return number % 5 or None, number, note


def is_even(key):
    """Return whether a row meets the condition `EVEN`."""
    return key[1] % 2 == 0 or key[0] is None


CATALOGUE = SimpleNamespace(
    table=lambda name, *, stream, read_ns=None: TABLE if name == "Users" else None
)


class Fleet:
    """A database, a broker in memory, and one worker at a time."""

    def __init__(self, simulator):
        name = DatabaseName(address=simulator.grpc_address)
        self.database = create_database(name, DDL)
        self.path = name.path
        self.tasks = TaskThread()
        self.channels = SpannerChannels(database=name.path, emulator_host=name.address)
        self.registry = InMemorySchemaRegistry()
        self.requests = TableRequests()
        self.broker = MemoryBroker({DATA: 2, NAMES.progress: SLOTS}, group=Group(SLOTS))
        self.clients = 0
        self.give_up_at = time.monotonic() + PATIENCE_S
        with self.database.batch() as batch:
            batch.insert("Users", COLUMNS, [row(n, f"first {n}") for n in range(ROWS)])
        self.start_ns = time.time_ns()
        self.start()

    def start(self):
        """Start a process under the same name: the one before is as if it had been killed."""
        self.clients += 1
        registrar = TableRegistrar(NAMES, self.registry)
        encoding = registrar.register(TABLE)
        found = self.broker.describe_topic(DATA)
        topic = DataTopic(DATA, str(found.topic_id), found.topic_partitions, encoding.key.schema_id)
        identity = StreamIdentity(
            stream="d/changeStreams/Feed", dialect=GOOGLE_SQL, group=NAMES.group, slots=SLOTS,
            progress_topic_id=str(self.broker.describe_topic(NAMES.progress).topic_id),
            topics=(topic,),
        )  # fmt: skip
        self.core = Worker(
            name="w", epoch="e", identity=identity, start_ns=self.start_ns,
            limits=WorkerLimits(commit_interval_us=20_000),
        )  # fmt: skip
        limits = MemoryMessageLimits(self.broker, [DATA, NAMES.progress])
        topics = MemoryDataTopics(self.broker, limits, topic_partitions=2, on_found=self._found)
        plain = Translator({"Users": encoding}, change_stream="Feed")
        translator = LimitedTranslator(
            RefreshingTranslator(plain, BesideCatalogue(CATALOGUE), registrar, topics), limits
        )
        reads = SpannerChunkReads(
            self.channels, TablesAt(CATALOGUE, stream="Feed", tasks=self.tasks)
        )  # fmt: skip
        form = form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, "Feed")
        stream = OnDemandStream(SpannerChangeStream(self.channels, form), reads, self.requests)
        budget = ByteBudget(64 << 20, tasks=self.tasks)
        self.worker = FleetWorker(
            self.core,
            publisher=MemoryPublisher(
                self.broker, transactional_id="w", progress_topic=NAMES.progress
            ),
            open_reader=lambda query, deliver: PartitionReader(
                stream, translator, token=query.token, query_id=query.query_id,
                start_ns=query.start_ns, heartbeat_ms=100, deliver=deliver, budget=budget,
                tasks=self.tasks,
            ),
            open_stream_start=lambda: MemoryStreamStartFinder(
                self.broker, topic=NAMES.progress, root_slot=slot_of(ROOT_TOKEN, SLOTS)
            ),
            release_budget=budget.release,
        )  # fmt: skip
        self.worker.attach(
            MemoryMembership(
                self.broker, worker="w", client_id=f"w-{self.clients}", topic=NAMES.progress,
                listener=self.worker, clock=SystemClock(),
            )
        )  # fmt: skip
        self.worker.start()

    def kill(self):
        """End the process, whatever it does, and start its successor."""
        self.worker.close()
        self.start()

    def until(self, condition):
        """Let the worker work until something has come about, and rows change meanwhile."""
        number = 0
        while not condition():
            assert time.monotonic() < self.give_up_at
            self.worker.step()
            number += 1
            if number % 40 == 0:
                self.change(number)

    def change(self, number):
        """Update, insert and delete rows."""
        rows = [row(n, f"changed {number}") for n in range(number % ROWS, ROWS, 37)]
        with self.database.batch() as batch:
            batch.insert_or_update("Users", COLUMNS, rows)
            batch.delete("Users", KeySet(keys=[[number % 5 or None, number % ROWS]]))

    def parents(self):
        """Return the stream partitions of the change stream that are read."""
        return [
            token
            for slot in self.core.slots.values()
            for token in slot.tokens
            if token != ROOT_TOKEN and place_of(token) is None
        ]

    def finished(self):
        """Return the markers of the run's stream partitions."""
        bodies = [getattr(one.value, "body", None) for one in self.broker.read(NAMES.progress)]
        markers = [one for one in bodies if isinstance(one, PartitionFinished)]
        return [one for one in markers if place_of(one.token) is not None]

    def chunks(self):
        return sum(place_of(one.token).is_chunk for one in self.finished())

    def has_ended(self, run=1):
        places = [place_of(one.token) for one in self.finished() if not one.children]
        return any(place.run == run for place in places)

    def failures(self):
        """Return why runs have failed."""
        places = [place_of(one.token) for one in self.finished()]
        return [place.failure for place in places if place.failure]

    def changes(self, topic):
        """Return the changes of a topic, decoded, each topic partition by offset."""
        return [self._decoded(one.value) for one in self.broker.read(topic)]

    def _decoded(self, message):
        key, value = self._read(message.key), self._read(message.value)
        return SimpleNamespace(
            key=(key["Shop"], key["Id"]), order_key=message.order_key, mod=message.mod,
            note=(value["new_values"] or {}).get("Note"),
        )  # fmt: skip

    def _read(self, framed: bytes):
        schema_id, body = unframe(framed)
        schema = fastavro.parse_schema(dict(self.registry.schema(schema_id)))
        return fastavro.schemaless_reader(io.BytesIO(bytes(body)), schema, None)

    def table(self):
        with self.database.snapshot() as snapshot:
            rows = snapshot.read("Users", COLUMNS, KeySet(all_=True))
            return {(shop, number): note for shop, number, note in rows}

    def close(self):
        self.worker.close()
        self.channels.close()
        self.tasks.close()


@pytest.fixture
def fleet():
    with Simulator(SimulatorConfig(stream_partitions=2)) as simulator:
        running = Fleet(simulator)
        yield running
        running.close()


def begin(fleet, run=1, **options):
    """Ask for a run, once the stream is read."""
    fleet.until(lambda: len(fleet.parents()) == 2)
    start_us = time.time_ns() // 1_000 + 300_000
    settings = {"chunk_rows": 60, "share": 90} | options
    request = TableRequest("Users", run, min(fleet.parents()), start_us, **settings)
    fleet.requests.add(request)
    return request


def stop_and_kill(fleet, request):
    """Kill the worker in the middle; stop the run, which then reads nothing, and let it go on."""
    fleet.until(lambda: fleet.chunks() >= 1)
    fleet.kill()
    fleet.until(lambda: fleet.chunks() >= 2)
    fleet.requests.add(replace(request, state=RunState.STOPPED))
    fleet.kill()
    settled = time.monotonic() + 1.5
    fleet.until(lambda: time.monotonic() > settled)
    chunks = fleet.chunks()
    later = settled + 1.0
    fleet.until(lambda: time.monotonic() > later)
    assert fleet.chunks() == chunks
    assert not fleet.has_ended()
    fleet.requests.add(request)


@pytest.mark.parametrize("where", ["", EVEN], ids=["all rows", "a condition"])
def test_each_row_comes_once_among_the_changes_whatever_dies(fleet, where):
    stop_and_kill(fleet, begin(fleet, chunk_rows=30 if where else 60, where=where))
    fleet.until(fleet.has_ended)
    if where:
        begin(fleet, run=2, where="Id > 999 OR 1 / (Id - 201) > 9")
        fleet.until(lambda: fleet.has_ended(2))
    chunks = fleet.chunks()
    rows, changes, final = settled_topics(fleet)

    assert fleet.failures() == (["division by zero: 1 / 0"] if where else [])
    assert fleet.chunks() == chunks  # the run has ended, and the stream goes on
    assert len(rows) > ROWS / (4 if where else 2)
    require_places(rows, changes)

    def wanted(key):
        return not where or is_even(key)

    assert all(wanted(one.key) for one in rows)
    found = folded((*rows, *changes))
    assert {key: found[key] for key in found if wanted(key)} == {
        key: final[key] for key in final if wanted(key)
    }


def settled_topics(fleet):
    """Return the rows, the changes and the table, once all changes are published."""
    final = fleet.table()
    settled = time.monotonic() + 1.5
    while time.monotonic() < settled:
        fleet.worker.step()
    return fleet.changes(BESIDE), fleet.changes(DATA), final


def require_places(rows, changes):
    """Check that each row comes once, at a time of its chunk, and each key in order."""
    assert max(Counter(one.key for one in rows).values()) == 1
    assert len({one.order_key[:8] for one in rows}) >= 3  # a time for each chunk
    for found in (rows, changes):
        last = {}
        for one in found:
            assert last.get(one.key, b"") < one.order_key
            last[one.key] = one.order_key


def folded(found):
    """Return what changes leave of a table."""
    left = {}
    for one in sorted(found, key=lambda one: one.order_key):
        if one.mod == b"D":
            left.pop(one.key, None)
        else:
            left[one.key] = one.note
    return left

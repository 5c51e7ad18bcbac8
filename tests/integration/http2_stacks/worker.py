"""A worker whose Kafka is in memory, and whose Spanner is reached as a program reaches it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any, Self

import fastavro

from tests.chaos.judge.order_key import place_of
from tests.chaos.judge.topics import DataEntry
from tidegate.local_stack.judge.log import Place
from tidegate.local_stack.judge.topics import read_framed
from tidegate.producer.core.events import QueryFailed
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.driver.runtime import SystemClock, TaskThread
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.spanner.catalogue import SpannerCatalogue
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.checks import try_query, validate_stream
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.spanner.transport.endpoint import Tls
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

SLOTS = 4
TOPIC_PARTITIONS = 4
HEARTBEAT_MS = 1_000
BUDGET_BYTES = 24 << 20
"""Some of the large messages wait for room: their queries hold their servers back."""
MESSAGE_BYTES_MAX = 16 << 20
_LOOK_EVERY_S = 0.5
_END_S = 60.0


class CountingChannels(SpannerChannels):
    """Counts the connections that are opened for queries over h2.

    gRPC's channels connect again by themselves.
    """

    opened = 0

    def _open_connection(self) -> Any:
        self.opened += 1
        return super()._open_connection()


class StreamWorker:
    """Reads a change stream at an address from now on; `with` runs it until it is drained."""

    def __init__(
        self, transport: str, *, address: str, ca_file: Path, database: str, stream: str
    ) -> None:
        """Look at the stream and try a query, as `check` does."""
        self.transport = transport
        self.failed_queries: list[str] = []
        self._tasks = TaskThread()
        self._channels = CountingChannels(
            database=database,
            endpoint=address,
            tls=Tls(ca_file=str(ca_file)),
            query_transport=transport,
        )
        catalogue = SpannerCatalogue(self._channels)
        description, changes, start_ns = validate_stream(
            catalogue,
            lambda found: SpannerChangeStream(
                self._channels, form_of(found.dialect, found.partition_mode, found.name)
            ),
            run_task=self._tasks.run,
            name=stream,
            start_ns=None,
            now_ns=catalogue.now_ns,
        )
        self.trial = try_query(
            changes, run_task=self._tasks.run, start_ns=start_ns, transport=transport
        )

        self.names, self._registry = TopicNames(transport), InMemorySchemaRegistry()
        registrar = TableRegistrar(self.names, self._registry)
        encodings = {table.name: registrar.register(table) for table in description.tables}
        topics = {encoding.topic: TOPIC_PARTITIONS for encoding in encodings.values()}
        self._topics = tuple(topics)
        self._broker = MemoryBroker({**topics, self.names.progress: SLOTS}, group=Group(SLOTS))
        self._broker.message_bytes_max = MESSAGE_BYTES_MAX
        identity = StreamIdentity(
            stream=f"{database}/changeStreams/{stream}",
            dialect=description.dialect,
            group=self.names.group,
            slots=SLOTS,
            progress_topic_id=self._topic_id(self.names.progress),
            topics=tuple(
                DataTopic(topic, self._topic_id(topic), number, 1)
                for topic, number in topics.items()
            ),
        )
        self._worker = self._fleet_worker(
            Worker(name="w", epoch="e", identity=identity, start_ns=start_ns),
            changes,
            Translator(encodings, change_stream=stream),
        )
        self._thread = threading.Thread(target=self._run, name=f"worker-{transport}")
        self._awaited: Collection[Place] | None = None
        self._is_over = threading.Event()
        self.error: BaseException | None = None

    def __enter__(self) -> Self:
        """Start to work."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Commit what was read, and stop."""
        self._worker.request_drain()
        self._thread.join(_END_S)
        self._channels.close()
        self._tasks.close()
        assert not self._thread.is_alive()

    @property
    def connections_opened(self) -> str:
        """How many connections its queries had."""
        return str(self._channels.opened) if self.transport == "h2" else "by gRPC"

    def wait_for(self, places: Collection[Place], *, patience_s: float) -> None:
        """Wait until all of these changes are committed, or the worker has stopped."""
        self._awaited = places
        self._is_over.wait(patience_s)

    def entries(self) -> Iterator[DataEntry]:
        """Yield the committed changes of all topics, once the worker has stopped."""
        schemas = {}

        def schema(number: int) -> Any:
            if number not in schemas:
                schemas[number] = fastavro.parse_schema(self._registry.schema(number))
            return schemas[number]

        for (topic, number), log in self._broker.logs.items():
            if topic not in self._topics:
                continue
            for entry in log.read():
                message: Any = entry.value
                yield DataEntry(
                    topic=topic,
                    topic_partition=number,
                    offset=entry.offset,
                    written_ms=0,
                    data_topic=topic,
                    key=message.key,
                    place=place_of(message.order_key),
                    mod=message.mod,
                    origin=message.origin,
                    row=read_framed(message.key, schema),
                    value=read_framed(message.value, schema),
                )

    def _fleet_worker(
        self, core: Worker, changes: SpannerChangeStream, translator: Translator
    ) -> FleetWorker:
        budget = ByteBudget(BUDGET_BYTES, tasks=self._tasks)
        broker, progress = self._broker, self.names.progress
        worker = FleetWorker(
            core,
            publisher=MemoryPublisher(broker, transactional_id="w", progress_topic=progress),
            open_reader=lambda query, deliver: PartitionReader(
                changes,
                translator,
                token=query.token,
                query_id=query.query_id,
                start_ns=query.start_ns,
                end_ns=query.end_ns,
                heartbeat_ms=HEARTBEAT_MS,
                deliver=self._noting(deliver),
                budget=budget,
                tasks=self._tasks,
            ),
            open_stream_start=lambda: MemoryStreamStartFinder(
                broker, topic=progress, root_slot=slot_of(ROOT_TOKEN, SLOTS)
            ),
            release_budget=budget.release,
        )
        worker.attach(
            MemoryMembership(
                broker,
                worker="w",
                client_id="w-1",
                topic=progress,
                listener=worker,
                clock=SystemClock(),
            )
        )
        return worker

    def _topic_id(self, topic: str) -> str:
        return str(self._broker.describe_topic(topic).topic_id)

    def _noting(self, deliver: Callable[[Any], None]) -> Callable[[Any], None]:
        def noted(output: Any) -> None:
            if isinstance(output, QueryFailed):
                self.failed_queries.append(str(output.error))
            deliver(output)

        return noted

    def _run(self) -> None:
        worker, look_at = self._worker, 0.0
        try:
            worker.start()
            while worker.step():
                if self._awaited is not None and time.monotonic() >= look_at:
                    if self._arrived().issuperset(self._awaited):
                        self._is_over.set()
                    look_at = time.monotonic() + _LOOK_EVERY_S
            self.error = worker.error
        except BaseException as error:  # noqa: BLE001 - the test's own thread raises it
            self.error = error
        finally:
            self._is_over.set()
            worker.close()

    def _arrived(self) -> set[Place]:
        return {
            place_of(entry.value.order_key)
            for topic in self._topics
            for entry in self._broker.read(topic)
        }

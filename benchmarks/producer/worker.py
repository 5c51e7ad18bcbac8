"""A whole worker: the production loop, readers and translator; Kafka in memory, its data dropped.

CPU time of the process counts, from the moment at which the readers may read until everything is
committed.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.producer.counting_publisher import CountingPublisher
from benchmarks.producer.feed import Feed, FeedProcess, LocalChannels
from benchmarks.producer.memory_fleet import data_topic, step, topic_id
from benchmarks.producer.responses import START_NS, STREAM, TABLE
from benchmarks.producer.stages import NAMES, table_encoding
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream
from tidegate.producer.translation.translator import Translator
from tidegate.schemas.topics import ROOT_TOKEN, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.producer.responses import Case
    from benchmarks.producer.stages import Stage
    from tidegate.producer.memory.publisher import MemoryPublisher

__all__ = ["WORKERS"]

_TOKENS = tuple(f"token-{number}-0123456789abcdef0123456789" for number in range(4))
_SLOTS = 4
_INFLIGHT_BYTES_MAX = 64 << 20
_SETTLE_STEPS = 30


def worker(case: Case, changes: int) -> Stage:
    """All but gRPC and Kafka's client."""
    feed = Feed(case, changes, _TOKENS)
    rounds = _Rounds(changes)

    def run() -> float:
        feed.go.clear()
        return rounds.run(LocalChannels(feed), feed.go.set)

    return run


def grpc_worker(case: Case, changes: int) -> Stage:
    """All but Kafka's client; responses come over gRPC from another process."""
    feed = FeedProcess(case, changes, _TOKENS)
    rounds = _Rounds(changes)

    def run() -> float:
        feed.hold()
        channels = SpannerChannels(
            database="projects/p/instances/i/databases/d", emulator_host=feed.address
        )
        try:
            return rounds.run(channels, feed.release, close=channels.close)
        except BaseException:
            channels.close()
            raise

    return run


WORKERS: dict[str, Callable[[Case, int], Stage]] = {"worker": worker, "worker, gRPC": grpc_worker}


class _Rounds:
    """Each round is a new worker on a new stream; what is compiled per table is kept."""

    def __init__(self, changes: int) -> None:
        self._changes = changes
        encoding = table_encoding()
        self._topic = encoding.topic
        self._translator = Translator({TABLE.name: encoding}, change_stream=STREAM)

    def run(
        self,
        channels: Any,
        release: Callable[[], object],
        *,
        close: Callable[[], None] = lambda: None,
    ) -> float:
        """Return the CPU seconds of one round; `close` closes the channels."""
        tasks = TaskThread()
        broker = MemoryBroker({self._topic: 8, NAMES.progress: _SLOTS}, group=Group(_SLOTS))
        publisher = CountingPublisher(broker, progress_topic=NAMES.progress)
        fleet_worker = self._worker(channels, tasks, broker, publisher)
        fleet_worker.start()
        try:
            # Until every stream partition is read: its query waits for the release.
            while len(broker.read(NAMES.progress)) < _SLOTS + len(_TOKENS):
                step(fleet_worker)
            for _ in range(_SETTLE_STEPS):
                step(fleet_worker)
            began = time.process_time()
            release()
            while publisher.committed < self._changes:
                step(fleet_worker)
            return time.process_time() - began
        finally:
            fleet_worker.close()
            close()
            tasks.close()

    def _worker(
        self, channels: Any, tasks: TaskThread, broker: MemoryBroker, publisher: MemoryPublisher
    ) -> FleetWorker:
        stream = SpannerChangeStream(channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, STREAM))
        budget = ByteBudget(_INFLIGHT_BYTES_MAX, tasks=tasks)
        identity = StreamIdentity(
            stream="d/changeStreams/s",
            dialect="GOOGLE_STANDARD_SQL",
            group=NAMES.group,
            slots=_SLOTS,
            progress_topic_id=topic_id(broker, NAMES.progress),
            topics=(data_topic(broker, self._topic),),
        )
        fleet_worker = FleetWorker(
            Worker(name="w", epoch="e", identity=identity, start_ns=START_NS),
            publisher=publisher,
            open_reader=lambda query, deliver: PartitionReader(
                stream,
                self._translator,
                token=query.token,
                query_id=query.query_id,
                start_ns=query.start_ns,
                heartbeat_ms=1_000,
                deliver=deliver,
                budget=budget,
                tasks=tasks,
            ),
            open_stream_start=lambda: MemoryStreamStartFinder(
                broker, topic=NAMES.progress, root_slot=slot_of(ROOT_TOKEN, _SLOTS)
            ),
            release_budget=budget.release,
        )
        fleet_worker.attach(
            MemoryMembership(
                broker,
                worker="w",
                client_id="w-1",
                topic=NAMES.progress,
                listener=fleet_worker,
                clock=SystemClock(),
            )
        )
        return fleet_worker

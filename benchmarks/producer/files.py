"""A backlog of Datastream's Avro files through the production loop, with Kafka in memory.

Each round is a process of its own; its memory is compared with that of a tenth of the files.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from benchmarks.measuring import MIB, figures_of_process, memory_bytes
from benchmarks.producer.event_files import OBJECTS, write_objects
from benchmarks.producer.memory_fleet import step, topic_id
from tidegate.producer.core import effects as do
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.datastream.event_translator import EventTranslator
from tidegate.producer.datastream.file_ledger import SourceLimits
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream.stream import FILES_DIALECT, DatastreamFiles, FilesCatalogue
from tidegate.producer.driver.byte_budget import ByteBudget
from tidegate.producer.driver.loop import FleetWorker
from tidegate.producer.driver.reader import PartitionReader
from tidegate.producer.driver.runtime import SystemClock, TaskThread
from tidegate.producer.memory.broker import MemoryBroker
from tidegate.producer.memory.data_topics import MemoryDataTopics, MemoryMessageLimits
from tidegate.producer.memory.group import Group
from tidegate.producer.memory.membership import MemoryMembership, MemoryStreamStartFinder
from tidegate.producer.memory.publisher import MemoryPublisher
from tidegate.producer.translation.pipeline import TranslationPipeline
from tidegate.producer.translation.table_refresh import TableRefresher
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.program.memory import collect_rarely
from tidegate.schemas.progress import DataTopic
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

_CHANGES = 40_000
_SLOTS = 4
_INFLIGHT_BYTES_MAX = 64 << 20
_TIMEOUT_S = 600
_NAMES = TopicNames("bench")
_LIMITS = SourceLimits(open_minutes=10, lateness_us=60_000_000)


class CountingPublisher(MemoryPublisher):
    """Counts data messages instead of keeping them; progress records are kept."""

    def __init__(self, broker: MemoryBroker, *, progress_topic: str) -> None:
        super().__init__(broker, transactional_id="w", progress_topic=progress_topic)
        self.committed = 0
        self._open_messages = 0

    def publish_records(self, effect: do.PublishRecords) -> None:
        """Count the messages of a transaction that may still be aborted."""
        self._open_messages += sum(len(record.messages) for record in effect.records)

    def commit(self) -> Any:
        """Commit, and count what was open."""
        outcome = super().commit()
        self.committed += self._open_messages
        self._open_messages = 0
        return outcome


def _broker() -> MemoryBroker:
    """Return a broker with the topic of each object's table."""
    data = [_NAMES.data(f"bank.Accounts{number}") for number in range(OBJECTS)]
    return MemoryBroker(
        {**dict.fromkeys(data, _SLOTS), _NAMES.progress: _SLOTS}, group=Group(_SLOTS)
    )


def _translator(
    broker: MemoryBroker, *, on_found: Callable[[DataTopic], None] = lambda _: None
) -> EventTranslator:
    registrar = TableRegistrar(_NAMES, InMemorySchemaRegistry())
    topics = MemoryDataTopics(
        broker, MemoryMessageLimits(broker, ()), topic_partitions=_SLOTS, on_found=on_found
    )
    plain = Translator({}, change_stream="files")
    return EventTranslator(
        TranslationPipeline(plain, TableRefresher(plain, FilesCatalogue(), registrar, topics)),
        parks=True,
        columns_of=plain.registered_columns,
    )


def _worker(folder: Path, changes: int) -> dict[str, float]:
    """Publish all of it; CPU time counts from the start of the first query."""
    tasks, broker = TaskThread(), _broker()
    budget = ByteBudget(_INFLIGHT_BYTES_MAX, tasks=tasks)
    publisher = CountingPublisher(broker, progress_topic=_NAMES.progress)
    files = DatastreamFiles(
        LocalStore(), str(folder), tasks, SystemClock(), limits=_LIMITS, poll_ms=1_000, parks=True
    )
    progress_id = topic_id(broker, _NAMES.progress)
    identity = StreamIdentity("datastream/x", FILES_DIALECT, _NAMES.group, _SLOTS, progress_id, ())
    worker = FleetWorker(
        Worker(name="w", epoch="e", identity=identity, start_ns=1_000),
        publisher=publisher,
        open_reader=lambda query, deliver: PartitionReader(
            files.resumed(query.resumption),
            translator,
            token=query.token,
            query_id=query.query_id,
            start_ns=query.start_ns,
            heartbeat_ms=1_000,
            deliver=deliver,
            budget=budget,
            tasks=tasks,
        ),
        open_stream_start=lambda: MemoryStreamStartFinder(
            broker, topic=_NAMES.progress, root_slot=slot_of(ROOT_TOKEN, _SLOTS)
        ),
        release_budget=budget.release,
    )
    translator = _translator(broker, on_found=worker.add_table)
    worker.attach(
        MemoryMembership(
            broker, worker="w", client_id="w-1", topic=_NAMES.progress, listener=worker,
            clock=SystemClock(),
        )
    )  # fmt: skip
    began, cpu_began = time.monotonic(), time.process_time()
    worker.start()
    while publisher.committed < changes:
        step(worker)
        if time.monotonic() > began + _TIMEOUT_S:
            raise SystemExit(f"{publisher.committed:,} of {changes:,} changes after {_TIMEOUT_S} s")
    seconds = time.process_time() - cpu_began
    worker.close()
    tasks.close()
    return {
        "cpu_us": seconds / changes * 1e6,
        "changes_a_cpu_s": changes / seconds,
        "most_mib": memory_bytes("VmHWM") / MIB,
    }


# ---------------------------------------------------------------- processes


def measured(changes: int) -> dict[str, float]:
    """Return the figures for so many changes, of a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_objects(Path(folder), changes)
        return figures_of_process(
            __name__, folder, changes, what="files, worker", timeout_s=2 * _TIMEOUT_S
        )


def _worker_figures() -> dict[str, float]:
    tenth, found = measured(_CHANGES // 10), measured(_CHANGES)
    return {**found, "most_of_tenth": found["most_mib"] / tenth["most_mib"]}


FILES: dict[str, Callable[[], dict[str, float]]] = {"files, worker": _worker_figures}


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    collect_rarely()
    print(json.dumps(_worker(Path(sys.argv[1]), int(sys.argv[2]))), flush=True)

"""What files of Datastream cost, beside the change stream: by stage, and in a whole worker.

    files, stages    events of Avro files: parsed, then made records, then made messages
    files, worker    a backlog of files through the production loop; Kafka in memory, as in `worker`

Behind `JSON` and `gzip JSON` the same changes are in JSON lines (`event_files.py`).  Each round is
a process of its own; the worker's memory is compared with that of a tenth of the files.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from benchmarks.producer.counting_publisher import CountingPublisher
from benchmarks.producer.event_files import FORMS, OBJECTS, Form, write_objects
from benchmarks.producer.memory_fleet import step, topic_id
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.worker import Worker
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import LocalStore
from tidegate.producer.datastream_source.description import FILES_DIALECT, FilesCatalogue
from tidegate.producer.datastream_source.limits import SourceLimits
from tidegate.producer.datastream_source.object_query import ObjectQuery
from tidegate.producer.datastream_source.object_reading import ObjectReading
from tidegate.producer.datastream_source.stream import DatastreamFiles
from tidegate.producer.datastream_source.translator import EventTranslator
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
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.refreshing import RefreshingTranslator
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.producer.translation.translator import Translator
from tidegate.program.garbage import collect_rarely
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.topics import ROOT_TOKEN, TopicNames, slot_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tidegate.schemas.progress import DataTopic

__all__ = ["FILES", "measured"]

_CHANGES = 40_000
_SLOTS = 4
_INFLIGHT_BYTES_MAX = 64 << 20
_TIMEOUT_S = 600
_NAMES = TopicNames("bench")
_MIB_IN_KIB = 1_024
_LIMITS = SourceLimits(open_minutes=10, lateness_us=60_000_000)
_SHOWN: dict[Form, str] = {"avro": "", "jsonl": ", JSON", "jsonl.gz": ", gzip JSON"}

# ---------------------------------------------------------------- what is measured


def _stages(folder: Path, changes: int) -> dict[str, float]:
    """Read the files three times, each time one stage further."""
    paths = sorted(one for one in folder.rglob("*") if one.is_file())
    began = time.process_time()
    for path in paths:
        with path.open("rb") as stream:
            for _ in EventFile(str(path), stream).each():
                pass
    parsed = time.process_time()
    for _ in _records(folder):
        pass
    made = time.process_time()
    translator = _translator(_broker())
    for record in _records(folder):
        translator.translate(record, token="token")
    ended = time.process_time()
    parse, both, all_of_it = (
        seconds / changes * 1e6 for seconds in (parsed - began, made - parsed, ended - made)
    )
    return {
        "parse_us": parse,
        "record_us": both - parse,
        "translate_us": all_of_it - both,
        "cpu_us": all_of_it,
    }


def _records(folder: Path) -> Iterator[DataChangeRecord]:
    for one in sorted(folder.iterdir()):
        reading = ObjectReading(
            resumption={},
            start_us=0,
            first_minute=0,
            limits=_LIMITS,
            poll_us=3_600_000_000,
            parks=True,
        )
        query = ObjectQuery(
            LocalStore(), str(one), reading,
            tasks=_NoTasks(), clock=SystemClock(), heartbeat_ms=1_000,
        )  # fmt: skip
        until_us = 0
        while until_us == 0:
            items, until_us = query.step()
            for item in items:
                if isinstance(item, DataChangeRecord):
                    yield item


class _NoTasks:
    """Nothing waits here."""

    def signal(self) -> None:
        """Return nothing."""


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
        RefreshingTranslator(plain, FilesCatalogue(), registrar, topics),
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
            message = f"{publisher.committed:,} of {changes:,} changes after {_TIMEOUT_S} s"
            raise SystemExit(message)
    seconds = time.process_time() - cpu_began
    worker.close()
    tasks.close()
    return {
        "cpu_us": seconds / changes * 1e6,
        "changes_a_cpu_s": changes / seconds,
        "most_mib": _most_mib(),
    }


def _most_mib() -> float:
    """Return the most memory of this program; `getrusage` counts the one that started it, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(one.split()[1]) for one in lines if one.startswith("VmHWM")) / _MIB_IN_KIB


# ---------------------------------------------------------------- processes


def measured(kind: str, changes: int, *, form: Form = "avro") -> dict[str, float]:
    """Return the figures of `stages` or `worker` for so many changes, of a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        write_objects(Path(folder), changes, form=form)
        done = subprocess.run(
            [sys.executable, "-m", __name__, kind, folder, str(changes)],
            check=False, capture_output=True, text=True, timeout=2 * _TIMEOUT_S,
        )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"files, {kind}: {done.stderr[-2_000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _worker_figures(*, form: Form) -> dict[str, float]:
    tenth = measured("worker", _CHANGES // 10, form=form)
    found = measured("worker", _CHANGES, form=form)
    return {**found, "most_of_tenth": found["most_mib"] / tenth["most_mib"]}


FILES: dict[str, Callable[[], dict[str, float]]] = {
    **{
        f"files, stages{_SHOWN[form]}": partial(measured, "stages", _CHANGES, form=form)
        for form in FORMS
    },
    **{f"files, worker{_SHOWN[form]}": partial(_worker_figures, form=form) for form in FORMS},
}


if __name__ == "__main__":
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    collect_rarely()
    of = {"stages": _stages, "worker": _worker}[sys.argv[1]]
    print(json.dumps(of(Path(sys.argv[2]), int(sys.argv[3]))), flush=True)

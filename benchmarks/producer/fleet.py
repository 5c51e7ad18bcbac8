"""Real workers on a real broker: their CPU time, their throughput, their latency.

Each measurement has its own prefix, so its own topics and group.  What counts as done is what a
`read_committed` consumer has read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measuring import MIB, memory_bytes
from benchmarks.producer.responses import START_NS, STREAM, TABLE, Case, Fault, table_name
from benchmarks.producer.source import SourceProcess
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.order_key import TIMESTAMP_BYTES
from tidegate.schemas.topics import TopicNames

_TOPIC_PARTITIONS = 6
_PATIENCE_S = 90.0
_ROWS_PER_S_MIN = 1_000
_WARM_UP = 0.1
_POISON_EVERY = 10
_READ_AT_ONCE = 10_000
_KAFKA_MAIN_THREAD = "rdk:main"
"""librdkafka starts one for each client."""


class Fleet:
    """A source, workers that read it, and a consumer of what they publish; a context manager."""

    def __init__(
        self,
        stack: LocalStack,
        checkout: Path,
        case: Case,
        *,
        changes: int = 0,
        workers: int = 1,
        stream_partitions: int = 4,
        heartbeat_ms: int = 1_000,
        settings: Mapping[str, str] | None = None,
        rows: int = 0,
        data_bytes_max: int = 0,
    ) -> None:
        """Start them.

        With `rows` the table has so many, and the stream begins with them.  With `data_bytes_max`
        the data topic takes messages of that size at most.
        """
        self._stack, self._checkout, self._changes = stack, checkout, changes
        self._tables = [table_name(number) for number in range(case.tables)]
        self._names = TopicNames(f"b{uuid.uuid4().hex[:8]}")
        self._heartbeat_ms = heartbeat_ms
        self._settings = {**({"backfill": TABLE.name} if rows else {}), **(settings or {})}
        self._exits = ExitStack()
        try:
            self._source = SourceProcess(
                case, changes=changes, stream_partitions=stream_partitions, rows=rows
            )
            self._exits.callback(self._source.close)
            if data_bytes_max:
                self._create_data_topic(data_bytes_max)
            self._began = time.monotonic()
            self._workers = [self._start(f"w{number}") for number in range(workers)]
            if not rows:  # else the change stream is read after them
                self._wait_for_queries(stream_partitions)
            self._consumer = self._subscribed()
        except BaseException:
            self._exits.close()
            raise

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its processes."""
        self._exits.close()

    # ------------------------------------------------------------ measurements

    def throughput(self) -> dict[str, float]:
        """Publish all prepared changes; the first tenth, which warms up, does not count."""
        warm_up = round(self._changes * _WARM_UP)
        self._source.ask("release", _WARM_UP)
        self._read(warm_up)
        changes = self._changes - warm_up
        cpu_s, began = self._cpu_s(), time.monotonic()
        self._source.ask("release", 1 - _WARM_UP)
        self._read(changes)
        elapsed_s, cpu_s = time.monotonic() - began, self._cpu_s() - cpu_s
        return {
            "cpu_us": cpu_s * 1e6 / changes,
            "per_cpu_s": changes / cpu_s,
            "per_s": changes / elapsed_s,
            "most_mib": self._most_mib,
        }

    def backfill(self, rows: int) -> dict[str, float]:
        """Publish the rows that the stream begins with; counted from the start of the worker.

        Ends the program if the topic has another number of records.
        """
        count, first_s = 0, 0.0
        patience_s = _PATIENCE_S + rows / _ROWS_PER_S_MIN
        for _ in self._patiently("publishing the rows", patience_s=patience_s):
            found = self._consumer.consume(_READ_AT_ONCE, timeout=0.2)
            count += sum(message.error() is None for message in found)
            if count and not first_s:
                first_s = time.monotonic() - self._began
            if count >= rows:
                break
        elapsed_s, cpu_s = time.monotonic() - self._began, self._cpu_s()
        count += len(self._consumer.consume(_READ_AT_ONCE, timeout=1.0))
        if count != rows:
            sys.exit(f"{count} rows were published, of which {rows} exist")
        return {
            "rows_per_s": rows / elapsed_s,
            "wall_s": elapsed_s,
            "first_row_s": first_s,
            "cpu_s": cpu_s,
            "cpu_us": cpu_s * 1e6 / rows,
            "most_mib": self._most_mib,
        }

    def parked(
        self, *, fault: Fault, rate: int, seconds: float, warm_up_s: float
    ) -> dict[str, float]:
        """How much later changes of other keys come while each tenth change is parked."""
        before = self.latency(rate=rate, seconds=seconds, warm_up_s=warm_up_s)
        during = self.latency(
            rate=rate,
            seconds=seconds,
            warm_up_s=warm_up_s,
            poison_every=_POISON_EVERY,
            fault=fault,
        )
        place = TopicPartition(self._names.dead_letter, 0)
        _, parked = self._consumer.get_watermark_offsets(place, timeout=_PATIENCE_S)
        if parked < rate * (warm_up_s + seconds) / _POISON_EVERY:
            sys.exit(f"only {parked} changes were parked")
        return {
            "p99_before_ms": before["p99_ms"],
            "p99_ms": during["p99_ms"],
            "extra_p50_ms": during["p50_ms"] - before["p50_ms"],
            "extra_p99_ms": during["p99_ms"] - before["p99_ms"],
        }

    def latency(
        self,
        *,
        rate: int,
        seconds: float,
        warm_up_s: float,
        poison_every: int = 0,
        fault: Fault = Fault.DAMAGED,
    ) -> dict[str, float]:
        """Milliseconds from a change's commit until the consumer has it, at a steady rate.

        Every `poison_every`th change is parked for `fault`, and none if it is 0.
        """
        self._source.ask("pace", rate, warm_up_s + seconds, poison_every, fault)
        begin_us = (time.time() + warm_up_s) * 1e6
        changes = round(rate * (warm_up_s + seconds))
        if poison_every:
            changes -= -(-changes // poison_every)
        found = [seen for at_us, seen in self._arrivals(changes) if at_us >= begin_us]
        found.sort()
        return {"p50_ms": found[len(found) // 2], "p99_ms": found[len(found) * 99 // 100]}

    def splits(self, *, count: int) -> dict[str, float]:
        """Milliseconds from the instant of a split until the consumer has the child's change."""
        found = []
        for _ in range(count):
            self._source.ask("split")
            found += [seen for _, seen in self._arrivals(1)]
        found.sort()
        return {"median_ms": found[count // 2], "max_ms": found[-1]}

    def idle(self, *, seconds: float, warm_up_s: float) -> dict[str, float]:
        """Threads, Kafka clients, and the share of a core in percent, of one idle worker.

        It hears heartbeats only.
        """
        time.sleep(warm_up_s)
        cpu_s, began = self._cpu_s(), time.monotonic()
        time.sleep(seconds)
        core = (self._cpu_s() - cpu_s) / (time.monotonic() - began)
        names = _thread_names(self._workers[0].pid)
        return {
            "threads": len(names),
            "kafka_clients": names.count(_KAFKA_MAIN_THREAD),
            "core_percent": 100 * core,
        }

    # ------------------------------------------------------------ inside

    def _create_data_topic(self, bytes_max: int) -> None:
        topic = NewTopic(
            self._names.data(TABLE.name),
            _TOPIC_PARTITIONS,
            1,
            config={"max.message.bytes": str(bytes_max)},
        )
        admin = AdminClient({"bootstrap.servers": self._stack.bootstrap_servers})
        for created in admin.create_topics([topic]).values():
            created.result(_PATIENCE_S)

    def _start(self, worker: str) -> psutil.Process:
        settings = {
            "bootstrap-servers": self._stack.bootstrap_servers,
            "registry-url": self._stack.registry_url,
            "prefix": self._names.prefix,
            "project": "project",
            "instance": "instance",
            "database": "database",
            "change-stream": STREAM,
            "spanner-emulator-host": self._source.address,
            "worker": worker,
            "start": format_rfc3339(START_NS),
            "topic-partitions": str(_TOPIC_PARTITIONS),
            "heartbeat-ms": str(self._heartbeat_ms),
            **self._settings,
        }
        flags = [part for name, text in settings.items() for part in (f"--{name}", text)]
        log = self._log(worker).open("w")
        self._exits.callback(log.close)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tidegate.producer", "run", *flags],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": str(self._checkout)},
            cwd=self._checkout,
        )
        self._exits.callback(process.wait)
        self._exits.callback(process.kill)
        return psutil.Process(process.pid)

    def _log(self, worker: str) -> Path:
        return self._stack.config.data_dir / f"{self._names.prefix}-{worker}.log"

    def _wait_for_queries(self, stream_partitions: int) -> None:
        """Wait until so many stream partitions have been read."""
        for _ in self._patiently("reading its stream partitions"):
            if int(self._source.ask("count")) >= stream_partitions:
                return
            time.sleep(0.1)

    def _subscribed(self) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._stack.bootstrap_servers,
                "group.id": self._names.prefix,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 10,
            }
        )
        self._exits.callback(consumer.close)
        consumer.assign(
            [
                TopicPartition(self._names.data(table), number, 0)
                for table in self._tables
                for number in range(_TOPIC_PARTITIONS)
            ]
        )
        return consumer

    def _read(self, changes: int) -> None:
        """Read so many changes."""
        patience_s = _PATIENCE_S + changes / _ROWS_PER_S_MIN
        for _ in self._patiently(f"publishing {changes} changes", patience_s=patience_s):
            changes -= len(self._consumer.consume(_READ_AT_ONCE, timeout=0.05))
            if changes <= 0:
                return

    def _arrivals(self, changes: int) -> Iterator[tuple[int, float]]:
        """Read so many changes; yield each commit time (us) and how much later it came (ms)."""
        for _ in self._patiently(f"publishing {changes} changes"):
            messages = self._consumer.consume(_READ_AT_ONCE, timeout=0.002)
            now_us = time.time_ns() / 1_000
            for message in messages:
                headers: Any = message.headers()
                at_us = int.from_bytes(headers[0][1][:TIMESTAMP_BYTES], "big")
                yield at_us, (now_us - at_us) / 1_000
            changes -= len(messages)
            if changes <= 0:
                return

    @property
    def _most_mib(self) -> float:
        return max(memory_bytes("VmHWM", one.pid) for one in self._workers) / MIB

    def _cpu_s(self) -> float:
        """CPU seconds of all threads of all workers."""
        return sum(sum(worker.cpu_times()[:2]) for worker in self._workers)

    def _patiently(self, what: str, *, patience_s: float = _PATIENCE_S) -> Iterator[None]:
        """Go on for some minutes, as long as all workers run."""
        give_up_at = time.monotonic() + patience_s
        while time.monotonic() < give_up_at:
            if any(worker.status() == psutil.STATUS_ZOMBIE for worker in self._workers):
                break
            yield
        log = self._log("w0").read_text()
        sys.exit(f"the workers are not {what}; the log of the first ends with\n{log[-3_000:]}")


def _thread_names(pid: int) -> list[str]:
    """Return the names of a process's threads, as Linux knows them."""
    return [comm.read_text().strip() for comm in Path(f"/proc/{pid}/task").glob("*/comm")]

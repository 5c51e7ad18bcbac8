"""One program under a steady load, a split and a SIGKILL: when changes arrive, and which of them.

A run has one clock, that of the program's start.  Changes are committed all the time, 100 in a
transaction, and a `read_committed` consumer notes when each arrives.  Between two times nothing
happens; then the busiest stream partition is split; then the program is killed and started again at
once; then commits end, and the run is over when every change has arrived, or none for a while.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import psutil
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

from benchmarks.measuring import MIB
from benchmarks.peers.backlog import EPOCH, ROWS_AT_ONCE, update
from benchmarks.peers.publishing import consumer_of, cpu_seconds, create
from tidegate.local_stack.demo.bank_database import open_database
from tidegate.local_stack.demo.conductor import SimulatorControl
from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec
from tidegate.local_stack.parts.programs import DatabaseName

RATE = 1_000
"""Changes a second."""
STEADY_S = (25.0, 50.0)
"""Changes that are committed between these times are those of the steady load."""
SPLIT_S = (50.0, 65.0)
"""The split, and until when what is committed counts as after it."""
KILL_S = 75.0
"""After Kafka Connect's first flush of offsets, which it makes once a minute."""
END_S = 95.0
_QUIET_S = 75.0
"""A child of a split may wait for a flush of offsets, which Connect makes once a minute."""
_SETTLE_S = 3.0
"""From the last change to the end of the program: it says how far it is."""
_READ_AT_ONCE = 500
_POLL_S = 0.02
_US = 1_000_000

Change = tuple[int, int]
"""A row's key, and the number of the transaction that changed it."""
Decode = Callable[[Message], Change | None]


def debezium_json(message: Message) -> Change | None:
    """Return the change in a message of Debezium's, JSON without schemas; None for a watermark."""
    value = json.loads(message.value() or b"")
    if value["op"] == "m":
        return None
    return int(value["after"]["Id"]), transaction_of(str(value["after"]["Updated"]))


def tidegate_avro(registry_url: str) -> Decode:
    """Return what reads Tidegate's own envelope."""
    decode = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))

    def change(message: Message) -> Change:
        topic = message.topic() or ""
        key: Any = decode(message.key(), SerializationContext(topic, MessageField.KEY))
        value: Any = decode(message.value(), SerializationContext(topic, MessageField.VALUE))
        return int(key["Id"]), transaction_of(str(value["new_values"]["Updated"]))

    return change


def transaction_of(updated: str) -> int:
    """Return the number of the transaction that wrote this time into its rows."""
    at = datetime.fromisoformat(updated)
    return round((at - EPOCH).total_seconds() * 1_000)


@dataclass(slots=True)
class Load:
    """Commits transactions at a steady pace, in a thread, until it is stopped."""

    database: DatabaseName
    first: int
    """The number of the first transaction; each row has the number of its last one."""
    committed_us: dict[int, int] = field(default_factory=dict)
    """The commit time of each transaction."""
    rate: float = RATE
    """Changes a second."""
    _over: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        self._thread = threading.Thread(target=self._commit, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End, when the last transaction is committed."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _commit(self) -> None:
        database = open_database(self.database)
        began_s, number = time.monotonic(), 0
        while not self._over.is_set():
            self.committed_us[self.first + number] = update(database, self.first + number)
            number += 1
            due_s = began_s + number * ROWS_AT_ONCE / self.rate
            self._over.wait(max(0.0, due_s - time.monotonic()))


@dataclass(slots=True)
class Arrivals:
    """What has arrived, in which order, and how late."""

    late_us: dict[Change, int] = field(default_factory=dict)
    """When each change arrived first, microseconds since 1970."""
    repeated: int = 0
    reordered: int = 0
    last_s: float = field(default_factory=time.monotonic)
    _newest: dict[int, int] = field(default_factory=dict)

    def add(self, change: Change | None, at_us: int) -> None:
        """Note a record; changes of a key are in one topic partition, in the order of reading."""
        if change is None:
            return
        key, transaction = change
        if change in self.late_us:
            self.repeated += 1
            return
        self.reordered += transaction < self._newest.get(key, transaction)
        self._newest[key] = max(transaction, self._newest.get(key, transaction))
        self.late_us[change] = at_us
        self.last_s = time.monotonic()


def steady(
    program: ProcessSpec,
    *,
    topic: str,
    decode: Decode,
    bootstrap_servers: str,
    database: DatabaseName,
    control: SimulatorControl,
    first: int,
) -> tuple[dict[str, float], Mapping[int, int]]:
    """Run a program from its start to the end of the load.

    Return its figures, and the commit time of each transaction in microseconds.  Ends this program
    if the other one publishes nothing.
    """
    create(topic, bootstrap_servers)
    consumer = consumer_of(topic, bootstrap_servers)
    process, load, arrivals = ChildProcess(program), Load(database, first), Arrivals()
    began_s, began_us = time.monotonic(), time.time_ns() // 1_000
    used: dict[float, float] = {}
    split_done = False
    killed_us = 0
    try:
        process.start()
        load.start()
        while True:
            for message in consumer.consume(_READ_AT_ONCE, timeout=_POLL_S):
                if message.error() is None:
                    arrivals.add(decode(message), time.time_ns() // 1_000)
            now_s = time.monotonic() - began_s
            if not process.is_running:
                sys.exit(f"{program.name} ended after {now_s:.0f} s; its log is {program.log}")
            for at_s in STEADY_S:
                if now_s >= at_s and at_s not in used:
                    used[at_s] = cpu_seconds(process.pid)
                    mib = psutil.Process(process.pid).memory_info().rss / MIB
            if now_s >= SPLIT_S[0] and not split_done:
                control.split()
                split_done = True
            if now_s >= KILL_S and not killed_us:
                process.kill()
                killed_us = time.time_ns() // 1_000
                process = ChildProcess(program)
                process.start()
            if now_s >= END_S:
                load.stop()
                has_all = len(arrivals.late_us) >= len(load.committed_us) * ROWS_AT_ONCE
                if has_all:
                    time.sleep(_SETTLE_S)
                if has_all or time.monotonic() - arrivals.last_s > _QUIET_S:
                    break
    finally:
        load.stop()
        process.kill()
        consumer.close()
        if split_done:
            control.merge()
    if not arrivals.late_us:
        sys.exit(f"{program.name} published nothing; its log is {program.log}")
    figures = _figures(load, arrivals, began_us, killed_us)
    cores = (used[STEADY_S[1]] - used[STEADY_S[0]]) / (STEADY_S[1] - STEADY_S[0])
    return {**figures, "cores": cores, "mib": mib}, load.committed_us


def _figures(load: Load, arrivals: Arrivals, began_us: int, killed_us: int) -> dict[str, float]:
    def delays_s(from_s: float, until_s: float) -> list[float]:
        """Return how late changes of a stretch came first, sorted."""
        return sorted(
            (at_us - load.committed_us[change[1]]) / _US
            for change, at_us in arrivals.late_us.items()
            if from_s <= (load.committed_us[change[1]] - began_us) / _US < until_s
        )

    calm, after_split = delays_s(*STEADY_S), delays_s(*SPLIT_S)
    if not (calm and after_split):
        sys.exit("nothing of the steady load has arrived")
    missing = len(load.committed_us) * ROWS_AT_ONCE - len(arrivals.late_us)
    back = min(
        (
            at_us
            for change, at_us in arrivals.late_us.items()
            if load.committed_us[change[1]] > killed_us
        ),
        default=0,
    )
    return {
        "p50_s": calm[len(calm) // 2],
        "p95_s": calm[len(calm) * 95 // 100],
        "p99_s": calm[len(calm) * 99 // 100],
        "after_split_s": after_split[-1],
        "away_s": (back - killed_us) / _US,
        "lost": missing,
        "repeated": arrivals.repeated,
        "reordered": arrivals.reordered,
    }

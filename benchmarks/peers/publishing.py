"""One program publishes the backlog: its CPU seconds and the time, by what a consumer has read."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import psutil
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measuring import MIB
from tidegate.local_stack.parts.process import ChildProcess, ProcessSpec

TOPIC_PARTITIONS = 6
_WARM_FROM = 1 / 3
"""The share of the changes after which a program counts as warm."""
READ_AT_ONCE = 1_000
"""A backlog of several times as many cannot be read before a program counts as warm."""
_POLL_S = 0.05
_SETTLE_S = 2.0
_ADMIN_TIMEOUT_S = 30.0
_PATIENCE_S = 900.0


def publish(
    program: ProcessSpec, *, topic: str, bootstrap_servers: str, changes: int, kafka_log: Path
) -> dict[str, float]:
    """Start the program; return its figures when a `read_committed` consumer has that many records.

    `cpu_s` and `wall_s` count from the start of the process, `per_s` from the first record on;
    `warm_cpu_us` is CPU time for each
    change after the first third.  `extra` is how many records more came within the two seconds
    after that, and `bytes` the topic's size below the folder `kafka_log` for each record.  Ends
    this program if the other one ends, or takes more than a quarter of an hour.
    """
    create(topic, bootstrap_servers)
    consumer = consumer_of(topic, bootstrap_servers)
    process = ChildProcess(program)
    warm_from = round(changes * _WARM_FROM)
    count = warm_count = 0
    warm_cpu_s = first_s = 0.0
    try:
        began = time.monotonic()
        process.start()
        while count < changes:
            count += _read(consumer)
            now_s = time.monotonic() - began
            if count and not first_s:
                first_s = now_s
            if count >= warm_from and not warm_count:
                warm_count, warm_cpu_s = count, cpu_seconds(process.pid)
            if not process.is_running or now_s > _PATIENCE_S:
                sys.exit(
                    f"{program.name} published {count} of {changes} changes in {now_s:.0f} s; "
                    f"its log {program.log} ends with\n{process.log_tail(40)}"
                )
        cpu_s, wall_s = cpu_seconds(process.pid), time.monotonic() - began
        most_mib = psutil.Process(process.pid).memory_info().rss / MIB
        settled_at = time.monotonic() + _SETTLE_S
        while time.monotonic() < settled_at:
            count += _read(consumer)
    finally:
        process.kill()
        consumer.close()
    return {
        "cpu_s": cpu_s,
        "cpu_us": cpu_s * 1e6 / changes,
        "warm_cpu_us": (cpu_s - warm_cpu_s) * 1e6 / (changes - warm_count),
        "per_cpu_s": changes / cpu_s,
        "wall_s": wall_s,
        "per_s": changes / (wall_s - first_s),
        "first_s": first_s,
        "mib": most_mib,
        "extra": count - changes,
        "bytes": _size(kafka_log, topic) / count,
    }


def _size(kafka_log: Path, topic: str) -> int:
    """Return the bytes of a topic's records, with what is around them."""
    segments = (folder.glob("*.log") for folder in kafka_log.glob(f"{topic}-*"))
    return sum(path.stat().st_size for paths in segments for path in paths)


def create(topic: str, bootstrap_servers: str) -> None:
    """Create a topic of some topic partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    for created in admin.create_topics([NewTopic(topic, TOPIC_PARTITIONS, 1)]).values():
        created.result(_ADMIN_TIMEOUT_S)


def consumer_of(topic: str, bootstrap_servers: str) -> Consumer:
    """Return what reads all of a topic, and nothing that no transaction committed."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": topic,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(topic, number, 0) for number in range(TOPIC_PARTITIONS)])
    return consumer


def _read(consumer: Consumer) -> int:
    """Return how many more records there are."""
    found = consumer.consume(READ_AT_ONCE, timeout=_POLL_S)
    return sum(one.error() is None for one in found)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of all threads of a process, user and system."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)

"""What is measured on a real broker, and the floors beside it: gRPC alone, producing alone.

Each scenario takes the stack and the checkout whose worker is measured, and returns its figures.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, TypeAlias
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.producer.feed import FeedProcess
from benchmarks.producer.fleet import Fleet
from benchmarks.producer.responses import LARGE_BYTES, STREAM, TABLE, Case, Fault, responses
from benchmarks.producer.stages import table_encoding
from tidegate.producer.description import GOOGLE_SQL, IMMUTABLE_KEY_RANGE
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import SpannerChangeStream, SpannerQuery, SpannerResponse
from tidegate.producer.translation.translator import Translator

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tidegate.local_stack.parts.stack import LocalStack

__all__ = ["FLOORS", "LARGE", "SCENARIOS", "Figures"]

Figures: TypeAlias = dict[str, float]

_CHANGES = 40_000
"""A tenth of it is a whole number of messages for each of the stream partitions in every case."""
_FLOOR_CHANGES = 20_000
_FILLING_ROWS = 250_000
"""A backfill of so many fills what a worker holds: more rows must not take more memory."""
_RATE = 1_000
_PARKED_RATE = 500
_PARKED_S = 15.0
_SPLITS = 8
_RARE_HEARTBEATS_MS = 10_000
"""Where there are many stream partitions: two cores are not enough to send and read 10,000 a second
beside a broker."""
_MANY = 10_000
_TOKEN = "token-0-0123456789abcdef"
_ADMIN_TIMEOUT_S = 30


def _throughput(case: Case, workers: int, stack: LocalStack, checkout: Path) -> Figures:
    with Fleet(stack, checkout, case, changes=_CHANGES, workers=workers) as fleet:
        return fleet.throughput()


def _many(stream_partitions: int, workers: int, stack: LocalStack, checkout: Path) -> Figures:
    """A change in each message, over few or many stream partitions."""
    with Fleet(
        stack,
        checkout,
        Case(1, 1),
        changes=max(30_000, 10 * stream_partitions),
        workers=workers,
        stream_partitions=stream_partitions,
        heartbeat_ms=_heartbeat_ms(stream_partitions),
    ) as fleet:
        return fleet.throughput()


def _catch_up(
    stream_partitions: int, open_queries_max: int, stack: LocalStack, checkout: Path
) -> Figures:
    """Two workers that start with a backlog, and with fewer queries than stream partitions."""
    with Fleet(
        stack,
        checkout,
        Case(1, 1),
        changes=10 * stream_partitions,
        workers=2,
        stream_partitions=stream_partitions,
        heartbeat_ms=_heartbeat_ms(stream_partitions),
        settings={"open-queries-max": str(open_queries_max)},
        has_backlog=True,
    ) as fleet:
        return fleet.catch_up()


def _backfill(rows: int, stack: LocalStack, checkout: Path) -> Figures:
    """One worker that publishes the rows of a table; its memory beside that for fewer of them."""
    found = {}
    for count in (max(rows // 10, min(rows // 2, _FILLING_ROWS)), rows):
        with Fleet(stack, checkout, Case(1, 1), rows=count) as fleet:
            found[count] = fleet.backfill(count)
    small, large = found.values()
    return {**large, "most_of_fewer": large["most_mib"] / small["most_mib"]}


def _parked(fault: Fault, stack: LocalStack, checkout: Path) -> Figures:
    """Other keys' changes, before changes are parked and while they are."""
    with Fleet(
        stack,
        checkout,
        Case(1, 1),
        settings={"poison": "park"},
        data_bytes_max=LARGE_BYTES if fault is Fault.LARGE else 0,
    ) as fleet:
        return fleet.parked(fault=fault, rate=_PARKED_RATE, seconds=_PARKED_S, warm_up_s=3)


def _latency(stack: LocalStack, checkout: Path) -> Figures:
    with Fleet(stack, checkout, Case(1, 1)) as fleet:
        return fleet.latency(rate=_RATE, seconds=8, warm_up_s=3)


def _split(stack: LocalStack, checkout: Path) -> Figures:
    with Fleet(stack, checkout, Case(1, 1), stream_partitions=1) as fleet:
        return fleet.splits(count=_SPLITS)


def _idle(stream_partitions: int, stack: LocalStack, checkout: Path) -> Figures:
    """Open queries that return a heartbeat each second, and nothing else."""
    with Fleet(stack, checkout, Case(1, 1), stream_partitions=stream_partitions) as fleet:
        return fleet.idle(seconds=20, warm_up_s=15)


def _progress(stream_partitions: int, stack: LocalStack, checkout: Path) -> Figures:
    """What the progress topic takes while every stream partition moves with each heartbeat."""
    with Fleet(
        stack,
        checkout,
        Case(1, 1),
        stream_partitions=stream_partitions,
        heartbeat_ms=_heartbeat_ms(stream_partitions),
    ) as fleet:
        return fleet.progress(seconds=60, warm_up_s=15)


def _heartbeat_ms(stream_partitions: int) -> int:
    return _RARE_HEARTBEATS_MS if stream_partitions >= _MANY else 1_000


SCENARIOS: dict[str, Callable[[LocalStack, Path], Figures]] = {
    "kafka, 20 x 1": partial(_throughput, Case(20, 1), 1),
    "kafka, 20 x 10": partial(_throughput, Case(20, 10), 1),
    "kafka, 1 x 1": partial(_throughput, Case(1, 1), 1),
    "kafka, 20 x 1, 2 workers": partial(_throughput, Case(20, 1), 2),
    "kafka, latency": _latency,
    "kafka, parked": partial(_parked, Fault.DAMAGED),
    "kafka, parked, too large": partial(_parked, Fault.LARGE),
    "kafka, parked, table refused": partial(_parked, Fault.REFUSED),
    "kafka, split": _split,
    "kafka, idle, 1000 stream partitions": partial(_idle, 1_000),
    **{
        f"kafka, {count} stream partitions": partial(_many, count, 1)
        for count in (1, 100, 1000, 3000)
    },
    "kafka, 10000 stream partitions, 2 workers": partial(_many, _MANY, 2),
    **{
        f"kafka, backlog, {count} stream partitions": partial(_catch_up, count, count // 10)
        for count in (1_000, _MANY)
    },
    "kafka, backfill, 500000 rows": partial(_backfill, 500_000),
    **{
        f"kafka, progress, {count} stream partitions": partial(_progress, count)
        for count in (10, 1000, _MANY)
    },
}


LARGE: dict[str, Callable[[LocalStack, Path], Figures]] = {
    f"kafka, backfill, {count} rows": partial(_backfill, count) for count in (100_000, 5_000_000)
}
"""Measured when they are named, and not with all others."""


# ---------------------------------------------------------------- floors


def _grpc_alone(case: Case, _stack: LocalStack) -> Figures:
    """Receive responses, and do nothing with them."""
    feed, tasks = FeedProcess(case, _FLOOR_CHANGES, (_TOKEN,)), TaskThread()
    channels = SpannerChannels(
        database="projects/p/instances/i/databases/d", emulator_host=feed.address
    )
    try:
        query = SpannerChangeStream(
            channels, form_of(GOOGLE_SQL, IMMUTABLE_KEY_RANGE, STREAM)
        ).query(token=_TOKEN, start_ns=1, end_ns=None, heartbeat_ms=1_000)
        feed.release()
        return _cpu(tasks.run(lambda: _receive(query, _FLOOR_CHANGES // (case.rows * case.mods))))
    finally:
        channels.close()
        tasks.close()
        feed.close()


async def _receive(query: SpannerQuery, responses: int) -> float:
    """Return the CPU seconds of receiving so many responses after the first, the metadata."""
    await _receive_one(query)
    began = time.process_time()
    for _ in range(responses):
        await _receive_one(query)
    cpu_s = time.process_time() - began
    query.cancel()
    return cpu_s


async def _receive_one(query: SpannerQuery) -> None:
    assert await query.next_size() is not None
    await query.receive()


def _produce_alone(stack: LocalStack) -> Figures:
    """Produce finished messages with headers and delivery callbacks in transactions of 5,000."""
    translator = Translator({TABLE.name: table_encoding()}, change_stream=STREAM)
    decoder = ResponseDecoder(ColumnTypesCache())
    messages = [
        message
        for response in responses(Case(20, 1), _FLOOR_CHANGES)
        for record in SpannerResponse(response, decoder).decode()[0]
        for message in translator.translate(record, token=_TOKEN).messages  # type: ignore[arg-type]  # all are changes
    ]
    topic = f"floor-{uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": stack.bootstrap_servers})
    for created in admin.create_topics([NewTopic(topic, 6, 1)]).values():
        created.result(_ADMIN_TIMEOUT_S)
    producer = Producer(
        {
            "bootstrap.servers": stack.bootstrap_servers,
            "transactional.id": topic,
            "compression.type": "lz4",
            "linger.ms": 5,
        }
    )
    producer.init_transactions()
    failures = []

    def on_report(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    began = time.process_time()
    for start in range(0, len(messages), 5_000):
        producer.begin_transaction()
        for number, (_, key, value, *contents) in enumerate(messages[start : start + 5_000]):
            headers = list(zip(("order", "mod", "origin"), contents, strict=False))
            producer.produce(topic, value, key, number % 6, on_report, headers=headers)
        producer.flush()
        producer.commit_transaction()
    cpu_s = time.process_time() - began
    assert not failures, failures[0]
    return _cpu(cpu_s)


def _cpu(cpu_s: float) -> Figures:
    return {"cpu_us": cpu_s * 1e6 / _FLOOR_CHANGES}


FLOORS: dict[str, Callable[[LocalStack], Figures]] = {
    "floor, gRPC alone, 20 x 1": partial(_grpc_alone, Case(20, 1)),
    "floor, gRPC alone, 20 x 10": partial(_grpc_alone, Case(20, 10)),
    "floor, gRPC alone, 1 x 1": partial(_grpc_alone, Case(1, 1)),
    "floor, produce alone": _produce_alone,
}

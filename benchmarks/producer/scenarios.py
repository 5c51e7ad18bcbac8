"""What is measured on a real broker.

Each scenario takes the stack and the checkout whose worker is measured, and returns its figures.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeAlias

from benchmarks.producer.fleet import Fleet
from benchmarks.producer.responses import LARGE_BYTES, Case, Fault
from benchmarks.producer.stages import stages
from tidegate.local_stack.parts.stack import LocalStack

Figures: TypeAlias = dict[str, float]

_CHANGES = 40_000
"""A tenth of it is a whole number of messages for each of the stream partitions in every case."""
_FOR_MANY_TABLES = 400_000
"""A broker is slow with the first records of each topic partition: with 50 tables, 40,000 changes
would measure little else."""
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


def _throughput(
    case: Case, workers: int, stack: LocalStack, checkout: Path, *, changes: int = _CHANGES
) -> Figures:
    with Fleet(stack, checkout, case, changes=changes, workers=workers) as fleet:
        return fleet.throughput()


def _stages(case: Case, stack: LocalStack, checkout: Path) -> Figures:
    """Each stage alone, and a worker, which does all of them."""
    worker = _throughput(case, 1, stack, checkout)
    return {**stages(case, stack), "cpu_us": worker["cpu_us"]}


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
    "kafka, backfill, 500000 rows": partial(_backfill, 500_000),
}


LARGE: dict[str, Callable[[LocalStack, Path], Figures]] = {
    **{f"kafka, backfill, {n} rows": partial(_backfill, n) for n in (100_000, 5_000_000)},
    **{
        f"kafka, 20 x 1, {n} changes wait": partial(_throughput, Case(20, 1), 1, changes=n)
        for n in (10_400, 100_000, 1_000_000, 5_000_000)
    },
    **{
        f"kafka, 20 x 1, {tables} tables": partial(
            _throughput, Case(20, 1, tables), 1, changes=_FOR_MANY_TABLES
        )
        for tables in (10, 50)
    },
    **{
        f"kafka, stages, {rows} x {mods}": partial(_stages, Case(rows, mods))
        for rows, mods in ((20, 10), (20, 1), (1, 1))
    },
    "kafka, 20 x 1, 4 workers": partial(_throughput, Case(20, 1), 4),
}
"""Measured when they are named, and not with all others."""

"""How soon a change is in each table under a steady load, and what that costs.

A worker publishes updates of one table, the consumer writes a changelog and a mirror.  Each run has
another time between two merges of the mirror.  A change has arrived when the newest version of a
table that a reader finds has it; a reader looks four times a second.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from pyarrow import compute

from benchmarks.measuring import say, spread
from benchmarks.peers.backlog import STREAM, STREAM_PARTITIONS, TABLE, create_accounts
from benchmarks.peers.lake import tree_cpu_s
from benchmarks.peers.steady import Load, transaction_of
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.programs import DatabaseName, Program, Programs
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.schemas.instants import NS_PER_US, format_rfc3339

_SINKS = ("changelog", "mirror")
_POLL_S = 0.25
_PATIENCE_S = 90.0
_US = 1_000_000


@dataclass(slots=True)
class Reader:
    """Notes through which transaction a table was, each time that it had a new version."""

    path: Path
    columns: tuple[str, ...]
    """From the table to the column that tells the transaction."""
    seen: list[tuple[int, int]] = field(default_factory=list)
    """When, in microseconds since 1970, and the number of the newest transaction."""
    _table: DeltaTable | None = None
    _version: int = -1

    def look(self) -> None:
        """Look once."""
        try:
            table = self._table = self._table or DeltaTable(str(self.path))
        except TableNotFoundError:
            return
        table.update_incremental()
        now_us = time.time_ns() // NS_PER_US
        if table.version() == self._version:
            return
        self._version = table.version()
        column = table.to_pyarrow_table(columns=list(self.columns[:1])).column(0)
        for name in self.columns[1:]:
            column = compute.struct_field(column, name)
        newest = compute.max(column).as_py()
        if newest is not None:
            self.seen.append((now_us, transaction_of(str(newest))))

    def delays_s(self, committed_us: Mapping[int, int]) -> list[float]:
        """Return how late each of some transactions came, sorted."""
        arrived = (
            next((at_us for at_us, newest in self.seen if newest >= transaction), None)
            for transaction in committed_us
        )
        return sorted(
            (at_us - committed) / _US
            for at_us, committed in zip(arrived, committed_us.values(), strict=True)
            if at_us is not None
        )


def measure(options: argparse.Namespace, folder: str) -> Iterator[dict[str, Any]]:
    """Yield a line for each time between merges: delays in seconds, and the consumer's cores."""
    found: dict[int, list[dict[str, float]]] = {one: [] for one in options.intervals}
    with LocalStack(
        load_config(data_dir=Path(folder), stream_partitions=STREAM_PARTITIONS),
        report=say,
        is_patient=True,
        is_lasting=True,
    ) as stack:
        runs = [(number, one) for number in range(options.rounds) for one in options.intervals]
        for number, interval_ms in runs:
            name = f"fresh-{number}-{interval_ms}"
            database = DatabaseName(stack.spanner_address, instance="fresh", database=name)
            _, before_us, _ = create_accounts(database)
            programs = Programs(
                folder=Path(folder) / name,
                bootstrap_servers=stack.bootstrap_servers,
                registry_url=stack.registry_url,
                spanner_address=stack.spanner_address,
                database=database,
                stream=STREAM,
                prefix=name,
                log_level="info",
                more={
                    "TIDEGATE_CONSUMER_SINKS": ",".join(_SINKS),
                    "TIDEGATE_CONSUMER_MIRROR_INTERVAL_MS": str(interval_ms),
                },
            )
            load = Load(database, 0, rate=options.rate)
            figures = _run(programs, load, format_rfc3339(before_us * NS_PER_US), options.seconds)
            say(f"round {number + 1}, every {interval_ms} ms: {json.dumps(figures)}")
            found[interval_ms].append(figures)
    for interval_ms, rounds in found.items():
        yield {
            "mirror_interval_ms": interval_ms,
            "changes_a_second": options.rate,
            **{name: spread([figures[name] for figures in rounds]) for name in rounds[0]},
        }


def _run(programs: Programs, load: Load, start: str, seconds: float) -> dict[str, float]:
    programs.folder.mkdir(parents=True)
    worker, consumer = programs.worker("w1", start=start), programs.consumer()
    output = programs.output
    readers = {
        "changelog": Reader(output / "changelog" / TABLE, ("new_values", "Updated")),
        "mirror": Reader(output / "mirror" / TABLE, ("Updated",)),
    }
    try:
        worker.start()
        consumer.start()
        load.start()
        _watch(readers, consumer, seconds, until_all_have_some=True)
        began_us, cpu_s = time.time_ns() // NS_PER_US, tree_cpu_s(consumer.process.pid)
        _watch(readers, consumer, seconds)
        cores = (tree_cpu_s(consumer.process.pid) - cpu_s) / seconds
        ended_us = time.time_ns() // NS_PER_US
        _watch(readers, consumer, seconds / 4)
    finally:
        load.stop()
        consumer.stop()
        worker.stop()
    figures = {"cores": cores}
    committed_us = {
        transaction: at_us
        for transaction, at_us in dict(load.committed_us).items()
        if began_us <= at_us < ended_us
    }
    for sink, reader in readers.items():
        delays_s = reader.delays_s(committed_us)
        figures[f"{sink}_p50_s"] = statistics.median(delays_s)
        figures[f"{sink}_p95_s"] = delays_s[len(delays_s) * 95 // 100]
    return figures


def _watch(
    readers: dict[str, Reader],
    consumer: Program,
    seconds: float,
    *,
    until_all_have_some: bool = False,
) -> None:
    """Look for some seconds, which begin when every table has something if that is asked."""
    began = time.monotonic()
    has_some = not until_all_have_some
    while time.monotonic() - began < seconds or not has_some:
        for reader in readers.values():
            reader.look()
        if not has_some and all(reader.seen for reader in readers.values()):
            has_some, began = True, time.monotonic()
        if not consumer.process.is_running or time.monotonic() - began > _PATIENCE_S + seconds:
            sys.exit(f"the consumer writes nothing: {consumer.process.log_tail(20)}")
        time.sleep(_POLL_S)

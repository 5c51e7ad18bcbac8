"""What a small release costs, written by delta-rs and by Spark, in turns.

    python -m benchmarks.consumer [--changes 500] [--rounds 10] [--json]

A warm session on this machine; two tables, each with changelog and mirror, every third change an
UPDATE.  A round is one batch's changes: counted, made a release, written to both sinks, and its
manifest.  Storing plan, state and frontier, and reading Kafka, cost the same either way and are
left out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import psutil

from benchmarks.consumer_jobs import new_session, topics_of
from tests.spark.gate_rows import GATE_SCHEMA
from tests.topics import Change
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.release_writer import write_release

WARM_UP = 3
PLAN = SimpleNamespace(query_id="bench", batch=0)


@dataclass
class Way:
    """One way of writing, into an output of its own."""

    name: str
    spark: Any
    folder: str
    collects: bool
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        gate = Storage(self.spark, f"{self.folder}/gate")
        gate.take()
        self.output = Storage(self.spark, f"{self.folder}/out", guard=gate)
        direct = DirectWay(f"{self.folder}/out") if self.collects else None
        self.sinks = [
            sink(self.spark, self.output.root, direct=direct)
            for sink in (DeltaChangelogSink, DeltaMirrorSink)
        ]
        for sink in self.sinks:
            sink.open(query_id="bench", release_max=-1)
        self.segments = SegmentFiles(self.spark, gate.path("segments"))

    def write(self, number: int, rows: list[Any], topics: Any, *, is_measured: bool) -> None:
        """Write one release."""
        bounds = ReleaseBounds(number, *_bounds(number), (), is_small=self.collects)
        frame = self.spark.createDataFrame(rows, GATE_SCHEMA)
        steps: dict[str, float] = {}
        began, cpu = time.perf_counter(), _cpu_seconds()
        with closing(
            SparkRows(
                frame, segments=self.segments, progress=None, late=None, collects=self.collects
            )
        ) as of_batch:
            after_us, through_us = _bounds(number)
            last, name = time.perf_counter(), "count"
            of_batch.count_changes(after_us=after_us, through_us=through_us)
            last, name = _noted(steps, name, last), "release"
            with of_batch.release(bounds, reads=(), plan=PLAN, topics=topics) as (release, _):
                for step in write_release(release, sinks=self.sinks, output=self.output):
                    last, name = _noted(steps, name, last), step
            _noted(steps, name, last)
        if is_measured:
            self.seconds.append(time.perf_counter() - began)
            self.cpu_seconds.append(_cpu_seconds() - cpu)
            for step, seconds in steps.items():
                self.steps.setdefault(step, []).append(seconds)

    def figures(self) -> dict[str, Any]:
        """Return medians."""
        return {
            "way": self.name,
            "seconds": round(statistics.median(self.seconds), 3),
            "cpu_seconds": round(statistics.median(self.cpu_seconds), 3),
            "steps": {n: round(statistics.median(s), 3) for n, s in self.steps.items()},
        }


def main(arguments: list[str]) -> None:
    """Measure both ways and print a table, or JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consumer", description=__doc__)
    parser.add_argument("--changes", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one JSON document at the end")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        spark = new_session(folder)
        try:
            ways = [
                Way("delta-rs", spark, f"{folder}/direct", collects=True),
                Way("Spark", spark, f"{folder}/spark", collects=False),
            ]
            _measure(ways, options)
        finally:
            spark.stop()
    found = [way.figures() for way in ways]
    if options.json:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        print(json.dumps({"machine": machine, "changes": options.changes, "measured": found}))
        return
    print("| way | s | CPU s | steps, s |\n| --- | --- | --- | --- |")
    for one in found:
        steps = ", ".join(f"{name} {seconds}" for name, seconds in one["steps"].items())
        print(f"| {one['way']} | {one['seconds']} | {one['cpu_seconds']} | {steps} |")


def _measure(ways: list[Way], options: Any) -> None:
    topics = topics_of()
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    for number in range(WARM_UP + options.rounds):
        rows = _rows(topics, number, options.changes)
        for way in ways:
            way.write(number, rows, known, is_measured=number >= WARM_UP)


def _rows(topics: list[Any], number: int, changes: int) -> list[tuple[Any, ...]]:
    after_us, _ = _bounds(number)
    rows = []
    for n in range(changes):
        topic = topics[n % 2]
        # Of each table's changes, every third one is an UPDATE of the table's first row.
        if n % 6 > 3:
            key, mod, new = {"id": number * changes + n % 2}, "UPDATE", {"amount": n}
        else:
            key, mod, new = {"id": number * changes + n}, "INSERT", {"name": "n", "amount": n}
        change = Change(mod, key, new, us=after_us + n + 1)
        row = topic.row(change, ordinal=n)
        rows.append((False, *row[:8]))
    return rows


def _bounds(number: int) -> tuple[int, int]:
    return number * 1_000_000, (number + 1) * 1_000_000


def _noted(steps: dict[str, float], name: str, since: float) -> float:
    now = time.perf_counter()
    steps[name] = now - since
    return now


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


if __name__ == "__main__":
    main(sys.argv[1:])

"""What a small batch costs, written by delta-rs and by Spark, in turns.

A warm session on this machine; two tables have changes, each with changelog and mirror, and some
more tables are idle.  A round is a whole batch without its reading of Kafka: a heartbeat and
changes of which the last tenth waits for the next batch, as in a steady stream.  Beside them,
changes of a later time may wait, as they do while one stream partition is behind the others.
"""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psutil
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from benchmarks.consumer.feed import Feed, Record
from benchmarks.consumer.gate import Gate, compilations, delta, jobs_of, new_session
from tests.spark.gate_rows import GATE_SCHEMA
from tidegate.schemas.order_key import TIMESTAMP_BYTES
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import DataFrame, SparkSession

_WARM_UP = 4
_TABLES_WITH_NEWS = 2
_LATER_US = 1_000_000_000_000
_WAITING_PER_BATCH = 250_000


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each way, and for each number of idle tables and of waiting changes."""
    spark = new_session(folder)
    try:
        ways = [
            _Way("delta-rs", spark, f"{folder}/none"),
            _Way("Spark", spark, f"{folder}/spark"),
            _Way("delta-rs", spark, f"{folder}/idle", idle=options.idle_tables),
            *(
                _Way("delta-rs", spark, f"{folder}/{waiting}", waiting=waiting)
                for waiting in options.waiting
            ),
        ]
        for number in range(_WARM_UP + options.rounds):
            for way in ways:
                way.run(number, options.changes, is_measured=number >= _WARM_UP)
        return [way.figures() for way in ways]
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Way:
    name: str
    spark: SparkSession
    folder: str
    idle: int = 0
    waiting: int = 0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    jobs: list[int] = field(default_factory=list)
    compiled: list[int] = field(default_factory=list)
    steps: dict[str, list[float]] = field(default_factory=dict)

    @property
    def collects(self) -> bool:
        """Whether a small batch is collected, and written without Spark."""
        return self.name == "delta-rs"

    def __post_init__(self) -> None:
        self.feed = Feed("small", tables=_TABLES_WITH_NEWS + self.idle, topic_partitions=2)
        sinks = (delta(DeltaChangelogSink), delta(DeltaMirrorSink))
        self.gate = Gate(self.spark, self.folder, self.feed, sinks=sinks, collects=self.collects)
        self.rows: list[Record] = list(self.feed.opening())
        self.ends: dict[int, Any] = {}
        self.batch = self.gate.batch(lambda number: self.ends[number])
        self.us = self.number = 0
        for done in range(0, self.waiting, _WAITING_PER_BATCH):
            self._batch(_later(self, done, min(_WAITING_PER_BATCH, self.waiting - done)))

    def run(self, number: int, changes: int, *, is_measured: bool) -> None:
        """Run one batch; in the first one every table has changes."""
        tables = _TABLES_WITH_NEWS if number else len(self.feed.topics)
        for place in range(changes):
            self.us += 1
            self.rows.append(self.feed.change(self.us, table=place % tables))
        self.rows.append(self.feed.beat(self.us - changes // 10))
        frame = self.spark.createDataFrame([one.row for one in self.rows], GATE_SCHEMA)
        self.rows = []
        group = f"{self.name}-{self.idle}-{self.waiting}-{number}"
        self.spark.sparkContext.setJobGroup(group, group)
        self.gate.steps.seconds.clear()
        compiled, cpu, began = compilations(self.spark), _cpu_seconds(), time.perf_counter()
        self._batch(frame)
        if is_measured:
            self.seconds.append(time.perf_counter() - began)
            self.cpu_seconds.append(_cpu_seconds() - cpu)
            self.compiled.append(compilations(self.spark) - compiled)
            self.jobs.append(jobs_of(self.spark, group))
            for step, seconds in self.gate.steps.seconds.items():
                self.steps.setdefault(step, []).append(seconds)

    def _batch(self, frame: DataFrame) -> None:
        self.ends[self.number] = {topic: dict(of) for topic, of in self.feed.ends.items()}
        self.batch(frame, self.number)
        self.number += 1

    def figures(self) -> dict[str, Any]:
        """Return medians; of jobs and compilations the most."""
        return {
            "way": self.name,
            "idle_tables": self.idle,
            "waiting": self.waiting,
            "seconds": round(statistics.median(self.seconds), 3),
            "cpu_seconds": round(statistics.median(self.cpu_seconds), 3),
            "jobs_most": max(self.jobs),
            "compilations_most": max(self.compiled),
            "steps": {name: round(statistics.median(s), 3) for name, s in self.steps.items()},
        }


def _later(way: _Way, done: int, count: int) -> DataFrame:
    """Return changes that no watermark of the rounds reaches, made by Spark of one change."""
    one = way.feed.change(_LATER_US)
    sample = way.spark.createDataFrame([one.row], GATE_SCHEMA)
    us = F.col("id") + F.lit(_LATER_US + done)
    tail = F.substring("order_key", TIMESTAMP_BYTES + 1, len(one.row[6]) - TIMESTAMP_BYTES)
    key = F.concat(F.unhex(F.lpad(F.hex(us), 2 * TIMESTAMP_BYTES, "0")), tail)
    rows = way.spark.range(count).crossJoin(sample)
    return rows.withColumns({"order_key": key, "offset": us}).select(*sample.columns)


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)

"""The release alone that a backfill is: rows of one batch in place of Kafka and of segments.

Far cheaper than `backfill`, for one step at a time.  Each choice of sinks has a process of its own,
with the memory that Spark has by default.  The sink `reader` reads a release in the driver, one
change after the other, as `topic` and `datastream_files` do, and keeps nothing.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.consumer.feed import Feed
from benchmarks.consumer.gate import Gate, delta
from benchmarks.consumer.sinks import GATE_COLUMNS
from tests.spark.gate_rows import GATE_SCHEMA
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.history_sink import DeltaHistorySink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.parquet import ParquetSink
from tidegate.spark_consumer.sinks.parquet_transactions import ParquetTransactionsSink
from tidegate.spark_consumer.spark.session import local_session

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Mapping

    from benchmarks.consumer.feed import Record
    from tidegate.spark_consumer.sinks.port import Release, TableVersion

__all__ = ["SINKS", "measure"]

_ROWS_AT_ONCE = 20_000
_T_US = 1_000_000


class _Reader:
    """A sink that reads the records of a release."""

    name = "reader"

    def open(self, *, query_id: str, release_max: int) -> None:
        """Do nothing."""

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Read each record."""
        found = sum(1 for _ in release.source_records())
        if found != release.rows:
            raise RuntimeError(f"{found} records of {release.rows}")
        return {}


SINKS: dict[str, Callable[[Gate], Any]] = {
    "reader": lambda _gate: _Reader(),
    "changelog": delta(DeltaChangelogSink),
    "mirror": delta(DeltaMirrorSink),
    "history": delta(DeltaHistorySink),
    "parquet": lambda gate: ParquetSink(gate.spark, gate.output, is_direct=False),
    "parquet_transactions": lambda gate: ParquetTransactionsSink(gate.output),
}


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each number of rows and choice of sinks."""
    found = []
    for rows in options.rows:
        _write_rows(rows, _rows_file(folder, rows))
        for turn, sinks in enumerate(options.sinks):
            place = f"{folder}/{rows}-{turn}"
            environment = {**os.environ, "SPARK_LOCAL_DIRS": f"{place}/local"}
            command = [sys.executable, "-m", __name__, str(rows), sinks, folder, place]
            run = subprocess.run(
                command, env=environment, check=False, text=True, stdout=subprocess.PIPE
            )
            line = run.stdout.splitlines()[-1] if run.stdout else "{}"
            found.append({"rows": rows, "sinks": sinks, "exit": run.returncode, **json.loads(line)})
    return found


def _rows_file(folder: str, rows: int) -> str:
    return f"{folder}/{rows}.parquet"


def _records(feed: Feed, rows: int) -> Iterator[Record]:
    yield from feed.opening()
    yield from feed.backfilled(rows, us=_T_US)
    yield feed.beat(2 * _T_US)


def _write_rows(rows: int, path: str) -> None:
    schema = pa.schema(list(GATE_COLUMNS.items()))
    records = _records(Feed("backfill"), rows)
    with pq.ParquetWriter(path, schema) as writer:
        while some := list(itertools.islice(records, _ROWS_AT_ONCE)):
            columns = zip(*(one.row for one in some), strict=True)
            arrays = [
                pa.array([bytes(v) if isinstance(v, bytearray) else v for v in column], field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_table(pa.table(arrays, schema=schema))


def _run(rows: int, sinks: str, folder: str, place: str) -> dict[str, Any]:
    """Release all rows in one batch; return what it took."""
    parts = fetched_jvm_parts()
    if parts is None:
        sys.exit("Spark's jars are not fetched: ./dev setup")
    jars = ",".join(str(jar) for jar in parts.spark_jars)
    spark = local_session(master="local[2]", packages="", jars=jars, app_name="one-release")
    jvm: Any = spark.sparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - pyspark has no way of its own
    feed, chosen = Feed("backfill"), sinks.split(",")
    for _ in _records(feed, rows):  # where its topics end
        pass
    gate = Gate(spark, place, feed, sinks=[SINKS[name] for name in chosen], collects=False)
    batch = gate.batch(lambda _: {topic: dict(of) for topic, of in feed.ends.items()})
    processes = {"java": psutil.Process(jvm.pid), "python": psutil.Process()}

    def cpu_seconds() -> float:
        times = [one.cpu_times() for one in processes.values()]
        return sum(one.user + one.system for one in times)

    began, cpu = time.monotonic(), cpu_seconds()
    batch(spark.read.schema(GATE_SCHEMA).parquet(_rows_file(folder, rows)), 0)
    return {
        "seconds": round(time.monotonic() - began),
        "cpu_seconds": round(cpu_seconds() - cpu),
        **{f"{name}_peak_mb": peak_mb(one.pid) for name, one in processes.items()},
        "steps": {name: round(seconds, 1) for name, seconds in gate.steps.seconds.items()},
        "tasks_of_stages": _tasks_of_stages(spark),
        "rows_of_files": _rows_of_files(place),
    }


def _tasks_of_stages(spark: Any) -> dict[int, int]:
    """Return how many stages had how many tasks, from the most tasks."""
    tracker = spark.sparkContext.statusTracker()
    jobs = filter(None, map(tracker.getJobInfo, tracker.getJobIdsForGroup(None)))
    stages = filter(None, map(tracker.getStageInfo, {one for job in jobs for one in job.stageIds}))
    tasks = Counter(stage.numTasks for stage in stages)
    return dict(sorted(tasks.items(), reverse=True))


def _rows_of_files(place: str) -> list[int]:
    """Return the rows of each file of the changelog, which a task has written; none without it."""
    logs = Path(place, "out", "changelog").glob("*/_delta_log")
    tables = [deltalake.DeltaTable(log.parent) for log in logs]
    return [
        rows
        for table in tables
        for rows in table.get_add_actions(flatten=True)["num_records"].to_pylist()
    ]


def peak_mb(pid: int) -> int:
    """Return the most memory that a process has had at any time, as Linux counts it."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) // 1024
    return 0


if __name__ == "__main__":
    _, _rows, *_rest = sys.argv
    print(json.dumps(_run(int(_rows), *_rest)), flush=True)

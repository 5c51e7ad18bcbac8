"""What a late start costs: the progress history of a stream, read, folded and stored.

    python -m benchmarks.consumer.history [--days 10] [--slots 16] [--tables 50] [--heap 512m]

Each slot has a heartbeat per minute whose vector names every topic partition; each minute a part of
them has moved.  None is reached, as in the first batch of a start over old data.  The rows come
from a Parquet file, so reading Kafka is left out.  Spark refuses a heap below 450 MiB, of which it
reserves 300 for itself.  Measured are: the first batch's progress, up to the stored frontier; what
the next batch writes, which reads one heartbeat of each slot; and loading the frontier again.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from tests.spark.gate_rows import GATE_SCHEMA
from tidegate.lineage.frontier import Frontier
from tidegate.lineage.subscription import Subscription
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    ProgressRecord,
    SlotWatermark,
    SlowestToken,
    StreamStarted,
    TopicOffset,
)
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.batch.progress_rows import ProgressReader
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.files import frontier_file, frontier_name
from tidegate.spark_consumer.core.frontier_log import FrontierLog
from tidegate.spark_consumer.core.gate import Gate, Limits

SUBSCRIPTION = Subscription(TopicNames("bench"))
PROGRESS = "bench-progress"
SCHEMA_ID = 1
_MINUTES_PER_FILE = 100
_COLUMNS = pa.schema(
    [
        ("is_progress", pa.bool_()), ("topic", pa.string()), ("topic_partition", pa.int32()),
        ("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary()),
        ("order_key", pa.binary()), ("mod", pa.string()), ("origin", pa.int64()),
    ]
)  # fmt: skip


class History:
    """The records of a progress topic."""

    def __init__(self, options: Any) -> None:
        self.slots, self.minutes = options.slots, options.days * 1_440
        self.topics = [f"bench.table_{n:03d}" for n in range(options.tables)]
        self.places = [(t, p) for t in self.topics for p in range(options.topic_partitions)]
        self.ends = dict.fromkeys(range(self.slots), 0)

    def opening(self) -> list[tuple[Any, ...]]:
        """Return the stream's start and a stream partition for each slot."""
        kids = tuple(ChildPartition(f"t{slot}", ("",), 0) for slot in range(self.slots))
        topics = tuple(DataTopic(topic, f"id-{topic}", 3, 7) for topic in self.topics)
        started = StreamStarted("s", "g", 0, None, "f", self.slots, "id", topics, kids)
        rows = [self._row(0, started)]
        return rows + [self._row(n, PartitionAnnounced(kid, "")) for n, kid in enumerate(kids)]

    def minute(self, minute: int) -> list[tuple[Any, ...]]:
        """Return a heartbeat of each slot; a fifth of the topic partitions has moved."""
        vector = tuple(
            TopicOffset(topic, number, 1_000 * (minute - (minute + n) % 5 + 5))
            for n, (topic, number) in enumerate(self.places)
        )
        return [
            self._row(
                slot,
                SlotWatermark(
                    slot, minute + 1, minute, slot == 0, vector,
                    SlowestToken(f"t{slot}", minute * 60_000_000), 1,
                ),
            )
            for slot in range(self.slots)
        ]  # fmt: skip

    def _row(self, slot: int, body: Any) -> tuple[Any, ...]:
        value = frame(SCHEMA_ID, encode_record(ProgressRecord("e", "w", body)) or b"")
        offset, self.ends[slot] = self.ends[slot], self.ends[slot] + 2
        key = frame(SCHEMA_ID, encode_key(body))
        return (True, PROGRESS, slot, offset, key, value, None, None, None)

    def write(self, folder: str) -> int:
        """Write the rows as Parquet files; return their bytes of keys and values."""
        rows, size = self.opening(), 0
        for minute in range(self.minutes):
            rows += self.minute(minute)
            if minute % _MINUTES_PER_FILE == _MINUTES_PER_FILE - 1 or minute == self.minutes - 1:
                by_column = zip(*rows, strict=True)
                columns = [
                    pa.array(values, of.type)
                    for values, of in zip(by_column, _COLUMNS, strict=True)
                ]
                table = pa.Table.from_arrays(columns, schema=_COLUMNS)
                pq.write_table(table, f"{folder}/{minute:06d}.parquet", compression="snappy")
                size += sum(len(row[4]) + len(row[5]) for row in rows)
                rows = []
        return size


class Reader:
    """The gate's progress, batch by batch."""

    def __init__(self, spark: Any, folder: str) -> None:
        self.storage = Storage(spark, f"{folder}/gate")
        self.writer = self.storage.take()
        self.files = GateFiles(self.storage)
        self.log = FrontierLog(Frontier(SUBSCRIPTION))
        self.progress = ProgressReader(lambda _: copy.deepcopy(RECORD_SCHEMA))
        self.snapshots = 0

    def read(self, batch: int, rows: Any, history: History, *, offsets: int) -> dict[str, Any]:
        """Fold a batch's rows and store the frontier."""
        began, cpu = time.perf_counter(), _cpu_seconds()
        state = State(prefix="bench", query_id="q")
        gate = Gate(state, self.log.frontier, limits=Limits(), code="1")
        ends = {PROGRESS: dict(history.ends)}
        for portion in self.progress.read(rows, offsets=offsets):
            gate.take(portion, end_offsets=ends)
            self.snapshots += len(portion)
        gate.close()
        folded = time.perf_counter()
        name = frontier_name(batch, writer=self.writer)
        stored = self.log.write(name, code="1")
        self.files.store_frontier(name, self.log, stored)
        sizes = [len(json.dumps(content)) for _, content in stored.files]
        return {
            "batch": batch,
            "seconds": round(time.perf_counter() - began, 1),
            "CPU seconds": round(_cpu_seconds() - cpu, 1),
            "of the seconds, storing": round(time.perf_counter() - folded, 2),
            "records brought to the driver": self.snapshots,
            "snapshots waiting": self.log.frontier.snapshots_waiting,
            "files": len(sizes),
            "largest file, kB": round(max(sizes) / 1_000),
            "all files, kB": round(sum(sizes) / 1_000),
        }

    def load(self, batch: int) -> dict[str, Any]:
        """Load what was stored, as a restart does."""
        began = time.perf_counter()
        name = frontier_name(batch, writer=self.writer)
        index = self.storage.read_json(frontier_file(name)) or {}
        found = FrontierLog.restore(name, index, self.storage.read_json, SUBSCRIPTION)
        waiting = None if found is None else found.frontier.snapshots_waiting
        return {"load seconds": round(time.perf_counter() - began, 2), "waiting": waiting}


def main(arguments: list[str]) -> None:
    """Measure and print one JSON document per step."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.consumer.history")
    parser.add_argument("--days", type=int, default=10)
    parser.add_argument("--slots", type=int, default=16)
    parser.add_argument("--tables", type=int, default=50)
    parser.add_argument("--topic-partitions", type=int, default=3)
    parser.add_argument("--heap", default="512m")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        history = History(options)
        rows_folder = f"{folder}/rows"
        Path(rows_folder).mkdir()
        size = history.write(rows_folder)
        snapshots = history.slots * history.minutes
        print(json.dumps({"snapshots": snapshots, "MB": round(size / 1e6)}), flush=True)
        peak_mb = _peak_mb()
        spark = _session(folder, options.heap)
        try:
            reader = Reader(spark, folder)
            frame = spark.read.schema(GATE_SCHEMA).parquet(rows_folder)
            print(json.dumps(reader.read(0, frame, history, offsets=2 * snapshots)), flush=True)
            next_rows = spark.createDataFrame(history.minute(history.minutes), GATE_SCHEMA)
            print(json.dumps(reader.read(1, next_rows, history, offsets=100)), flush=True)
            print(json.dumps(reader.load(1)), flush=True)
            print(json.dumps({"Python MB, before and peak": [peak_mb, _peak_mb()]}))
        finally:
            spark.stop()


def _session(folder: str, heap: str) -> SparkSession:
    parts = fetched_jvm_parts()
    if parts is None:
        sys.exit("Spark's jars are not fetched: ./dev setup")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.memory": heap,
        "spark.jars": ",".join(str(jar) for jar in parts.spark_jars),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("history")
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _cpu_seconds() -> float:
    own = psutil.Process()
    times = [one.cpu_times() for one in (own, *own.children(recursive=True))]
    return sum(one.user + one.system for one in times)


def _peak_mb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1_024


if __name__ == "__main__":
    main(sys.argv[1:])

"""Latency in a steady stream: from a change's commit to the Delta commits that hold it.

A thread publishes changes at an even rate, each with the time of that moment as its commit time,
and a heartbeat every tenth of a second, as a fleet does.  The gate reads them from a real broker
and writes changelog and mirror.  Times of Delta commits are those of the files of the tables' logs.
The fleet's own part, from Spanner to Kafka, is measured in `benchmarks.producer`.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

from benchmarks.consumer.feed import Feed, KafkaFeed
from benchmarks.consumer.gate import Gate, delta, new_session
from benchmarks.consumer.large import broker
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from pyspark.sql import SparkSession

_TICK_S = 0.01
_TICKS_PER_BEAT = 10
_TABLES = 2
_MIRROR_EVERY_US = 10_000_000


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each rate."""
    with broker(folder) as bootstrap_servers:
        spark = new_session(folder)
        try:
            return [_at(spark, folder, bootstrap_servers, rate, options) for rate in options.rates]
        finally:
            spark.stop()


def _at(
    spark: SparkSession,
    folder: str,
    bootstrap_servers: str,
    rate: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    feed = Feed(f"steady{rate}", tables=_TABLES, topic_partitions=2)
    kafka = KafkaFeed(bootstrap_servers, feed)
    for record in feed.opening():
        kafka.send(record)
    kafka.flush()
    place = f"{folder}/{feed.prefix}"
    limits = Limits(
        small_release_rows_max=10_000,
        small_release_bytes_max=16 * 1024**2,
        cadence=Cadence(every_us=_MIRROR_EVERY_US),
    )
    gate = Gate(
        spark, place, feed, sinks=(delta(DeltaChangelogSink), delta(DeltaMirrorSink)), limits=limits
    )
    has_ended = threading.Event()
    publishing = threading.Thread(target=_publish, args=(kafka, rate, has_ended))
    query = gate.start(bootstrap_servers, changes_per_batch_max=250_000)
    publishing.start()
    try:
        time.sleep(options.warm_up)
        begun_us = time.time_ns() // 1000
        time.sleep(options.seconds)
        ended_us = time.time_ns() // 1000
        # What was committed last is still on its way.
        time.sleep(options.warm_up)
        if query.exception() is not None:
            raise RuntimeError(query.exception())
    finally:
        query.stop()
        has_ended.set()
        publishing.join()
    found: dict[str, Any] = {"changes_per_second": rate, "seconds": options.seconds}
    for sink in ("changelog", "mirror"):
        found[sink] = _percentiles(
            latency
            for table in feed.topics
            for latency in _latencies(place, sink, table.table, begun_us, ended_us)
        )
    return found


def _publish(kafka: KafkaFeed, rate: int, has_ended: threading.Event) -> None:
    feed, sent, tick = kafka.feed, 0, 0
    begun, us = time.monotonic(), 0
    while not has_ended.is_set():
        tick += 1
        due = int((time.monotonic() - begun) * rate)
        for _ in range(due - sent):
            # Commit times of one stream partition are unique here: a microsecond apart at least.
            us = max(us + 1, time.time_ns() // 1000)
            kafka.send(feed.change(us))
        sent = due
        if tick % _TICKS_PER_BEAT == 0:
            us = max(us + 1, time.time_ns() // 1000)
            kafka.send(feed.beat(us))
        has_ended.wait(max(0.0, begun + tick * _TICK_S - time.monotonic()))
    kafka.flush()


def _latencies(place: str, sink: str, table: str, begun_us: int, ended_us: int) -> Iterator[float]:
    """Yield the seconds of each change that was committed in the time measured."""
    commits = _commits(Path(place) / "out" / sink / table / "_delta_log")
    releases = [release for release, _ in commits]
    changes = DeltaTable(f"{place}/out/changelog/{table}").to_pyarrow_table(
        columns=["commit_timestamp", "release"]
    )
    times = changes["commit_timestamp"].cast("int64").to_pylist()
    for us, release in zip(times, changes["release"].to_pylist(), strict=True):
        if begun_us <= us < ended_us:
            # A mirror's commit may hold several releases.
            place_of_commit = bisect_left(releases, release)
            if place_of_commit == len(commits):
                raise RuntimeError(f"{sink}/{table} has not reached release {release}")
            yield commits[place_of_commit][1] / 1e9 - us / 1e6


def _commits(log: Path) -> list[tuple[int, int]]:
    """Return release and time (nanoseconds) of each commit of a table that holds one, in order."""
    found = []
    for file in sorted(log.glob("*.json")):
        for line in file.read_text().splitlines():
            info = json.loads(line).get("commitInfo")
            if info is None:
                continue
            ours = json.loads(info.get("userMetadata") or "{}").get("tidegate", {})
            if "through_us" in ours:
                found.append((ours["release"], file.stat().st_mtime_ns))
    return found


def _percentiles(latencies: Iterator[float]) -> dict[str, float]:
    ordered: Sequence[float] = sorted(latencies)
    places = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    seconds = {name: round(ordered[int(share * len(ordered))], 2) for name, share in places.items()}
    return seconds | {"most": round(ordered[-1], 2), "changes": len(ordered)}

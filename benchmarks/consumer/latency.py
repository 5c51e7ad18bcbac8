"""Latency of a steady stream: from a change's commit to the manifest of its release.

A thread publishes changes to a real broker at a fixed rate, with a heartbeat ten times a second;
the gate writes the changelog.  A change counts as readable when its release's manifest is there.
"""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_left
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.consumer.feed import Feed, KafkaFeed
from benchmarks.consumer.gate import Gate, new_session
from benchmarks.consumer.large import broker

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession

_BEATS_A_SECOND = 10
_WARM_UP_S = 30
_DRAIN_S = 10
_CHANGES_PER_BATCH_MAX = 250_000


def measure(options: argparse.Namespace, folder: str) -> list[dict[str, Any]]:
    """Return a line for each rate."""
    with broker(folder) as bootstrap_servers:
        spark = new_session(folder)
        try:
            return [
                _measured(spark, folder, bootstrap_servers, rate, options) for rate in options.rates
            ]
        finally:
            spark.stop()


def _measured(
    spark: SparkSession,
    folder: str,
    bootstrap_servers: str,
    rate: int,
    options: argparse.Namespace,
) -> dict[str, Any]:
    kafka = KafkaFeed(bootstrap_servers, Feed(f"steady{rate}", tables=2, topic_partitions=3))
    for record in kafka.feed.opening():
        kafka.send(record)
    kafka.flush()
    place = f"{folder}/{kafka.feed.prefix}"
    gate = Gate(spark, place, kafka.feed)
    query = gate.start(bootstrap_servers, changes_per_batch_max=_CHANGES_PER_BATCH_MAX)
    seconds = _WARM_UP_S + options.seconds
    committed_us: list[int] = []
    feeding = threading.Thread(target=_feed, args=(kafka, rate, seconds, committed_us))
    feeding.start()
    try:
        feeding.join()
        time.sleep(_DRAIN_S)
        if query.exception() is not None:
            raise RuntimeError(query.exception())
        batches = [one for one in query.recentProgress if one["numInputRows"]]
    finally:
        query.stop()
    begin_us = committed_us[0] + _WARM_UP_S * 1_000_000
    latencies = sorted(_latencies(Path(place) / "out" / "_releases", committed_us, begin_us))
    durations = sorted(one["durationMs"]["triggerExecution"] for one in batches)
    return {
        "changes_per_second": rate,
        "changes": len(latencies),
        "p50_s": round(_share(latencies, 0.5), 2),
        "p95_s": round(_share(latencies, 0.95), 2),
        "most_s": round(latencies[-1], 2),
        "batch_p50_s": round(_share(durations, 0.5) / 1000, 2),
    }


def _feed(kafka: KafkaFeed, rate: int, seconds: int, committed_us: list[int]) -> None:
    """Publish for some seconds; a change's commit timestamp is when it was published."""
    begin = time.time()
    every = rate // _BEATS_A_SECOND
    for beat in range(seconds * _BEATS_A_SECOND):
        time.sleep(max(0.0, begin + (beat + 1) / _BEATS_A_SECOND - time.time()))
        now_us = int(time.time() * 1_000_000)
        for number in range(every):
            us = now_us - every + number
            kafka.send(kafka.feed.change(us))
            committed_us.append(us)
        kafka.flush()
        kafka.send(kafka.feed.beat(now_us))
        kafka.flush()


def _latencies(releases: Path, committed_us: list[int], begin_us: int) -> list[float]:
    """Return for each change how long its release's manifest came after its commit."""
    found = []
    for file in releases.glob("*.json"):
        manifest = json.loads(file.read_text())
        low = bisect_left(committed_us, manifest["after_us"] + 1)
        high = bisect_left(committed_us, manifest["through_us"] + 1)
        written_us = file.stat().st_mtime * 1_000_000
        found += [(written_us - us) / 1_000_000 for us in committed_us[low:high] if us >= begin_us]
    return found


def _share(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]

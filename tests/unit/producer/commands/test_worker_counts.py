"""A worker is asked over its metrics; one that does not answer spoils nothing."""

from __future__ import annotations

import math
import socket

import pytest

from tidegate.producer.commands.worker_counts import WorkerCounts, ask_worker
from tidegate.producer.metrics import producer_metrics
from tidegate.producer.retried_faults import ERRORS_PATH, RetriedFaults
from tidegate.program.health import Health
from tidegate.program.metrics import Metric, Metrics
from tidegate.program.status_server import StatusServer

SHOWN = {
    "queries_running": 3,
    "stream_partitions_queued": 2,
    "stream_partitions_paused": 1,
    "stream_partitions_held": 5,
    "stream_partitions_stopped": 4,
    "retention_headroom_seconds": 7.5,
}


def test_the_gauges_of_a_worker_are_read():
    metrics = producer_metrics()
    for name, value in SHOWN.items():
        metrics.set(name, value)
    metrics.add("records_total", 7, topic="t")
    with StatusServer("127.0.0.1", 0, registry=metrics.registry, health=Health()) as server:
        address = f"127.0.0.1:{server.port}"
        assert ask_worker(address) == WorkerCounts(address, 3, 2, 1, 5, 4, 7.5)


@pytest.mark.rule("datastream-retried-errors")
def test_what_a_worker_retries_is_read_beside_them():
    metrics, faults = producer_metrics(), RetriedFaults(entries_max=1)
    for subject in ("t", "u"):
        faults.note("QueryInterrupted", subject, text="away", remedy="Wait", at_us=7)
    pages = {ERRORS_PATH: faults.as_json}
    with StatusServer(
        "127.0.0.1", 0, registry=metrics.registry, health=Health(), pages=pages
    ) as server:
        found = ask_worker(f"127.0.0.1:{server.port}")
    assert (found.retried, found.retried_dropped) == (faults.listed(), 1)


def test_where_nothing_expires_no_time_is_left():
    metrics = producer_metrics()
    metrics.set("retention_headroom_seconds", math.inf)
    with StatusServer("127.0.0.1", 0, registry=metrics.registry, health=Health()) as server:
        assert ask_worker(f"127.0.0.1:{server.port}").retention_headroom_s is None


def test_another_program_is_no_worker():
    metrics = Metrics("other", (Metric("queries_running", "gauge", "no"),))
    with StatusServer("127.0.0.1", 0, registry=metrics.registry, health=Health()) as server:
        found = ask_worker(f"127.0.0.1:{server.port}")
    assert found.running is None
    assert "not the metrics of a tidegate-producer" in found.error


def test_what_does_not_answer_says_why():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    found = ask_worker(f"127.0.0.1:{port}")

    assert found.queued is None
    assert "refused" in found.error


@pytest.mark.parametrize("address", ["a host", "127.0.0.1:no-port", "no-such-host.invalid:1"])
def test_an_address_that_cannot_work_is_reported(address):
    assert ask_worker(address).error

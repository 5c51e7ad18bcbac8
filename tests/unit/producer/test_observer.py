"""Metrics follow the core; a test reads them as Prometheus would."""

from __future__ import annotations

import math
import time
from collections import deque
from types import SimpleNamespace

import pytest

from tidegate.producer.core.counters import Counters
from tidegate.producer.core.events import (
    DrainRequested,
    QueryFailed,
    RecordsRead,
    RootSlotRead,
    SlotsAssigned,
    SlotsLost,
    Ticked,
)
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.datastream_source.file_figures import FileFigures, Progress
from tidegate.producer.errors import PositionExpired, QueryInterrupted, TokenRefused
from tidegate.producer.metrics import producer_metrics
from tidegate.producer.observer import Observer
from tidegate.producer.records import HeartbeatRecord
from tidegate.producer.retried_faults import RetriedFaults
from tidegate.program.health import Health
from tidegate.schemas.progress import TopicTotals

DAY_US = 86_400_000_000
COUNTED = tuple(Counters().counts)


def slot(*parked_keys):
    """Return a slot whose stream partitions park these keys."""
    return SimpleNamespace(
        tokens={
            f"t{number}": SimpleNamespace(published_parked=SimpleNamespace(keys=frozenset(keys)))
            for number, keys in enumerate(parked_keys)
        }
    )


def core(
    *, counts=None, published=None, watermark_us=None, stopped=None, states=None, parked=None,
    slots=None, is_paused=False, is_draining=False, noticed=(),
):  # fmt: skip
    """Return what the observer looks at."""
    counted = counts or dict.fromkeys(COUNTED, 0)
    counters = SimpleNamespace(
        counts=counted, published=published or {}, parked=parked or {}, noticed=deque(noticed)
    )
    return SimpleNamespace(
        counters=counters,
        slots=slots or {},
        states=states or {},
        watermark_us=watermark_us,
        stopped=stopped or {},
        is_paused=is_paused,
        is_draining=is_draining,
    )


def test_counts_and_gauges():
    metrics = producer_metrics()
    observer = Observer(metrics, bytes_in_flight=lambda: 42, health=Health(), retention_us=DAY_US)
    totals = TopicTotals("bank.accounts", 2, 3, 400, 0)
    worker = core(
        counts={
            **dict.fromkeys(COUNTED, 0),
            "committed": 5,
            "unproven_finish": 3,
            "turn_ended": 6,
            "paused": 8,
        },
        published={"bank.accounts": totals},
        watermark_us=0,
        is_paused=True,
        states={
            PartitionState.CREATED: 1,
            PartitionState.RUNNING: 2,
            PartitionState.QUEUED: 4,
            PartitionState.PAUSED: 5,
            PartitionState.HELD: 3,
        },
    )
    observer(RecordsRead("t", 1, [HeartbeatRecord(1), HeartbeatRecord(2)], 9), worker)
    observer(QueryFailed("t", 1, QueryInterrupted("x", code="UNAVAILABLE")), worker)
    observer(Ticked(), worker)

    def value(name, **labels):
        return metrics.registry.get_sample_value(name, labels)

    assert value("tidegate_producer_heartbeats_total") == 2
    assert value("tidegate_producer_query_retries_total", code="UNAVAILABLE") == 1
    assert value("tidegate_producer_transactions_committed_total") == 5
    assert value("tidegate_producer_unproven_finishes_total") == 3
    assert value("tidegate_producer_query_turns_total") == 6
    assert value("tidegate_producer_mods_total", topic="bank.accounts") == 3
    assert value("tidegate_producer_value_bytes_total", topic="bank.accounts") == 400
    assert value("tidegate_producer_bytes_in_flight") == 42
    assert value("tidegate_producer_tokens") == 15
    assert value("tidegate_producer_stream_partitions_paused") == 5
    assert value("tidegate_producer_stream_partitions_held") == 3
    assert value("tidegate_producer_stream_partition_pauses_total") == 8
    assert value("tidegate_producer_stream_partitions_queued") == 4
    assert value("tidegate_producer_queries_running") == 2
    assert value("tidegate_producer_stream_paused") == 1
    assert value("tidegate_producer_watermark_lag_seconds") > 1_000_000


def test_the_headroom_is_what_retention_leaves_of_the_lag():
    metrics = producer_metrics()
    observer = Observer(metrics, bytes_in_flight=lambda: 0, health=Health(), retention_us=DAY_US)

    def value(name):
        return metrics.registry.get_sample_value(f"tidegate_producer_{name}_seconds")

    observer._set_gauges(core())
    assert value("retention_headroom") == 86_400
    observer._set_gauges(core(watermark_us=0))
    assert value("retention_headroom") == pytest.approx(86_400 - value("watermark_lag"))


def test_only_increases_are_counted():
    metrics = producer_metrics()
    observer = Observer(metrics, bytes_in_flight=lambda: 0, health=Health(), retention_us=DAY_US)
    worker = core(counts={**dict.fromkeys(COUNTED, 0), "committed": 5})
    observer._set_gauges(worker)
    observer._set_gauges(worker)

    name = "tidegate_producer_transactions_committed_total"
    assert metrics.registry.get_sample_value(name) == 5


def test_a_worker_is_ready_while_it_is_in_the_group():
    health = Health()
    observer = Observer(
        producer_metrics(), bytes_in_flight=lambda: 0, health=health, retention_us=DAY_US
    )
    observer(Ticked(), core())
    assert health.not_ready == "starting"
    observer(SlotsAssigned(()), core())
    assert health.not_ready == ""
    observer(SlotsLost((1,)), core())
    assert "rejoining" in health.not_ready
    observer(SlotsAssigned((1,)), core())
    observer(RootSlotRead((), is_at_end=True), core())
    assert health.not_ready == ""
    for event in (DrainRequested(), RootSlotRead((), is_at_end=True)):
        observer(event, core(is_draining=True))
        assert health.not_ready == "draining"
        health.set_ready()


def test_every_event_is_a_step():
    now = [0.0]
    health = Health(stalled_after_s=5, clock=lambda: now[0])
    observer = Observer(
        producer_metrics(), bytes_in_flight=lambda: 0, health=health, retention_us=DAY_US
    )
    now[0] = 6.0
    observer(Ticked(), core())
    assert health.fault == ""


def test_a_stopped_stream_partition_is_counted_and_shown_with_what_is_lost():
    metrics, health = producer_metrics(), Health()
    observer = Observer(metrics, bytes_in_flight=lambda: 0, health=health, retention_us=DAY_US)
    lost = PositionExpired("too old", lost_from="2026-01-01", lost_until="2026-01-02")
    shown = Health()
    with_details = Observer(
        producer_metrics(), bytes_in_flight=lambda: 0, health=shown, retention_us=DAY_US,
        shows_details=True,
    )  # fmt: skip
    for stopped in ({"t": lost}, {"t": lost}, {"t": lost, "u": TokenRefused("no")}):
        for one in (observer, with_details):
            one._set_gauges(core(stopped=stopped))

    def value(name, **labels):
        return metrics.registry.get_sample_value(name, labels)

    name = "tidegate_producer_stream_partition_stops_total"
    assert value(name, error="PositionExpired") == 1
    assert value(name, error="TokenRefused") == 1
    assert value("tidegate_producer_stream_partitions_stopped") == 2
    assert "t: too old (lost_from='2026-01-01'" in shown.warning
    # The port has no login, so it shows no keys and values of rows.
    assert health.warning == "2 stream partitions stopped: t: PositionExpired; u: TokenRefused"
    observer._set_gauges(core(is_paused=True))
    assert health.warning == "the stream is paused: see tidegate-producer resume"
    observer._set_gauges(core())
    assert health.warning == ""
    assert value("tidegate_producer_stream_partitions_stopped") == 0


def test_a_failure_that_is_not_retried_is_no_retry():
    metrics = producer_metrics()
    observer = Observer(metrics, bytes_in_flight=lambda: 0, health=Health(), retention_us=DAY_US)
    observer(QueryFailed("t", 1, TokenRefused("x", code="INVALID_ARGUMENT")), core())

    name, labels = "tidegate_producer_query_retries_total", {"code": "INVALID_ARGUMENT"}
    assert metrics.registry.get_sample_value(name, labels) is None


def test_the_status_says_what_waits_beside_what_stopped():
    health = Health()
    observer = Observer(
        producer_metrics(), bytes_in_flight=lambda: 0, health=health, retention_us=DAY_US
    )
    queued = {PartitionState.QUEUED: 12}
    observer._set_gauges(core(states=queued))
    assert health.warning == "12 stream partitions wait for a query"

    observer._set_gauges(core(states={PartitionState.PAUSED: 2}))
    assert health.warning == "2 stream partitions are paused until the slowest one comes closer"
    observer._set_gauges(core(states={PartitionState.HELD: 1}))
    assert health.warning == "1 stream partitions wait for others from which keys moved to them"
    observer._set_gauges(core(states=queued, stopped={"t": TokenRefused("no")}))
    assert health.warning == (
        "1 stream partitions stopped: t: TokenRefused; 12 stream partitions wait for a query"
    )
    observer._set_gauges(core())
    assert health.warning == ""


def test_parked_changes_are_counted_and_their_keys_shown():
    metrics, health = producer_metrics(), Health()
    observer = Observer(metrics, bytes_in_flight=lambda: 0, health=health, retention_us=DAY_US)
    cause = ("bank.accounts", "MessageTooLarge")
    slots = {0: slot((), (1, 2)), 1: slot((2, 3), ())}
    for parked in ({cause: 2}, {cause: 5, ("bank.accounts", "KeyParked"): 7}):
        observer._set_gauges(core(parked=parked, slots=slots))

    def value(name, **labels):
        return metrics.registry.get_sample_value(f"tidegate_producer_{name}", labels)

    labels = {"topic": "bank.accounts"}
    assert value("parked_total", **labels, reason="MessageTooLarge") == 5
    assert value("parked_total", **labels, reason="KeyParked") == 7
    assert value("parked_keys") == 3
    assert health.warning == "3 keys are parked: see docs/how-to/parked-changes.md"

    observer._set_gauges(core(slots={0: slot((), ())}))
    assert value("parked_keys") == 0
    assert health.warning == ""


def test_figures_of_files_are_counted_and_shown():
    metrics, figures = producer_metrics(), FileFigures()
    observe = Observer(
        metrics, bytes_in_flight=lambda: 0, health=Health(), retention_us=math.inf, files=figures
    )

    def value(name):
        return metrics.registry.get_sample_value(f"tidegate_producer_{name}")

    figures.add({"files": 2, "copies": 3, "late_events": 4, "events": 9})
    figures.report("q", Progress(5, time.time_ns() // 1_000 - 60_000_000))
    observe._set_gauges(core())
    figures.add({"files": 1, "late_files": 1, "refused": 2, "forgotten_uuids": 6})
    observe._set_gauges(core())
    assert value("files_read_total") == 3
    assert value("files_late_total") == 1
    assert value("file_events_copied_total") == 3
    assert value("file_events_late_total") == 4
    assert value("file_events_refused_total") == 2
    assert value("file_uuids_forgotten_total") == 6
    assert value("files_unread") == 5
    assert value("files_open_seconds") >= 60
    figures.forget("q")
    observe._set_gauges(core())
    assert (value("files_unread"), value("files_open_seconds")) == (0, 0)
    assert value("retention_headroom_seconds") == math.inf


def test_what_is_retried_is_listed_with_what_the_core_noticed():
    faults = RetriedFaults()
    observer = Observer(
        producer_metrics(), bytes_in_flight=lambda: 0, health=Health(), retention_us=DAY_US,
        faults=faults,
    )  # fmt: skip
    worker = core(noticed=[("stalled", "t"), ("stalled", "t")])
    error = QueryInterrupted("row 4711", code="UNAVAILABLE")
    observer(QueryFailed("t", 1, error), worker)
    assert "4711" not in faults.as_json()
    observer._set_gauges(worker)
    observer._set_gauges(worker)

    found = {(one.error, one.subject): one.count for one in faults.listed()}
    assert found == {("QueryInterrupted UNAVAILABLE", "t"): 1, ("silent query", "t"): 2}

"""Metrics follow the core; a test reads them as Prometheus would."""

import math
import time
import typing
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
from tidegate.producer.datastream.object_query import FileFigures
from tidegate.producer.datastream.object_reading import Progress
from tidegate.producer.errors import PositionExpired, QueryInterrupted, TokenRefused
from tidegate.producer.observation import lineage_notes
from tidegate.producer.observation.faults import RetriedFaults
from tidegate.producer.observation.lineage_notes import LineageNotes
from tidegate.producer.observation.metrics import (
    METRICS,
    CounterName,
    GaugeName,
    HistogramName,
    producer_metrics,
)
from tidegate.producer.observation.observer import Observer
from tidegate.producer.records import HeartbeatRecord
from tidegate.producer.translation.table_registrar import TableRegistrar
from tidegate.program.status_server import Health
from tidegate.schemas.progress import TopicTotals
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import Column, ColumnType, TableSchema
from tidegate.schemas.topics import TopicNames

DAY_US = 86_400_000_000
KINDS = {"counter": CounterName, "gauge": GaugeName, "histogram": HistogramName}
NOTHING_COUNTED = dict.fromkeys(Counters().counts, 0)


def slot(*parked_keys):
    """Return a slot whose stream partitions park these keys."""
    return SimpleNamespace(
        tokens={
            f"t{number}": SimpleNamespace(published_parked=SimpleNamespace(keys=frozenset(keys)))
            for number, keys in enumerate(parked_keys)
        }
    )


def core(*, counts=(), published=(), parked=(), noticed=(), first_commits_us=(), **changes):
    """Return what the observer looks at."""
    counters = SimpleNamespace(
        counts={**NOTHING_COUNTED, **dict(counts)}, published=dict(published), parked=dict(parked),
        noticed=deque(noticed), first_commits_us=deque(first_commits_us),
    )  # fmt: skip
    others = {
        "slots": {}, "states": {}, "watermark_us": None, "stopped": {}, "is_paused": False,
        "is_draining": False,
    }  # fmt: skip
    return SimpleNamespace(counters=counters, **{**others, **changes})


class Observed:
    """An observer with its metrics and health; `look` lets it see the core between events."""

    def __init__(self, *, retention_us=DAY_US, health=None, **options):
        self.metrics, self.health = producer_metrics(), health or Health()
        self.notify = Observer(
            self.metrics, bytes_in_flight=lambda: 42, health=self.health,
            retention_us=retention_us, **options,
        )  # fmt: skip

    def look(self, **changes):
        self.notify._set_gauges(core(**changes))

    def value(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"tidegate_producer_{name}", labels)


@pytest.fixture
def observed():
    return Observed()


def test_metrics_are_a_closed_set_with_bounded_labels():
    """There are as many values as topics, gRPC codes and classes of errors."""
    for kind, literal in KINDS.items():
        names = [metric.name for metric in METRICS if metric.kind == kind]
        assert sorted(names) == sorted(typing.get_args(literal))
    labels = {label for metric in METRICS for label in metric.labels}
    assert labels <= {"topic", "code", "error", "reason"}


def test_counts_and_gauges(observed):
    worker = core(
        counts={"committed": 5, "unproven_finish": 3, "turn_ended": 6, "paused": 8},
        published={"bank.accounts": TopicTotals("bank.accounts", 2, 3, 400, 0)},
        watermark_us=0, is_paused=True,
        states={
            PartitionState.CREATED: 1, PartitionState.RUNNING: 2, PartitionState.QUEUED: 4,
            PartitionState.PAUSED: 5, PartitionState.HELD: 3,
        },
    )  # fmt: skip
    observed.notify(RecordsRead("t", 1, [HeartbeatRecord(1), HeartbeatRecord(2)], 9), worker)
    for error in (
        QueryInterrupted("x", code="UNAVAILABLE"), TokenRefused("x", code="INVALID_ARGUMENT"),
    ):  # fmt: skip
        observed.notify(QueryFailed("t", 1, error), worker)
    for _ in range(2):  # only increases are counted
        observed.notify(Ticked(), worker)
    for name, expected in {
        "heartbeats_total": 2, "transactions_committed_total": 5, "unproven_finishes_total": 3,
        "query_turns_total": 6, "bytes_in_flight": 42, "stream_partitions": 15,
        "stream_partitions_paused": 5,
        "stream_partitions_held": 3, "stream_partition_pauses_total": 8,
        "stream_partitions_queued": 4, "queries_running": 2, "stream_paused": 1,
    }.items():  # fmt: skip
        assert observed.value(name) == expected, name
    assert observed.value("query_retries_total", code="UNAVAILABLE") == 1
    assert observed.value("query_retries_total", code="INVALID_ARGUMENT") is None
    assert observed.value("mods_total", topic="bank.accounts") == 3
    assert observed.value("value_bytes_total", topic="bank.accounts") == 400
    assert observed.value("watermark_lag_seconds") > 1_000_000


def test_each_committed_change_that_was_first_is_counted_once_by_its_age(observed):
    now_us = time.time_ns() // 1_000
    worker = core(first_commits_us=[now_us - 20_000_000, now_us - 90_000_000])
    for event in (SlotsAssigned((1,)), Ticked()):
        observed.notify(event, worker)
    within = [
        observed.value("commit_to_kafka_seconds_bucket", le=edge)
        for edge in ("10.0", "30.0", "60.0", "120.0")
    ]
    assert within == [0, 1, 1, 2]
    assert not worker.counters.first_commits_us


class Followed:
    """Keeps what is reported of runs."""

    def __init__(self):
        self.calls = []

    def follow(self, **call):
        self.calls.append(call)


def test_lineage_names_tables_and_topics_and_counts_what_is_new(monkeypatch):
    tables = [
        TableSchema(name, (Column("id", ColumnType("INT64"), 1, 1), *more))
        for name, *more in (["a"], ["s.b", Column("t", ColumnType("STRING"), 2)])
    ]
    registrar = TableRegistrar(TopicNames("bank"), InMemorySchemaRegistry())
    encodings, followed = [registrar.register(tables[0])], Followed()
    notes = LineageNotes(
        followed, encodings=lambda: tuple(encodings), kafka="kafka://b:1",
        source_of=lambda table: ("spanner://p:i", f"d.{table}"),
    )  # fmt: skip
    monkeypatch.setattr(lineage_notes, "_INTERVAL_S", 0.0)
    for mods in (3, 5):
        totals = {"bank.a": TopicTotals("bank.a", 1, mods, 400, 0)}
        notes(Ticked(), core(published=totals, watermark_us=7))
    assert [call["rows"] for call in followed.calls] == [{"bank.a": 3}, {"bank.a": 2}]
    notes(SlotsAssigned((1,)), core())
    assert len(followed.calls) == 2
    before = followed.calls[-1]
    encodings.append(registrar.register(tables[1]))
    notes(Ticked(), core())
    assert len(set(followed.calls[-1]["schemas"]) - set(before["schemas"])) == 1
    inputs, outputs = followed.calls[-1]["datasets"]()
    fields = [(("id", "INT64"),), (("id", "INT64"), ("t", "STRING"))]
    assert [(one.namespace, one.name, one.fields) for one in inputs] == [
        ("spanner://p:i", "d.a", fields[0]), ("spanner://p:i", "d.s.b", fields[1]),
    ]  # fmt: skip
    assert [(output.name, output.fields, output.rows_of) for output in outputs] == [
        ("bank.a", fields[0], "bank.a"), ("bank.s.b", fields[1], "bank.s.b"),
    ]  # fmt: skip


def test_the_headroom_is_what_retention_leaves_of_the_lag(observed):
    observed.look()
    assert observed.value("retention_headroom_seconds") == 86_400
    observed.look(watermark_us=0)
    left = 86_400 - observed.value("watermark_lag_seconds")
    assert observed.value("retention_headroom_seconds") == pytest.approx(left)


def test_a_worker_that_owns_nothing_any_more_has_no_lag(observed):
    observed.look(watermark_us=0)
    observed.look()
    assert observed.value("watermark_lag_seconds") == 0


def test_a_worker_is_ready_while_it_is_in_the_group(observed):
    for event, not_ready in (
        (Ticked(), "starting"),
        (SlotsAssigned(()), ""),
        (SlotsLost((1,)), "rejoining"),
        (SlotsAssigned((1,)), ""),
        (RootSlotRead((), is_at_end=True), ""),
    ):
        observed.notify(event, core())
        found = observed.health.not_ready
        assert (not_ready in found, not_ready == "") == (True, found == "")
    for event in (DrainRequested(), RootSlotRead((), is_at_end=True)):
        observed.notify(event, core(is_draining=True))
        assert observed.health.not_ready == "draining"
        observed.health.set_ready()
    # Every event is a step.
    now = [0.0]
    observed = Observed(health=Health(stalled_after_s=5, clock=lambda: now[0]))
    now[0] = 6.0
    observed.notify(Ticked(), core())
    assert observed.health.fault == ""


def test_a_stopped_stream_partition_is_counted_and_shown_with_what_is_lost(observed):
    lost = PositionExpired("too old", lost_from="2026-01-01", lost_until="2026-01-02")
    with_details = Observed(shows_details=True)
    for stopped in ({"t": lost}, {"t": lost}, {"t": lost, "u": TokenRefused("no")}):
        for one in (observed, with_details):
            one.look(stopped=stopped)
    for error in ("PositionExpired", "TokenRefused"):
        assert observed.value("stream_partition_stops_total", error=error) == 1
    assert observed.value("stream_partitions_stopped") == 2
    assert "t: too old (lost_from='2026-01-01'" in with_details.health.warning
    observed.look()
    assert observed.value("stream_partitions_stopped") == 0


QUEUED = {PartitionState.QUEUED: 12}


@pytest.mark.parametrize(
    ("changes", "warning"),
    [
        # The port has no login, so it shows no keys and values of rows.
        ({"stopped": {"t": PositionExpired("too old"), "u": TokenRefused("no")}},
         "2 stream partitions stopped: t: PositionExpired; u: TokenRefused"),
        ({"is_paused": True}, "the stream is paused: see tidegate-producer resume"),
        ({"states": QUEUED}, "12 stream partitions wait for a query"),
        ({"states": {PartitionState.PAUSED: 2}},
         "2 stream partitions are paused until the slowest one comes closer"),
        ({"states": {PartitionState.HELD: 1}},
         "1 stream partitions wait for others from which keys moved to them"),
        ({"states": QUEUED, "stopped": {"t": TokenRefused("no")}},
         "1 stream partitions stopped: t: TokenRefused; 12 stream partitions wait for a query"),
        ({"slots": {0: slot((), (1, 2)), 1: slot((2, 3), ())}},
         "3 keys are parked: see docs/how-to/parked-changes.md"),
    ],
)  # fmt: skip
def test_the_status_says_what_waits_and_what_stopped(observed, changes, warning):
    observed.look(**changes)
    assert observed.health.warning == warning
    observed.look()
    assert observed.health.warning == ""


def test_parked_changes_and_their_keys_are_counted(observed):
    cause = ("bank.accounts", "MessageTooLarge")
    slots = {0: slot((), (1, 2)), 1: slot((2, 3), ())}
    for parked in ({cause: 2}, {cause: 5, ("bank.accounts", "KeyParked"): 7}):
        observed.look(parked=parked, slots=slots)
    for reason, count in (("MessageTooLarge", 5), ("KeyParked", 7)):
        assert observed.value("parked_total", topic="bank.accounts", reason=reason) == count
    assert observed.value("parked_keys") == 3
    observed.look(slots={0: slot((), ())})
    assert observed.value("parked_keys") == 0


def test_figures_of_files_are_counted_and_shown():
    figures = FileFigures()
    observed = Observed(retention_us=math.inf, files=figures)
    figures.add({"files": 2, "copies": 3, "late_events": 4, "events": 9})
    figures.report("q", Progress(5, time.time_ns() // 1_000 - 60_000_000))
    observed.look()
    figures.add({"files": 1, "late_files": 1, "refused": 2, "forgotten_uuids": 6})
    observed.look()
    for name, expected in {
        "files_read_total": 3, "files_late_total": 1, "file_events_copied_total": 3,
        "file_events_late_total": 4, "file_events_refused_total": 2,
        "file_uuids_forgotten_total": 6, "files_unread": 5, "retention_headroom_seconds": math.inf,
    }.items():  # fmt: skip
        assert observed.value(name) == expected, name
    assert observed.value("files_open_seconds") >= 60
    figures.forget("q")
    observed.look()
    assert (observed.value("files_unread"), observed.value("files_open_seconds")) == (0, 0)


def test_what_is_retried_is_listed_with_what_the_core_noticed():
    faults = RetriedFaults()
    observed = Observed(faults=faults)
    worker = core(noticed=[("stalled", "t"), ("stalled", "t")])
    error = QueryInterrupted("row 4711", code="UNAVAILABLE")
    observed.notify(QueryFailed("t", 1, error), worker)
    assert "4711" not in faults.as_json()
    for _ in range(2):
        observed.notify._set_gauges(worker)
    found = {(one.error, one.subject): one.count for one in faults.listed()}
    assert found == {("QueryInterrupted UNAVAILABLE", "t"): 1, ("silent query", "t"): 2}

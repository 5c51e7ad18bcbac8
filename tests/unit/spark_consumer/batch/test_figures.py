"""Figures of a batch: as observed metrics, as the program's own, and in the log."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import get_args

import pytest
import structlog

from tidegate.spark_consumer.batch.batch import Batch, StepTimer
from tidegate.spark_consumer.batch.figures import (
    KEPT,
    BatchFigures,
    BatchLog,
    BatchMetrics,
    RecentFigures,
    SinkWork,
    sinks_stand_at,
)
from tidegate.spark_consumer.core.batch_state import Segment, State
from tidegate.spark_consumer.core.plan import MergeMirror, StoreSegment, WriteRelease
from tidegate.spark_consumer.metrics import (
    METRICS,
    CounterName,
    GaugeName,
    HistogramName,
    consumer_metrics,
)

SECONDS = {"load": 0.5, "sink-changelog": 2.0, "sink-mirror": 1.0, "state": 0.25}

STATE = State(
    prefix="bank", query_id="q", batch=6, watermark_us=3_000_000, next_release=9,
    segments=(Segment("a", 3_500_000, 4_000_000, 5, ()), Segment("b", 3_500_000, 4_000_000, 6, ())),
    sinks=("changelog", "mirror"), mirror_release=4,
)  # fmt: skip

OWN_OF_SPARK = {"batch_duration_seconds", "batch_input_rows"}
DISTRIBUTIONS = {"batch_duration_seconds", "commit_to_release_seconds"}


def figures(state=STATE, **changes):
    plan = SimpleNamespace(releases=(1, 2), late_rows=1)
    loop = {
        "state": state,
        "plan": plan,
        "frontier": SimpleNamespace(snapshots_waiting=3, finished_tokens=7),
        "released_rows": 12,
        "copies": 2,
        "dead_letters": 4,
        "recorded": 1,
        "released_times_us": [5_250_000, 3_500_000, 3_100_000],
        **changes,
    }
    taken = dict.fromkeys(state.sinks, (0, 0)) | {"changelog": (2, 12)}
    return BatchFigures.of(SimpleNamespace(**loop), seconds=SECONDS, taken=taken, now_us=5_500_000)


def test_the_observed_metrics_have_the_names_of_the_metrics():
    observed = figures().observed()
    own = set(observed["tidegate"])
    of_process = {"batches"} | OWN_OF_SPARK | DISTRIBUTIONS
    unlabelled = {one.name.removesuffix("_total") for one in METRICS if not one.labels}
    assert own == unlabelled - of_process
    assert observed["tidegate"]["watermark_timestamp_seconds"] == 3.0
    assert observed["tidegate"]["copies"] == 2
    assert observed["tidegate_phase_seconds"]["sinks"] == 3.0
    assert observed["tidegate_sink_changelog"] == {
        "release": 8, "releases": 2, "changes": 12, "seconds": 2.0,
    }  # fmt: skip


def test_before_the_first_watermark_there_is_no_lag_and_a_replay_reads_no_progress():
    found = figures(State(prefix="bank", query_id="q", sinks=("changelog",)), frontier=None)
    observed = found.observed()["tidegate"]
    assert observed["watermark_timestamp_seconds"] is observed["watermark_lag_seconds"] is None
    assert observed["waiting_snapshots"] is observed["finished_stream_partitions"] is None
    assert sinks_stand_at(State(prefix="p", query_id="q", sinks=("topic",))) == {"topic": -1}


def test_the_last_batches_are_kept_and_a_repeated_one_is_replaced():
    recent = RecentFigures()
    one = figures()
    recent.add(one)
    assert (recent.of(6), recent.of(5)) == (one, None)
    for number in range(7, 7 + KEPT):
        recent.add(figures(State(prefix="p", query_id="q", batch=number)))
    assert recent.of(6) is None
    assert recent.of(7) is not None


# ---------------------------------------------------------------- metrics
@pytest.fixture
def measured():
    metrics = consumer_metrics()
    value = metrics.registry.get_sample_value
    batches = BatchMetrics(metrics, wall=lambda: 10.0)
    return batches, lambda name, **labels: value(f"tidegate_consumer_{name}", labels)


def test_a_batch_is_counted_by_sink_and_phase(measured):
    batches, value = measured
    batches.finished(figures())
    batches.finished(figures(frontier=None))  # a replay leaves what progress said
    plain = {
        "batches_total": 2, "released_changes_total": 24, "late_changes_total": 2,
        "copies_total": 4, "mismatches_total": 2, "releases_total": 4, "waiting_changes": 11,
        "waiting_segments": 2, "waiting_snapshots": 3, "finished_stream_partitions": 7,
        "mirror_releases_behind": 4,
    }  # fmt: skip
    assert {name: value(name) for name in plain} == plain
    phases = {"load": 1.0, "sinks": 6.0, "state": 0.5}
    found = {name: value("batch_phase_seconds_total", phase=name) for name in phases}
    assert found == phases
    assert [value("sink_release", sink=sink) for sink in ("changelog", "mirror")] == [8, 4]
    assert value("sink_releases_total", sink="changelog") == 4
    assert value("sink_changes_total", sink="changelog") == 24
    assert value("sink_seconds_total", sink="mirror") == 2.0
    edges = {"0.1": 0, "0.25": 2, "1.0": 2, "2.5": 6, "+Inf": 6}
    assert {le: value("commit_to_release_seconds_bucket", le=le) for le in edges} == edges


def test_the_lag_is_that_of_the_scrape_and_unknown_before_the_first_watermark(measured):
    batches, value = measured
    batches.finished(figures(State(prefix="p", query_id="q")))
    assert math.isnan(value("watermark_lag_seconds"))
    assert value("watermark_timestamp_seconds") == 0
    batches.finished(figures())
    assert (value("watermark_timestamp_seconds"), value("watermark_lag_seconds")) == (3.0, 7.0)


def test_a_query_that_goes_on_shows_where_it_was_and_counts_from_0(measured):
    batches, value = measured
    batches.resume(STATE)
    assert (value("watermark_timestamp_seconds"), value("waiting_changes")) == (3.0, 11)
    assert (value("waiting_segments"), value("mirror_releases_behind")) == (2, 4)
    assert value("sink_release", sink="mirror") == 4
    assert (value("batches_total"), value("released_changes_total")) == (0, 0)


def test_the_names_are_exactly_the_literals():
    kinds = {"counter": CounterName, "gauge": GaugeName, "histogram": HistogramName}
    for kind, literal in kinds.items():
        names = [metric.name for metric in METRICS if metric.kind == kind]
        assert sorted(names) == sorted(get_args(literal))


# ---------------------------------------------------------------- log
PLAN = SimpleNamespace(releases=(), late_rows=0, slowest="token")

LOGGED = State(
    "bank", "q", batch=7, watermark_us=5_000_000,
    segments=(Segment("a", 6_000_000, 7_000_000, 5, (7_000_000,)),),
)  # fmt: skip


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def log(clock):
    # One clock for both uses: the wall clock stands 5 s + `seconds` - 100 s after the watermark.
    wall = lambda: clock.seconds - 90.0  # noqa: E731 - two clocks in one line
    return BatchLog(structlog.get_logger(), monotonic=clock, wall=wall)


def test_only_batches_with_releases_or_late_changes_are_info(log):
    for releases, late_rows, level in (((), 0, "debug"), (("one",), 0, "info"), ((), 1, "info")):
        plan = SimpleNamespace(releases=releases, late_rows=late_rows, slowest=None)
        with structlog.testing.capture_logs() as lines:
            log.finished(LOGGED, plan, input_rows=3, copies=2)
        (line,) = lines
        assert (line["event"], line["log_level"], line["batch"]) == ("batch", level, 7)


def test_a_summary_comes_once_a_minute_and_counts_since_the_last_one(log, clock):
    with structlog.testing.capture_logs() as lines:
        for n in range(240):
            clock.seconds += 0.5
            state = LOGGED if n < 120 else State("bank", "q", batch=0)
            log.finished(state, PLAN, input_rows=3, copies=2)
    first, second = [line for line in lines if line["event"] == "summary"]
    for one in (first, second):
        assert (one["batches"], one["input_rows"], one["releases"]) == (120, 360, 0)
        assert one["log_level"] == "info"
    assert (first["watermark_us"], first["lag_seconds"]) == (5_000_000, 65.0)
    assert (first["waiting_changes"], first["slowest"]) == (5, "token")
    # Before the first watermark there is no lag.
    assert second["watermark_us"] is second["lag_seconds"] is None


# ---------------------------------------------------------------- what sinks took, and when
BOTH = ("changelog", "mirror")


def plan(*steps, sinks=BOTH):
    return SimpleNamespace(sinks=sinks, steps=steps)


def write(number, *sinks):
    return WriteRelease(SimpleNamespace(number=number), sinks)


def test_a_merge_takes_the_releases_of_earlier_batches_once():
    work = SinkWork()
    steps = (write(0, *BOTH), write(1, *BOTH), StoreSegment(None))
    assert work.take(plan(*steps), {0: 5, 1: 7}) == {"changelog": (2, 12), "mirror": (2, 12)}
    assert work.take(plan(write(2, "changelog")), {2: 5})["mirror"] == (0, 0)
    steps = (write(3, "changelog"), write(4, "changelog"), MergeMirror(1, 3))
    found = work.take(plan(*steps), {3: 7, 4: 9})
    assert found == {"changelog": (2, 16), "mirror": (2, 12)}
    assert work.take(plan(MergeMirror(3, 4)), {})["mirror"] == (1, 9)
    # Releases of an earlier process are counted, and their changes are not.
    found = SinkWork().take(plan(write(9, "changelog"), MergeMirror(6, 9)), {9: 4})
    assert found["mirror"] == (3, 4)
    # A mirror that joins takes all before it.
    sinks = (*BOTH, "history")
    steps = (MergeMirror(3, 3, ("history",)), write(4, *sinks))
    found = SinkWork().take(plan(*steps, sinks=sinks), {4: 2})
    assert found == {"changelog": (1, 2), "mirror": (1, 2), "history": (5, 2)}


def test_each_step_lasts_until_the_next_and_those_of_one_name_are_added_up():
    times_s = iter([10.0, 11.0, 13.0, 13.5, 20.0])
    timer = StepTimer(lambda: next(times_s))
    for step in ("load", "plan", "load", "state"):
        timer.begin(step)
    assert timer.end() == {"load": 1.5, "plan": 2.0, "state": 6.5}
    assert StepTimer(lambda: 1.0).end() == {}


def batch_without_parts(**more):
    return Batch(
        SimpleNamespace(sinks=()),
        rows_of=lambda _: None,
        end_offsets=lambda _: {},
        log=SimpleNamespace(),
        metrics=consumer_metrics(),
        **more,
    )


def test_it_says_how_long_the_running_batch_has_taken(monkeypatch):
    now_s, found = 100.0, []
    batch = batch_without_parts(monotonic=lambda: now_s)

    def run(_self, _frame, number):
        nonlocal now_s
        now_s += 40.0
        found.append(batch.batch_s)
        if number:
            raise ZeroDivisionError
        return SimpleNamespace(state=None)

    monkeypatch.setattr(Batch, "_run", run)
    assert batch.batch_s is None
    batch(None, 0)
    assert batch.batch_s is None
    with pytest.raises(ZeroDivisionError):
        batch(None, 1)
    assert (found, batch.batch_s) == ([40.0, 40.0], None)

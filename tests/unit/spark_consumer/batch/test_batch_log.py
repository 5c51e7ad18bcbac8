"""What is logged about batches: those that matter at once, and a summary each minute."""

from types import SimpleNamespace

import pytest
import structlog

from tidegate.spark_consumer.batch.batch_log import BatchLog
from tidegate.spark_consumer.core.batch_state import Segment, State

PLAN = SimpleNamespace(releases=(), late_rows=0, slowest="token")
STATE = State(
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


@pytest.mark.parametrize(
    ("plan", "level"),
    [
        (PLAN, "debug"),
        (SimpleNamespace(releases=("one",), late_rows=0, slowest=None), "info"),
        (SimpleNamespace(releases=(), late_rows=1, slowest=None), "info"),
    ],
)
def test_only_batches_with_releases_or_late_changes_are_info(log, plan, level):
    with structlog.testing.capture_logs() as lines:
        log.finished(STATE, plan, input_rows=3, copies=2)
    (line,) = lines
    assert (line["event"], line["log_level"], line["batch"]) == ("batch", level, 7)


def test_a_summary_comes_once_a_minute_and_counts_since_the_last_one(log, clock):
    with structlog.testing.capture_logs() as lines:
        for _ in range(240):
            clock.seconds += 0.5
            log.finished(STATE, PLAN, input_rows=3, copies=2)
    summaries = [line for line in lines if line["event"] == "summary"]
    assert [(s["batches"], s["input_rows"], s["releases"]) for s in summaries] == [
        (120, 360, 0)
    ] * 2
    assert {s["log_level"] for s in summaries} == {"info"}
    first = summaries[0]
    assert (first["watermark_us"], first["lag_seconds"]) == (5_000_000, 65.0)
    assert (first["waiting_changes"], first["slowest"]) == (5, "token")


def test_before_the_first_watermark_there_is_no_lag(log, clock):
    clock.seconds += 60
    with structlog.testing.capture_logs() as lines:
        log.finished(State("bank", "q", batch=0), PLAN, input_rows=0, copies=0)
    summary = lines[-1]
    assert (summary["event"], summary["watermark_us"]) == ("summary", None)
    assert summary["lag_seconds"] is None

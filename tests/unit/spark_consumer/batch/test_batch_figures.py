"""The figures of a batch, and their names as observed metrics."""

from types import SimpleNamespace

from tidegate.spark_consumer.batch.batch_figures import (
    KEPT,
    BatchFigures,
    RecentFigures,
    sinks_stand_at,
)
from tidegate.spark_consumer.core.batch_state import Segment, State
from tidegate.spark_consumer.metrics import METRICS

SECONDS = {"load": 0.5, "sink-changelog": 2.0, "sink-mirror": 1.0, "state": 0.25}
STATE = State(
    prefix="bank", query_id="q", batch=6, watermark_us=3_000_000, next_release=9,
    segments=(Segment("a", 3_500_000, 4_000_000, 5, ()), Segment("b", 3_500_000, 4_000_000, 6, ())),
    sinks=("changelog", "mirror"), mirror_release=4,
)  # fmt: skip
OWN_OF_SPARK = {"batch_seconds", "batch_input_rows"}


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
        **changes,
    }
    taken = dict.fromkeys(state.sinks, (0, 0)) | {"changelog": (2, 12)}
    return BatchFigures.of(SimpleNamespace(**loop), seconds=SECONDS, taken=taken, now_us=5_500_000)


def test_a_batch_is_measured_by_sink_and_by_phase():
    found = figures()
    assert (found.watermark_lag_seconds, found.waiting_changes) == (2.5, 11)
    assert found.phase_seconds == {"load": 0.5, "sinks": 3.0, "state": 0.25}
    sinks = {name: (one.release, one.releases, one.changes, one.seconds)
             for name, one in found.sinks.items()}  # fmt: skip
    assert sinks == {"changelog": (8, 2, 12, 2.0), "mirror": (4, 0, 0, 1.0)}
    assert found.mirror_releases_behind == 4


def test_the_observed_metrics_have_the_names_of_the_metrics():
    observed = figures().observed()
    own = set(observed["tidegate"])
    of_process = {"batches"} | OWN_OF_SPARK
    unlabelled = {one.name.removesuffix("_total") for one in METRICS if not one.labels}
    assert own == unlabelled - of_process
    assert (observed["tidegate"]["watermark_seconds"], observed["tidegate"]["copies"]) == (3.0, 2)
    assert observed["tidegate_phase_seconds"]["sinks"] == 3.0
    assert observed["tidegate_sink_changelog"] == {
        "release": 8, "releases": 2, "changes": 12, "seconds": 2.0,
    }  # fmt: skip


def test_before_the_first_watermark_there_is_no_lag_and_a_replay_reads_no_progress():
    found = figures(State(prefix="bank", query_id="q", sinks=("changelog",)), frontier=None)
    observed = found.observed()["tidegate"]
    assert observed["watermark_seconds"] is observed["watermark_lag_seconds"] is None
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

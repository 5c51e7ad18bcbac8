"""Which figures are wrong is decided here, so each must be able to be."""

from __future__ import annotations

import dataclasses
import io
import json
from typing import Any

import pytest
from rich.console import Console

from tidegate.local_stack.judge import Delivery
from tidegate.local_stack.report import (
    Asked,
    Kill,
    Latency,
    Report,
    latency_figures,
    latency_of,
    proof_table,
)

ASKED = Asked(transfers=10, splits=6, merges=4, kill_workers=1, kill_consumer=1)
RIGHT = Report(
    changes_committed=34,
    changes_in_changelog=34,
    missing=0,
    duplicates=0,
    invented=0,
    changes_unlike_source=0,
    out_of_order=0,
    ordinals_broken=0,
    late=0,
    transactions=11,
    transactions_across_partitions=9,
    transactions_torn=0,
    splits=6,
    merges=4,
    stream_partitions_finished=14,
    worker_kills=(Kill("w1", "fence", 3.2),),
    consumer_kills=(Kill("consumer", "sink-mirror", 9.9),),
    releases=5,
    rows_outside_release=0,
    releases_unlike_source=0,
    releases_with_wrong_total=0,
    mirror_equals_source=True,
    end_to_end_latency_ms=Latency(100.0, 900.0, 30, "all"),
    end_to_end_latency_undisturbed_ms=Latency(None, None, 0, "none"),
    unclean_stops=0,
    seconds=12.0,
    seed=1,
)


def test_a_right_report_has_no_wrong_figure():
    assert RIGHT.wrong_figures(ASKED) == []


@pytest.mark.parametrize(
    ("figure", "value"),
    [
        ("changes_committed", 29),
        ("changes_in_changelog", 33),
        ("missing", 1),
        ("duplicates", 1),
        ("invented", 1),
        ("changes_unlike_source", 1),
        ("out_of_order", 1),
        ("ordinals_broken", 1),
        ("late", 1),
        ("transactions", 9),
        ("transactions_across_partitions", 0),
        ("transactions_torn", 1),
        ("splits", 5),
        ("merges", 3),
        ("stream_partitions_finished", 13),
        ("worker_kills", ()),
        ("consumer_kills", ()),
        ("releases", 0),
        ("rows_outside_release", 1),
        ("releases_unlike_source", 1),
        ("releases_with_wrong_total", 1),
        ("mirror_equals_source", False),
        ("unclean_stops", 1),
    ],
)
def test_each_figure_can_be_wrong_and_marks_its_row(figure: str, value: Any):
    report = dataclasses.replace(RIGHT, **{figure: value})
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(proof_table(report, ASKED))

    assert figure in {wrong.name for wrong in report.wrong_figures(ASKED)}
    assert "✗" in console.export_text()


def test_the_proof_of_a_right_report_has_only_ticks():
    console = Console(width=300, record=True, file=io.StringIO())
    console.print(proof_table(RIGHT, ASKED))
    text = console.export_text()

    assert "✗" not in text
    assert text.count("✓") == 7
    assert "w1 in fence at 3 s" in text


def test_json_holds_every_figure_by_its_name():
    content = json.loads(RIGHT.to_json())

    assert content["worker_kills"] == [{"worker": "w1", "step": "fence", "at": 3.2}]
    assert content["end_to_end_latency_ms"]["p99"] == 900.0
    assert set(content) == {field.name for field in dataclasses.fields(Report)}


def test_percentiles_are_by_nearest_rank():
    latency = latency_of([float(n) for n in range(1, 101)], measured="x")

    assert (latency.p50, latency.p99, latency.rows) == (50.0, 99.0, 100)
    assert latency_of([7.0], measured="x").p99 == 7.0
    assert latency_of([], measured="x").p50 is None


def test_changes_on_their_way_during_an_outage_are_not_undisturbed():
    ways = [
        Delivery(1_000_000, 2_000_000),
        Delivery(4_000_000, 9_000_000),  # under way at the kill
        Delivery(6_000_000, 9_000_000),  # committed while it was down
        Delivery(10_000_000, 11_000_000),
    ]
    everything, undisturbed = latency_figures(ways, kills_us=[5_000_000])

    assert (everything.rows, everything.p99) == (4, 5_000.0)
    assert (undisturbed.rows, undisturbed.p99) == (2, 1_000.0)


def test_without_kills_everything_is_undisturbed():
    everything, undisturbed = latency_figures([Delivery(0, 1_000)], kills_us=[])

    assert everything.rows == undisturbed.rows == 1

"""Each figure of the report can be wrong, and its tables fit a terminal."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from tidegate.local_stack.demo.files.report import FilesAsked, FilesReport
from tidegate.local_stack.demo.report import Kill, Latency

ASKED = FilesAsked(transfers=2_000, rows=2_200, kill_workers=1, kill_consumer=1)
RIGHT = FilesReport(
    source="PostgreSQL", files=184, events=8_199, changes=6_000, backfill_rows=2_199, copies=812,
    late=705, events_in_changelog=8_199, missing=0, duplicates=0, invented=0, unlike_source=0,
    keys=4_200, histories_unlike_source=0, in_time_out_of_order=0, behind_newer=121,
    out_of_order=0, ordinals_broken=0, rows_outside_release=0, releases=31, mirror_cuts=24,
    releases_unlike_changelog=0, mirror_rows=4_120, mirror_deleted_rows=83,
    mirror_equals_source=True, total_is_right=True, worker_kills=(Kill("w1", "publish", 61.2),),
    consumer_kills=(Kill("consumer", "sink-changelog", 88.9),),
    latency_in_time_ms=Latency(13_100.0, 19_000.0, 5_000, 30, "x"), lateness_seconds=10,
    unclean_stops=0, seconds=170.0, seed=1,
)  # fmt: skip


def test_a_right_report():
    assert RIGHT.wrong_figures(ASKED) == []
    assert json.loads(RIGHT.to_json())["worker_kills"][0]["step"] == "publish"


@pytest.mark.parametrize(
    "changed",
    [
        *({name: 1} for name in (
            "missing", "duplicates", "invented", "unlike_source", "histories_unlike_source",
            "in_time_out_of_order", "out_of_order", "ordinals_broken", "rows_outside_release",
            "releases_unlike_changelog", "unclean_stops",
        )),
        {"copies": 0}, {"late": 0}, {"mirror_deleted_rows": 0}, {"releases": 1},
        {"backfill_rows": 199, "events": 6_199, "events_in_changelog": 6_199},
        {"changes": 5_999, "events": 8_198, "events_in_changelog": 8_198},
        {"events": 8_200, "events_in_changelog": 8_200}, {"events_in_changelog": 8_198},
        {"mirror_equals_source": False}, {"total_is_right": False}, {"worker_kills": ()},
        {"consumer_kills": ()},
    ],
    ids=str,
)  # fmt: skip
def test_each_figure_can_be_wrong(changed: dict[str, Any]):
    (wrong,) = replace(RIGHT, **changed).wrong_figures(ASKED)

    assert wrong.name in changed
    assert wrong.found in (changed[wrong.name], 0)


def test_a_short_run_may_have_no_disturbances():
    quiet = replace(RIGHT, copies=0, late=0, mirror_deleted_rows=0)

    assert quiet.wrong_figures(replace(ASKED, disturbances=0)) == []


def printed(report: FilesReport) -> str:
    text = io.StringIO()
    Console(file=text, width=100).print(*report.tables(ASKED), sep="\n")
    return text.getvalue()


def test_tables_fit_a_hundred_columns_and_mark_what_is_wrong():
    right = printed(RIGHT)

    assert max(map(len, right.splitlines())) <= 100
    assert right.count("✓") == 7
    assert "✗" not in right
    assert "…" not in right
    assert "13.1 s" in right
    assert printed(replace(RIGHT, missing=1, total_is_right=False)).count("✗") == 2


def test_a_run_without_kills_and_figures_of_time_prints_too():
    quiet = replace(
        RIGHT, worker_kills=(), consumer_kills=(),
        latency_in_time_ms=Latency(None, None, 0, 0, "x"),
    )  # fmt: skip

    assert "none" in printed(quiet)

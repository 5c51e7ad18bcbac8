"""The demo as a user runs it, small: every figure right, a report, nothing left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DEADLINE_S = 840


def test_a_small_demo_proves_everything(tmp_path: Path):
    report = tmp_path / "deep" / "report.json"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    options = {
        "--transfers": 300,
        "--accounts": 40,
        "--splits": 2,
        "--merges": 2,
        "--workers": 2,
        "--kill-workers": 1,
        "--kill-consumer": 1,
        "--seed": 11,
        "--rate": 20,
        "--report": report,
    }
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate.local_stack", "demo"),
            *(str(part) for option in options.items() for part in option),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "TMPDIR": str(temporary)},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(report.read_text())
    for name in (
        "missing",
        "duplicates",
        "out_of_order",
        "late",
        "releases_unlike_source",
        "releases_with_wrong_total",
    ):
        assert figures[name] == 0, name
    assert figures["mirror_equals_source"] is True
    assert figures["changes_committed"] == figures["changes_in_changelog"] == 40 + 3 * 300
    assert (figures["splits"], figures["merges"]) == (2, 2)
    assert figures["stream_partitions_finished"] == 6
    assert [kill["worker"] for kill in figures["consumer_kills"]] == ["consumer"]
    assert len(figures["worker_kills"]) == 1
    assert figures["end_to_end_latency_ms"]["rows"] == 900
    assert "proved in" in done.stdout
    # The run's folder is gone, and so is everything that ran below it.
    assert list(temporary.glob("tidegate-demo-*")) == []
    assert not [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
    ]

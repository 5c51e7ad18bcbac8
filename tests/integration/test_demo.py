"""The demo as a user runs it: every figure right, a report, nothing left running."""

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

SMALL = {"transfers": 300, "accounts": 40, "splits": 1, "merges": 1, "seed": 11, "rate": 40}
FULL = {"transfers": 1_500, "accounts": 100, "splits": 4, "merges": 3, "seed": 12, "rate": 40}


@pytest.mark.parametrize(
    "size",
    [pytest.param(SMALL, marks=pytest.mark.smoke, id="small"), pytest.param(FULL, id="full")],
)
def test_the_demo_proves_everything(size: dict[str, int], tmp_path: Path):
    report = tmp_path / "deep" / "report.json"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    options = {f"--{name}": number for name, number in size.items()}
    options |= {"--workers": 2, "--kill-workers": 1, "--kill-consumer": 1, "--report": report}
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
    changes = size["accounts"] + 3 * size["transfers"]
    assert figures["changes_committed"] == figures["changes_in_changelog"] == changes
    assert (figures["splits"], figures["merges"]) == (size["splits"], size["merges"])
    # A split finishes one stream partition, a merge two.
    assert figures["stream_partitions_finished"] == size["splits"] + 2 * size["merges"]
    assert [kill["worker"] for kill in figures["consumer_kills"]] == ["consumer"]
    assert len(figures["worker_kills"]) == 1
    undisturbed = size["transfers"] * 3 // 4
    assert figures["latency_undisturbed_ms"]["rows"] == 3 * (undisturbed - 20)
    assert figures["latency_with_kills_ms"]["rows"] == 3 * (size["transfers"] - undisturbed)
    assert "proved in" in done.stdout
    # The run's folder is gone, and so is everything that ran below it.
    assert list(temporary.glob("tidegate-demo-*")) == []
    assert not [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
    ]

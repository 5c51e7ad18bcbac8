"""Chaos as a user runs it, short: every figure 0, and nothing left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.deep, pytest.mark.timeout(900)]

DEADLINE_S = 840


@pytest.mark.rule("P1", "P5")
def test_a_short_chaos_leaves_every_figure_at_0(tmp_path: Path, repository: Path):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    kinds = ("stop-worker-in-transaction", "replace-stopped-worker", "kill-consumer")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tests.chaos", "--json"),
            *("--seed", "11", "--minutes", "0.5", "--workers", "2"),
            *(part for kind in (*kinds, "crash-broker") for part in ("--only", kind)),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=repository,
        env={**os.environ, "TMPDIR": str(temporary)},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "all figures 0"
    assert not any(report["figures"].values())
    assert {"nothing_lost", "watermark", "lineage", "unexplained_exits"} <= report["figures"].keys()
    # It did break something, and something was there to be broken.
    assert {"kill-consumer", "crash-broker"} <= {fault["kind"] for fault in report["faults"]}
    assert report["counts"]["kafka_records"] >= report["counts"]["changes_committed"] > 200
    assert report["counts"]["releases"] >= 2
    assert report["counts"]["watermark_claims"] >= 2
    # The run's folder is gone, and so is everything that ran below it.
    assert list(temporary.glob("tidegate-chaos-*")) == []
    assert not [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
    ]

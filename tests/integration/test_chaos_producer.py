"""Chaos for the fleet alone as a user runs it, short: every figure 0, and nothing left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DEADLINE_S = 540


@pytest.mark.rule("P1", "P2", "P4", "P3")
@pytest.mark.parametrize(
    "more",
    [
        ["--dialect", "postgresql", "--sasl-ssl", "--backfill"],
        pytest.param(["--mixed", "--no-backfill"], marks=pytest.mark.deep),
        pytest.param(["--moves", "--sasl-ssl", "--backfill"], marks=pytest.mark.deep),
    ],
    ids=["postgresql", "two versions", "keys that move"],
)
def test_half_a_minute_of_faults_leaves_every_figure_at_0(
    tmp_path: Path, repository: Path, more: list[str]
):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "tests.chaos.producer", "--json"]
    done = subprocess.run(
        [*command, "--seed", "2", "--minutes", "0.5", "--setting", "heartbeat_ms=500", *more],
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
    assert {
        "lost",
        "twice",
        "out_of_key_order",
        "parked_wrongly",
        "watermark_violations",
        "unexplained_exits",
    } <= report["figures"].keys()
    assert not any(report["figures"].values())
    # It did break something, and something was there to be broken.
    counts = report["counts"]
    assert counts["changes_published"] + counts["changes_parked"] == counts["changes_committed"]
    assert counts["changes_committed"] > 500
    if "--backfill" in more:
        assert counts["first_rows"] == 50_000
        assert counts["faults_meanwhile"] > 0
        assert counts["rescales_meanwhile"] > 0
    assert counts["changes_parked"] >= counts["poison_changes"]
    assert (counts["poison_changes"] > 0) is not bool({"--mixed", "--moves"} & set(more))
    assert (counts["heartbeats_of_version_1"] > 0) is ("--mixed" in more)
    assert counts["heartbeats_of_version_2"] > 0
    assert counts["rescales"] == 3
    assert counts["faults_of_the_source"] >= 10
    changed = ("ADD COLUMN", "DROP COLUMN", "CREATE TABLE", "DROP TABLE")
    assert {f"schema_{verb}" for verb in changed} <= counts.keys()
    assert report["faults"]
    # The run's folder is gone, and so is everything that ran below it.
    assert list(temporary.glob("tidegate-chaos-*")) == []
    assert not [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
    ]

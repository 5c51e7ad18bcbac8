"""Chaos as a user runs it, short: every figure 0, and nothing left running."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DEADLINE_S = 840


def report_of(module: str, *arguments: str, folder: Path) -> dict[str, Any]:
    """Run a chaos for half a minute; return its report.  Nothing of it is left."""
    temporary = folder / "temporary"
    temporary.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", module, "--json", "--minutes", "0.5", *arguments],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=Path(__file__).resolve().parents[2],
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["verdict"] == "all figures 0"
    assert not any(report["figures"].values())
    # The run's folder is gone, and so is everything that ran below it.
    assert list(temporary.glob("tidegate-chaos-*")) == []
    assert not [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
    ]
    return report


@pytest.mark.deep
@pytest.mark.rule("P1", "P5")
def test_a_short_chaos_leaves_every_figure_at_0(tmp_path: Path):
    kinds = ("stop-worker-in-transaction", "replace-stopped-worker", "kill-consumer")
    report = report_of(
        "tests.chaos",
        *("--seed", "11", "--workers", "2"),
        *(part for kind in (*kinds, "crash-broker") for part in ("--only", kind)),
        folder=tmp_path,
    )
    judged = {"lost", "plans", "lineage", "output_missing", "iceberg_mirror", "unexplained_exits"}
    assert judged <= report["figures"].keys()
    # It did break something, and something was there to be broken.
    assert {"kill-consumer", "crash-broker"} <= {fault["kind"] for fault in report["faults"]}
    assert report["counts"]["kafka_records"] >= report["counts"]["changes_committed"] > 200
    assert report["counts"]["releases"] >= 2
    assert report["counts"]["watermark_claims"] >= 2


@pytest.mark.rule("P1", "P2", "P4", "P3")
@pytest.mark.parametrize(
    "more",
    [
        ["--dialect", "postgresql", "--sasl-ssl", "--backfill"],
        pytest.param(["--mixed", "--no-backfill"], marks=pytest.mark.deep),
        pytest.param(["--moves", "--sasl-ssl", "--backfill"], marks=pytest.mark.deep),
        pytest.param(["--setting", "query_transport=grpc", "--backfill"], marks=pytest.mark.deep),
    ],
    ids=["postgresql", "two versions", "keys that move", "queries over gRPC"],
)
def test_half_a_minute_of_faults_leaves_every_figure_at_0(tmp_path: Path, more: list[str]):
    report = report_of(
        "tests.chaos.producer",
        *("--seed", "2", "--setting", "heartbeat_ms=500", *more),
        folder=tmp_path,
    )
    assert {
        "lost",
        "twice",
        "out_of_key_order",
        "parked_wrongly",
        "watermark_violations",
        "markers",
        "unexplained_exits",
    } <= report["figures"].keys()
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

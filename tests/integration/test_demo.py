"""The demo, and README's `tidegate-local up`, as a user runs them: nothing is left running."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.tidy.printed_commands import blocks

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DEADLINE_S = 840

SMALL = {"transfers": 300, "accounts": 40, "splits": 1, "merges": 1, "seed": 11, "rate": 40}
FULL = {"transfers": 1_500, "accounts": 100, "splits": 4, "merges": 3, "seed": 12, "rate": 40}


def run_demo(tmp_path: Path, options: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Run the command; return its report and what it printed.  Nothing of it is left."""
    report = tmp_path / "deep" / "report.json"
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    flags = {f"--{name}": value for name, value in options.items()}
    flags |= {"--workers": 2, "--kill-workers": 1, "--kill-consumer": 1, "--report": report}
    done = subprocess.run(
        [
            *(sys.executable, "-m", "tidegate.local_stack", "demo"),
            *(str(part) for option in flags.items() for part in option),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "100"},
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "proved in" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    # The run's folder is gone, and so is everything that ran below it.
    assert list(temporary.glob("tidegate-demo-*")) == []
    assert not [
        process.pid
        for process in psutil.process_iter(["environ"])
        if (process.info["environ"] or {}).get("TMPDIR") == str(temporary)
    ]
    return json.loads(report.read_text()), done.stdout


@pytest.mark.rule("P5")
@pytest.mark.parametrize(
    "size",
    [
        pytest.param(SMALL, marks=pytest.mark.smoke, id="small"),
        pytest.param(FULL, marks=pytest.mark.deep, id="full"),
    ],
)
def test_the_demo_proves_everything(size: dict[str, int], tmp_path: Path):
    figures, _ = run_demo(tmp_path, size)

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


@pytest.mark.deep
def test_rows_from_before_the_stream_come_once_and_first(tmp_path: Path):
    figures, _ = run_demo(tmp_path, {"scenario": "backfill", **SMALL, "rows": 3_000})

    assert figures["missing"] == figures["duplicates"] == figures["releases_unlike_source"] == 0
    assert figures["mirror_equals_source"] is True
    assert figures["backfill"]["rows"] == SMALL["accounts"] + 3_000
    assert figures["backfill"]["worker_kills"] == 1


@pytest.mark.deep
def test_files_of_datastream_arrive_as_their_source_made_them(tmp_path: Path):
    size = {"transfers": 300, "accounts": 40, "rows": 200, "seed": 13}
    figures, printed = run_demo(tmp_path, {"scenario": "datastream", **size})

    assert figures["changes"] == 900
    assert figures["events"] == figures["events_in_changelog"] > 900
    assert figures["missing"] == figures["duplicates"] == figures["histories_unlike_source"] == 0
    assert min(figures["copies"], figures["late"], figures["mirror_deleted_rows"]) > 0
    assert figures["mirror_equals_source"] is True
    assert "of MySQL" in printed


# ---------------------------------------------------------------- up

PATIENCE_S = 400
BIN = Path(sys.executable).parent

(PRINTED,) = [block for block in blocks("sh") if block.page == "README.md" and block.runs]
UP, SHOW = [[BIN / program.rpartition("/")[2], *rest] for program, *rest in PRINTED.commands()]


@contextmanager
def up_in(folder: Path) -> Iterator[str]:
    """Run README's `up` in a folder; yield all that it prints when it is ready; then Ctrl-C."""
    printed = folder / "printed"
    with printed.open("w") as out, (folder / "log").open("w") as log:
        process = subprocess.Popen(UP, cwd=folder, stdout=out, stderr=log)
    try:
        end = time.monotonic() + PATIENCE_S
        while "consumer.toml" not in printed.read_text():
            assert process.poll() is None, (folder / "log").read_text()
            assert time.monotonic() < end, (folder / "log").read_text()
            time.sleep(0.5)
        yield printed.read_text()
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def shown(folder: Path) -> str:
    done = subprocess.run(
        SHOW, cwd=folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.deep
def test_a_row_written_by_the_printed_snippet_arrives_and_is_kept(tmp_path: Path):
    with up_in(tmp_path) as printed:
        done = subprocess.run(
            ["sh"],
            input=printed,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        assert "my-account" in done.stdout
        assert "11 rows" in shown(tmp_path)
        assert "proved" in done.stdout
        typed = [line for line in printed.splitlines() if "toml" in line]
        (status,) = [shlex.split(line) for line in typed if " status " in line]
        done = subprocess.run(
            [*status, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["members"] == ["w1", "w2"]

    log = (tmp_path / "log").read_text()
    assert f"the data is kept in {tmp_path}/.tidegate/up" in log
    with up_in(tmp_path) as again:
        assert again == printed
        assert "continuing with" in (tmp_path / "log").read_text()
        assert "11 rows" in shown(tmp_path)

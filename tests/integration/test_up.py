"""`tidegate-local up` as README prints it: a row arrives, and a second start continues."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.tidy.printed_commands import blocks

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 400
BIN = Path(sys.executable).parent

(PRINTED,) = [block for block in blocks("sh") if block.page == "README.md" and block.runs]
UP, SHOW = [[BIN / program.rpartition("/")[2], *rest] for program, *rest in PRINTED.commands()]


@contextmanager
def running(folder: Path) -> Iterator[str]:
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


def test_a_row_written_by_the_printed_snippet_arrives_and_is_kept(tmp_path: Path):
    with running(tmp_path) as printed:
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
        typed = [line.removeprefix("# ") for line in printed.splitlines() if "toml" in line]
        (status,) = [shlex.split(line) for line in typed if " status " in line]
        done = subprocess.run(
            [*status, "--json"], capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["members"] == ["w1", "w2"]

    log = (tmp_path / "log").read_text()
    assert f"the data is kept in {tmp_path}/.tidegate/up" in log
    with running(tmp_path):
        assert "continuing with the data" in (tmp_path / "log").read_text()
        assert "11 rows" in shown(tmp_path)

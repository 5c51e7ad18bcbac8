"""SIGTERM to the JVM, as spark-submit gets it, lets the running batch finish."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.spark.conftest import spark_jars
from tidegate.local_stack.parts.programs import quick_start

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "tests/spark/stopped_program.py"
PATIENCE_S = 240


def started(folder, *, submitted):
    jars, options = ",".join(spark_jars()), quick_start()
    submit = [
        str(Path(sys.executable).with_name("spark-submit")),
        *("--master", "local[1]", "--jars", jars, "--driver-java-options", options),
        *("--conf", "spark.ui.enabled=false"),
    ]
    head = submit if submitted else [sys.executable]
    return subprocess.Popen(
        [*head, PROGRAM, str(folder), jars, options],
        cwd=ROOT,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        stdout=(folder / "log").open("w"),
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize("submitted", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_batch_is_finished_before_java_ends(tmp_path, submitted):
    if not spark_jars():
        pytest.skip("Spark's jars are not fetched: ./dev setup, or TIDEGATE_SPARK_JARS=<folder>")
    said = tmp_path / "said"
    program = started(tmp_path, submitted=submitted)
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not said.exists() or "begin" not in said.read_text():
            assert program.poll() is None, (tmp_path / "log").read_text()[-3_000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        # spark-submit alone, or the whole group: Java, and Python above it.
        if submitted:
            program.terminate()
        else:
            os.killpg(program.pid, signal.SIGTERM)
        program.wait(PATIENCE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
    lines = said.read_text().splitlines()
    assert lines[-1] == "stopped", lines
    assert "cancelled" not in lines
    assert lines[-2] == f"end {lines[-3].split()[1]} 10"

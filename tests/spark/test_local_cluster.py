"""A large release on several executors: the same changes and ordinals as on one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.conftest import spark_jars

pytestmark = [pytest.mark.spark, pytest.mark.deep]

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = "tests.spark.local_cluster_program"


@pytest.mark.timeout(600)
def test_slices_on_two_executors_give_the_release_of_one_task(tmp_path):
    jars = spark_jars()
    if not jars:
        pytest.skip("Spark's jars are not fetched: ./dev setup, or TIDEGATE_SPARK_JARS=<folder>")
    found = {}
    for master in ("local[1]", "local-cluster[2,1,1024]"):
        folder = tmp_path / master.partition("[")[0]
        done = subprocess.run(
            [sys.executable, "-m", _PROGRAM, master, str(folder), ",".join(jars)],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found[master] = json.loads(done.stdout.splitlines()[-1])
    one, cluster = found.values()
    assert (one["executors"], cluster["executors"]) == (1, 2)
    assert (one["files"], cluster["files"]) == (1, 4)
    assert one["rows"] == cluster["rows"]
    assert [ordinal for ordinal, *_ in one["rows"]] == list(range(4_000))

"""The launcher under spark-submit, on real parts: one bounded run, from stream to tables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.shared_stack import now
from tidegate.local_stack.demo.bank import STREAM, Bank
from tidegate.local_stack.demo.bank_database import (
    create_bank_database,
    open_accounts,
)
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.programs import Programs, quick_start

pytestmark = pytest.mark.integration

ACCOUNTS = 30
PATIENCE_S = 400


@pytest.mark.timeout(600)
def test_a_submitted_run_ends_caught_up_and_on_the_submitters_master(
    shared_stack, tmp_path, repository
):
    database = create_bank_database(shared_stack.database_name)
    start = now()
    opened_us = open_accounts(database, Bank(accounts=ACCOUNTS, seed=1))
    programs = shared_stack.programs(STREAM)
    pipeline = Pipeline(programs)
    pipeline.start_workers(1, start=start)
    try:
        result = submit(programs, launcher=repository / "docker/spark_consumer/launch.py")
    finally:
        pipeline.stop()

    assert result.returncode == 0, result.stderr[-3_000:]
    manifests = [
        json.loads(path.read_bytes())
        for path in sorted((tmp_path / "output" / "_releases").glob("*.json"))
    ]
    assert sum(manifest["rows"] for manifest in manifests) == ACCOUNTS
    assert manifests[-1]["through_us"] >= opened_us
    (log,) = (tmp_path / "events").iterdir()
    assert '"spark.master":"local[1]"' in log.read_text()


def submit(programs: Programs, *, launcher: Path) -> subprocess.CompletedProcess[str]:
    """Run the launcher as a cluster's user would, and wait for its end."""
    events = programs.folder / "events"
    events.mkdir()
    jars = ",".join(str(jar) for jar in fetched_jvm_parts().spark_jars)
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("spark-submit")),
            *("--master", "local[1]", "--jars", jars),
            *("--driver-java-options", quick_start()),
            *("--conf", "spark.ui.enabled=false", "--conf", "spark.sql.shuffle.partitions=2"),
            *("--conf", "spark.eventLog.enabled=true", "--conf", f"spark.eventLog.dir={events}"),
            *("--conf", "spark.eventLog.rolling.enabled=false"),
            *("--conf", "spark.eventLog.compress=false"),
            str(launcher),
            *("run", "--until", "caught-up", "--prefix", programs.prefix),
            *("--bootstrap-servers", programs.bootstrap_servers),
            *("--registry-url", programs.registry_url),
            *("--output", str(programs.output), "--checkpoint", str(programs.checkpoint)),
        ],
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

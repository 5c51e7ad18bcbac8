"""The first program of docs/library.md on a real stack: started, stopped, read, audited."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.integration.shared_stack import now
from tests.tidy.printed_commands import blocks
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.java import find_java
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.programs import quick_start

pytestmark = [pytest.mark.integration, pytest.mark.slow]

STREAM = "Feed"
DDL = [
    "CREATE TABLE Seen (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    "CREATE TABLE Heard (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    f"CREATE CHANGE STREAM {STREAM} FOR Seen, Heard",
]
VERSIONS = 3
KEYS = 5
DEADLINE_S = 500

AFTER = """
import json, time
from tidegate.schemas.errors import ConfigError

def is_done(checkpoint):
    try:
        found = tg.status(checkpoint)
    except ConfigError:  # no state yet
        return False
    return found["watermark_us"] >= THROUGH_US and found["mirror"]["releases_behind"] == 0

observed = {}

def wait(query, checkpoint):
    observed.clear()
    end = time.monotonic() + DEADLINE_S
    while not is_done(checkpoint):
        assert not query.awaitTermination(0.5), query.exception()
        assert time.monotonic() < end, tg.status(checkpoint)
        observed.update({one.batchId: one.observedMetrics for one in query.recentProgress})
    last = tg.status(checkpoint)["batch"]
    while (query.lastProgress or {"batchId": -1})["batchId"] < last:
        assert time.monotonic() < end, query.lastProgress
        time.sleep(0.1)
    observed.update({one.batchId: one.observedMetrics for one in query.recentProgress})
    query.stop()
    assert not query.isActive and query.exception() is None

wait(query, "/lake/_checkpoint")
tables = tg.as_of(spark, "/lake", NOW)
report = tg.audit(spark, "/lake", prefix="bank", **address)

# A query of a function alone, which writes no table.
transactions = []

def keep(changes, release):
    transactions.extend(row[0] for row in changes.selectExpr("size(changes)").collect())

alone = tg.stream(spark, prefix="bank", **address).output("/lake/alone")
alone.for_each_release(keep, mode="transaction")
wait(alone.start("/lake/alone/_checkpoint"), "/lake/alone/_checkpoint")
print(json.dumps({
    "tables": {name: [r.asDict() for r in frame.collect()] for name, frame in tables.items()},
    "seen": tables.table("Seen").count(),
    "is_proved": report.is_proved,
    "changes": report.changes,
    "transactions": transactions,
    "observed": [rows["tidegate"].released_changes for rows in observed.values()],
    "taken": [rows["tidegate_sink_function"].changes for rows in observed.values()],
    "sinks": [tg.status(one)["sinks"] for one in ("/lake/_checkpoint", "/lake/alone/_checkpoint")],
}))
"""


@pytest.mark.timeout(900)
def test_the_printed_program_runs_and_its_output_is_read_and_proved(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    start = now()
    programs = shared_stack.programs(STREAM)
    pipeline = Pipeline(programs)
    try:
        pipeline.start_workers(1, start=start)
        for version in range(VERSIONS):
            with database.batch() as batch:
                for table in ("Seen", "Heard"):
                    rows = [(key, version) for key in range(KEYS)]
                    batch.insert_or_update(table, ("Id", "V"), rows)
        done = run(programs, tmp_path, through_us=commit_time_us(batch.committed))
    finally:
        faults = pipeline.stop()
    assert done.returncode == 0, done.stderr[-4_000:]
    assert faults == []
    *printed, last = done.stdout.splitlines()
    found = json.loads(last)
    rows = [{"Id": key, "V": VERSIONS - 1} for key in range(KEYS)]
    for table in ("Seen", "Heard"):
        assert sorted(found["tables"][table], key=lambda row: row["Id"]) == rows
    assert found["seen"] == KEYS
    assert found["is_proved"]
    assert found["changes"] == sum(found["transactions"]) == VERSIONS * KEYS * 2
    assert found["transactions"] == [KEYS * 2] * VERSIONS
    assert sum(found["observed"]) == sum(found["taken"]) == found["changes"]
    assert found["sinks"] == [["changelog", "mirror", "function"], ["function"]]
    releases = [line.split() for line in printed]
    assert sum(int(line[-1]) for line in releases) == VERSIONS * KEYS * 2


def run(programs, folder, *, through_us):
    """Run the first program of the page, with this stack's addresses, and what follows it."""
    first = next(one for one in blocks("python") if one.page == "docs/library.md")
    jars = ",".join(str(jar) for jar in fetched_jvm_parts().spark_jars)
    options = {
        "spark.driver.extraJavaOptions": quick_start(),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    program = first.content + AFTER
    for printed, here in (
        ("tg.session()", f"tg.session(jars={jars!r}, master='local[2]', **{options!r})"),
        ('prefix="bank"', f"prefix={programs.prefix!r}"),
        ("broker:9092", programs.bootstrap_servers),
        ("https://registry.example/", programs.registry_url),
        ("/lake", str(folder / "lake")),
        ("THROUGH_US", str(through_us)),
        ("DEADLINE_S", str(DEADLINE_S)),
        ("NOW", "'2999-01-01T00:00:00Z'"),
    ):
        assert printed in program
        program = program.replace(printed, here)
    java = find_java()
    return subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "JAVA_HOME": str(java.home), "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S * 2,
        check=False,
    )

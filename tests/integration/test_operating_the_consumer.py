"""What an operator sees of a real run: status, tail, audit and metrics, on 100 columns."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request

import pytest
from rich.cells import cell_len

from tests.integration.commands import run_consumer
from tests.integration.shared_stack import now
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.ports import choose_ports

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DDL = [
    "CREATE TABLE Orders (Id INT64 NOT NULL, Text STRING(MAX)) PRIMARY KEY (Id)",
    "CREATE TABLE Lines (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL",
]
KEYS = 20
COLUMNS = 100
PATIENCE_S = 600


class Operator:
    """Types commands beside a run, on a terminal of so many columns."""

    def __init__(self, programs):
        self.programs, self.spec = programs, programs.consumer("operator").spec
        self.environ = {**self.spec.environ, "COLUMNS": str(COLUMNS)}
        self.checkpoint, self.output = str(programs.checkpoint), str(programs.output)

    def command(self, *arguments):
        return [*self.spec.command[:-1], *arguments]

    def types(self, *arguments):
        done = run_consumer(self.programs, *arguments, COLUMNS=str(COLUMNS))
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines
        if "--json" not in arguments:
            assert max(map(cell_len, lines)) <= COLUMNS
        return lines

    def asks(self, *arguments):
        return [json.loads(line) for line in self.types(*arguments, "--json")]


def scrape(port):
    """Return the values of a scrape by name with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        lines = answer.read().decode().splitlines()
    found = (line.rpartition(" ") for line in lines if not line.startswith("#"))
    return {name.removeprefix("tidegate_consumer_"): float(value) for name, _, value in found}


def test_what_is_printed_of_a_run_fits_and_says_the_same_everywhere(shared_stack):
    database = shared_stack.create_database(DDL)
    port = choose_ports({"consumer": 0})["consumer"]
    programs = shared_stack.programs("Feed", TIDEGATE_CONSUMER_METRICS_PORT=str(port))
    operator, pipeline = Operator(programs), Pipeline(programs)
    try:
        pipeline.start_workers(1, start=now())
        us = change(database, range(KEYS))
        pipeline.start_consumer()
        pipeline.wait_released(us, deadline_s=PATIENCE_S)
        tailed, us = follow(operator, lambda: change(database, [KEYS]))
        pipeline.wait_released(us, deadline_s=PATIENCE_S)
        status = ("status", "--checkpoint", operator.checkpoint)
        shown, (figures,) = operator.types(*status), operator.asks(*status)
        printed = operator.types(
            *("tail", "--output", operator.output, "--releases", "100000", "--no-follow")
        )
        metrics = scrape(port)
    finally:
        faults = pipeline.stop()
    assert faults == []
    audited = operator.types("audit")

    # Of each slot one line, with its worker and the begin of its slowest stream partition.
    slots = [line for line in shown if re.match(r"│ \d+ +│ w1 +│ \S+… │ \S+Z │", line)]
    assert len(slots) == len(figures["slots"]) > 0
    assert {one["worker"] for one in figures["slots"]} == {"w1"}
    assert [one["lag_s"] for one in figures["slots"]] == sorted(
        (one["lag_s"] for one in figures["slots"]), reverse=True
    )
    changes = 2 * (KEYS + 1)
    assert sum(one["changes"] for one in figures["last_releases"]) <= changes
    assert (figures["late_changes"], figures["copies"], figures["mismatches"]) == (0, 0, 0)

    times = [line.split()[0] for line in printed]
    assert len(times) == changes
    assert times == sorted(times)
    assert any(line.endswith("…") for line in printed)
    assert {one["key"]["Id"] for one in tailed} == {KEYS}
    assert [one["ordinal"] for one in tailed] == [0, 1]

    assert metrics['sink_changes_total{sink="changelog"}'] == changes
    assert metrics['sink_changes_total{sink="mirror"}'] == changes
    assert metrics['sink_release{sink="changelog"}'] >= figures["releases"] - 1
    for phase in ("load", "plan", "release", "sinks", "manifest", "state", "spark-walCommit"):
        assert metrics[f'batch_phase_seconds_total{{phase="{phase}"}}'] > 0
    assert metrics["released_changes_total"] == changes
    assert metrics["watermark_lag_seconds"] > 0
    assert "proved" in audited[0]


def change(database, keys):
    with database.batch() as batch:
        batch.insert("Orders", ("Id", "Text"), [(key, f"{key} " * 100) for key in keys])
        batch.insert("Lines", ("Id", "V"), [(key, key) for key in keys])
    return commit_time_us(batch.committed)


def follow(operator, deed):
    """Return what a `tail` prints of a deed of two changes, done while it runs, and its time."""
    every = ("--releases", "100000")
    command = operator.command("tail", "--output", operator.output, *every, "--json")
    with subprocess.Popen(
        command, env=operator.environ, cwd=operator.spec.folder, stdout=subprocess.PIPE, text=True
    ) as tail:
        watchdog = threading.Timer(PATIENCE_S, tail.kill)
        watchdog.start()
        found, us = [], None
        try:
            while len(found) < 2:
                line = tail.stdout.readline()
                assert line, "tail has ended"
                one = json.loads(line)
                us = us or deed()
                if one["key"]["Id"] == KEYS:
                    found.append(one)
        finally:
            watchdog.cancel()
            tail.kill()
    return found, us

"""The consumer as a program: started too early, operated, replaced when it is killed, submitted.

All other tests of this folder run the consumer as a query of the test's own process.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from rich.cells import cell_len

from tests.integration.shared_stack import PATIENCE_S, now, run_consumer, running, until
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.local_stack.parts.jvm_parts import fetched_jvm_parts
from tidegate.local_stack.parts.process import choose_ports
from tidegate.local_stack.parts.programs import Programs, quick_start

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

DDL = [
    "CREATE TABLE Orders (Id INT64 NOT NULL, Text STRING(MAX)) PRIMARY KEY (Id)",
    "CREATE TABLE Lines (Id INT64 NOT NULL, V INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL",
]
KEYS = 20
COLUMNS = 100


def probe(port, path):
    """Return (status, text) of a probe; (0, "") while nothing listens."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode().strip()
    except OSError:
        return 0, ""


class Operator:
    """Types commands beside a run, on a terminal of so many columns."""

    def __init__(self, programs):
        self.programs, self.spec = programs, programs.consumer("operator").spec
        self.environ = {**self.spec.environ, "COLUMNS": str(COLUMNS)}
        self.checkpoint, self.output = str(programs.checkpoint), str(programs.output)

    def types(self, *arguments):
        done = run_consumer(self.programs, *arguments, COLUMNS=str(COLUMNS))
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        assert lines
        if "--json" not in arguments:
            assert max(map(cell_len, lines)) <= COLUMNS
        return lines

    def follows(self, deed):
        """Return what a `tail` prints of a deed of two changes while it runs, and its time."""
        every = ("--releases", "100000", "--json")
        command = [*self.spec.command[:-1], "tail", "--output", self.output, *every]
        with subprocess.Popen(
            command, env=self.environ, cwd=self.spec.folder, stdout=subprocess.PIPE, text=True
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


def change(database, keys):
    with database.batch() as batch:
        batch.insert("Orders", ("Id", "Text"), [(key, f"{key} " * 100) for key in keys])
        batch.insert("Lines", ("Id", "V"), [(key, key) for key in keys])
    return commit_time_us(batch.committed)


def lint_metrics(*pages):
    """Let Prometheus' own tool look at pages, where it is installed."""
    promtool = shutil.which("promtool")
    for page in pages if promtool else ():
        done = subprocess.run(
            [promtool, "check", "metrics"],
            input=f"{page}\n", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_it_waits_for_topics_is_operated_and_is_replaced_when_it_is_killed(shared_stack):
    database = shared_stack.create_database(DDL)
    ports = choose_ports({"worker": 0, "first": 0, "spare": 0})
    programs = shared_stack.programs(PRODUCER_METRICS_PORT=ports["worker"])
    pipeline, started = Pipeline(programs), []

    def consumer(name, port, **changed):
        more = {**programs.more, "TIDEGATE_CONSUMER_METRICS_PORT": str(port)}
        made = replace(programs, more=more, **changed).consumer(name)
        started.append(made)
        made.start()
        return made

    def ready(name, answer, *alive):
        def is_answered():
            assert all(one.process.is_running for one in alive)
            return probe(ports[name], "/readyz") == answer

        until(is_answered)

    try:
        first = consumer("first", ports["first"])
        ready("first", (503, f"waiting for topics: {programs.prefix}-progress"), first)
        assert probe(ports["first"], "/healthz") == (200, "ok")
        pipeline.start_workers(1, start=now())
        ready("worker", (200, "ok"), first)
        us = change(database, range(KEYS))
        pipeline.wait_released(us, deadline_s=PATIENCE_S)
        ready("first", (200, "ok"), first)
        _, scrape = probe(ports["worker"], "/metrics")
        assert "tidegate_producer_slots 16.0" in scrape
        assert "process_resident_memory_bytes" in scrape
        ages = re.search(r"tidegate_producer_commit_to_kafka_seconds_count (\S+)", scrape)[1]
        assert float(ages) > 0
        lint_metrics(scrape, probe(ports["first"], "/metrics")[1])

        what_is_printed_fits_and_says_the_same_everywhere(
            Operator(programs), pipeline, lambda: change(database, [KEYS]), ports["first"]
        )

        spare = consumer("spare", ports["spare"])
        ready("spare", (503, "stands by: run 1 works on this checkpoint"), first, spare)
        elsewhere = run_consumer(programs, "run", CONSUMER_OUTPUT=str(programs.folder / "else"))
        assert elsewhere.returncode == 2
        assert probe(ports["first"], "/readyz") == (200, "ok")
        first.kill()
        ready("spare", (200, "ok"), spare)
        pipeline.wait_released(change(database, [KEYS + 1]), deadline_s=PATIENCE_S)
        os.kill(spare.process.pid, signal.SIGINT)
        assert spare.process.wait(deadline_s=PATIENCE_S) == 0
        assert '"run": 2' in spare.spec.log.read_text()
    finally:
        for one in started:
            one.kill()
        faults = pipeline.stop()
    assert faults == []
    for log in programs.folder.glob("logs/*.log"):
        assert "Traceback" not in log.read_text()
        assert "rdkafka#" not in log.read_text().replace('"client": "rdkafka#', "")


def what_is_printed_fits_and_says_the_same_everywhere(operator, pipeline, deed, port):
    """What an operator sees of a run: status, tail, audit and metrics, on 100 columns."""
    tailed, us = operator.follows(deed)
    pipeline.wait_released(us, deadline_s=PATIENCE_S)
    status = ("status", "--checkpoint", operator.checkpoint)
    shown, (figures,) = operator.types(*status), map(json.loads, operator.types(*status, "--json"))
    printed = operator.types(
        *("tail", "--output", operator.output, "--releases", "100000", "--no-follow")
    )
    _, text = probe(port, "/metrics")
    lines = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
    metrics = {name.removeprefix("tidegate_consumer_"): float(value) for name, _, value in lines}
    audited = operator.types("audit")

    # Of each slot one line, with its worker and the begin of its slowest stream partition.
    slots = [line for line in shown if re.match(r"│ \d+ +│ w1 +│ \S+… │ \S+Z │", line)]
    assert len(slots) == len(figures["slots"]) > 0
    assert {one["worker"] for one in figures["slots"]} == {"w1"}
    lags = [one["lag_s"] for one in figures["slots"]]
    assert lags == sorted(lags, reverse=True)
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
    for name in ("commit_to_release_seconds", "batch_duration_seconds"):
        assert metrics[f'{name}_bucket{{le="3600.0"}}'] > 0
    assert "proved" in audited[0]


def test_a_submitted_run_ends_caught_up_and_on_the_submitters_master(shared_stack, repository):
    database, programs = shared_stack.create_database(DDL), shared_stack.programs()
    with running(programs):
        us = change(database, range(KEYS))
        result = submit(programs, launcher=repository / "tidegate/spark_consumer/__main__.py")

    assert result.returncode == 0, result.stderr[-3_000:]
    manifests = [
        json.loads(path.read_bytes())
        for path in sorted((programs.output / "_releases").glob("*.json"))
    ]
    assert sum(manifest["rows"] for manifest in manifests) == 2 * KEYS
    assert manifests[-1]["through_us"] >= us
    (log,) = (programs.folder / "events").iterdir()
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


@pytest.fixture
def lineage_backend():
    """An OpenLineage backend that refuses every second event."""
    received = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(500 if len(received) % 2 else 201)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


@pytest.mark.deep
def test_both_programs_tell_an_openlineage_backend_what_they_read_and_write(
    shared_stack, lineage_backend
):
    pytest.importorskip("openlineage")
    url, received = lineage_backend
    plain = shared_stack.programs(PRODUCER_OPENLINEAGE="true", CONSUMER_OPENLINEAGE="true")
    transport = {"type": "http", "url": url, "retry": {"total": 0}}
    more = {**plain.more, "OPENLINEAGE__TRANSPORT": json.dumps(transport)}
    programs = replace(plain, more=more)
    database = shared_stack.create_database(DDL)
    with running(programs):
        change(database, range(KEYS))
        done = run_consumer(programs, "run", "--until", "caught-up")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "lineage event not sent" in done.stdout  # and the run went on
    events = {}
    for one in received:
        events.setdefault(one["job"]["name"].partition(".")[0], []).append(one)
    assert events.keys() == {"tidegate-producer", "tidegate-consumer"}
    for of_program in events.values():
        kinds = [one["eventType"] for one in of_program]
        assert (kinds[0], kinds[-1]) == ("START", "COMPLETE")
        assert set(kinds[1:-1]) == {"RUNNING"}
    last = events["tidegate-producer"][-1]
    names = {f"{programs.prefix}.{table}" for table in ("Orders", "Lines")}
    assert {one["name"] for one in last["outputs"]} == names
    assert {one["name"].rpartition(".")[2] for one in last["inputs"]} == {"Orders", "Lines"}
    rows = {
        one["name"]: one["outputFacets"]["outputStatistics"]["rowCount"] for one in last["outputs"]
    }
    assert rows == dict.fromkeys(names, KEYS)
    last = events["tidegate-consumer"][-1]
    assert {one["name"] for one in last["inputs"]} == names
    folders = {
        f"{programs.output}/{sink}/{table}"
        for sink in ("changelog", "mirror")
        for table in ("Orders", "Lines")
    }
    assert {one["name"] for one in last["outputs"]} == folders
    assert last["run"]["facets"]["tidegate_progress"]["watermark"] > now()[:4]

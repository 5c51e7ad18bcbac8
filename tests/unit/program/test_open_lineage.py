"""OpenLineage events: when there are some, what is in them, and that sending harms nothing."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import jsonschema
import pytest
from structlog.testing import capture_logs

from tidegate.program import extras
from tidegate.program.extras import is_installed
from tidegate.program.open_lineage import (
    Dataset,
    LineageSender,
    RunLineage,
    RunReport,
    kafka_namespace,
    place_of,
    reported,
)
from tidegate.schemas.errors import ConfigError, UnreachableError

MINUTE_US = 60_000_000
ON = SimpleNamespace(openlineage=True, prefix="bank")
TOPIC = Dataset("kafka://b:1", "bank.t", (("id", "long"),))
TABLE = Dataset("file", "/lake/mirror/t", (("id", "long"), ("at", "timestamp-micros")), "t")

FACETS = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["_producer", "_schemaURL"],
        "properties": {"_producer": {"format": "uri"}, "_schemaURL": {"format": "uri"}},
    },
}
DATASETS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["namespace", "name"],
        "properties": {"facets": FACETS, "outputFacets": FACETS},
    },
}
EVENT = {
    "type": "object",
    "required": ["eventType", "eventTime", "run", "job", "producer", "schemaURL"],
    "properties": {
        "eventType": {"enum": ["START", "RUNNING", "COMPLETE", "FAIL"]},
        "eventTime": {"pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"},
        "run": {
            "type": "object",
            "required": ["runId"],
            "properties": {
                "runId": {"pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"},
                "facets": FACETS,
            },
        },
        "job": {
            "type": "object",
            "required": ["namespace", "name"],
            "properties": {"facets": FACETS},
        },
        "inputs": DATASETS,
        "outputs": DATASETS,
        "schemaURL": {"pattern": r"^https://openlineage\.io/spec/2-0-2/OpenLineage\.json#/"},
    },
}
"""What the specification, version 2-0-2, asks of an event."""


# ---------------------------------------------------------------- when there is an event
def test_an_event_comes_once_a_minute_and_at_once_for_a_new_schema():
    report, asked = RunReport(), []

    def progress(now_us, *, rows=1, schemas=("a",), outputs=(TABLE,)):
        def datasets():
            asked.append(now_us)
            return (TOPIC,), outputs

        return report.progress(
            now_us, rows={"t": rows}, watermark_us=7, schemas=schemas, datasets=datasets
        )

    assert not report.has_begun
    first = report.start(0)
    assert (first.kind, first.datasets, first.watermark_us) == ("START", ((), ()), None)
    assert progress(1).kind == "RUNNING"
    assert progress(2) is progress(MINUTE_US) is None
    later = progress(MINUTE_US + 1)
    assert (later.rows, later.datasets, later.watermark_us) == ({"t": 4}, ((TOPIC,), (TABLE,)), 7)
    # A batch without the newest schemas is nothing new; tables of earlier batches stay.
    assert progress(MINUTE_US + 2, schemas=()) is None
    other = Dataset("file", "/lake/mirror/u", (), "u")
    grown = progress(MINUTE_US + 3, schemas=("a", "b"), outputs=(other,))
    assert grown.datasets == ((TOPIC,), (TABLE, other))
    assert asked == [1, MINUTE_US + 1, MINUTE_US + 3]
    assert (report.end(9).kind, report.end(9).rows) == ("COMPLETE", {"t": 6})
    assert (report.end(9, error="X").kind, report.end(9, error="X").error) == ("FAIL", "X")


@pytest.mark.parametrize(
    ("uri", "place"),
    [
        ("/lake/out", ("file", "/lake/out")),
        ("file:/lake/out", ("file", "/lake/out")),
        ("file:///lake/out", ("file", "/lake/out")),
        ("s3a://bucket/lake/out", ("s3://bucket", "lake/out")),
        ("s3a://key:hush@bucket/lake", ("s3://bucket", "lake")),
        ("gs://bucket/lake/", ("gs://bucket", "lake")),
        ("abfss://c@a.dfs.example/lake", ("abfss://c@a.dfs.example", "/lake")),
        ("hdfs://name:8020/lake", ("hdfs://name:8020", "/lake")),
    ],
)
def test_places_have_the_names_that_other_programs_give_them(uri, place):
    assert place_of(uri) == place
    assert kafka_namespace("b1:9092, b2:9092") == "kafka://b1:9092"


# ---------------------------------------------------------------- sending
def test_a_backend_that_fails_costs_events_only_and_one_warning():
    tried = []

    def emit(event):
        tried.append(event.kind)
        raise OSError("http://user:hush@backend refused")

    with capture_logs() as lines:
        sender = LineageSender(emit)
        lineage = RunLineage(sender)
        lineage.begin()
        lineage.begin()
        lineage.end(error="UnreachableError")
        sender.close()
    assert tried == ["START", "FAIL"]
    assert lines == [
        {"event": "lineage event not sent", "log_level": "warning", "error": "OSError"}
    ]


def test_a_backend_that_hangs_holds_nobody_up_and_gets_the_newest_events():
    sent, may_go_on = [], threading.Event()

    def emit(event):
        may_go_on.wait()
        sent.append(event)

    sender = LineageSender(emit, close_s=0.01)
    report = RunReport()
    for number in range(100):
        sender.send(report.start(number))
    sender.send(report.end(100))
    sender.close()  # it does not wait for the backend
    assert sent == []
    may_go_on.set()
    sender._thread.join()
    assert len(sent) < 20
    assert sent[-1].kind == "COMPLETE"


def test_datasets_that_cannot_be_listed_are_left_out_with_a_warning():
    sent = []
    sender = LineageSender(sent.append)
    lineage = RunLineage(sender, clock_us=lambda: 5)

    def torn():
        raise UnreachableError("no manifest")

    with capture_logs() as lines:
        lineage.begin()
        lineage.follow(rows={}, watermark_us=None, schemas=("a",), datasets=torn)
        lineage.follow(rows={}, watermark_us=None, schemas=("a",), datasets=lambda: ((), (TABLE,)))
        sender.close()
    assert [line["error"] for line in lines] == ["UnreachableError"]
    assert [event.kind for event in sent] == ["START", "RUNNING"]


def test_a_run_that_never_worked_has_no_events():
    sent = []
    sender = LineageSender(sent.append)
    RunLineage(sender).end(error="ConfigError")
    sender.close()
    assert sent == []


# ---------------------------------------------------------------- configuration
def test_it_is_off_unless_asked_for_and_its_extra_is_named(monkeypatch):
    with reported(SimpleNamespace(openlineage=False, prefix="p"), program="x") as lineage:
        assert lineage is None
    monkeypatch.setattr(extras, "is_installed", lambda _module: False)
    with (
        pytest.raises(ConfigError, match=r"tidegate\[lineage\]"),
        reported(ON, program="x"),
    ):
        raise AssertionError


needs_client = pytest.mark.skipif(
    not is_installed("openlineage.client"), reason="openlineage-python is not installed"
)


@pytest.fixture
def configured(monkeypatch, tmp_path):
    """Write the client's configuration file; nothing else of this machine configures it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("OPENLINEAGE_URL", raising=False)
    file = tmp_path / "openlineage.yml"
    monkeypatch.setenv("OPENLINEAGE_CONFIG", str(file))
    return file.write_text


@needs_client
def test_a_configuration_that_cannot_be_used_is_refused_without_its_text(configured):
    with pytest.raises(ConfigError, match="no transport is configured"), reported(ON, program="x"):
        raise AssertionError
    configured("transport: {type: file, apiKey: hush}")
    with pytest.raises(ConfigError, match="cannot be used") as raised, reported(ON, program="x"):
        raise AssertionError
    assert "hush" not in str(raised.value)
    assert raised.value.exit_code == 2
    configured("transport: {type: console}")
    with reported(ON, program="x") as lineage:
        assert lineage is not None


@pytest.fixture
def backend():
    """A server that keeps what is posted to it."""
    received = []

    class Answer(BaseHTTPRequestHandler):
        def do_POST(self):
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()
    thread.join()


def work(lineage):
    lineage.begin()
    lineage.follow(
        rows={"t": 3}, watermark_us=1_500_000, schemas=("a",),
        datasets=lambda: ((TOPIC,), (TABLE,)),
    )  # fmt: skip


def fail_in_a_run():
    with reported(ON, program="tidegate-consumer") as lineage:
        work(lineage)
        raise UnreachableError("customer 4711 is not there")


@needs_client
def test_events_are_those_of_the_specification(configured, backend, monkeypatch):
    url, received = backend
    configured(f"transport: {{type: http, url: '{url}'}}")
    monkeypatch.setenv("OPENLINEAGE_NAMESPACE", "banking")
    with reported(ON, program="tidegate-consumer") as lineage:
        work(lineage)
    with pytest.raises(UnreachableError):
        fail_in_a_run()
    kinds = [one["eventType"] for one in received]
    assert kinds == ["START", "RUNNING", "COMPLETE", "START", "RUNNING", "FAIL"]
    for one in received:
        jsonschema.validate(one, EVENT)
        job = {name: one["job"][name] for name in ("namespace", "name")}
        assert job == {"namespace": "banking", "name": "tidegate-consumer.bank"}
    first, second = ({one["run"]["runId"] for one in part} for part in (received[:3], received[3:]))
    assert len(first) == len(second) == len(first | second) - 1
    _, running, complete = received[:3]
    assert (
        running["run"]["facets"]["tidegate_progress"]["watermark"] == "1970-01-01T00:00:01.500000Z"
    )
    (source,), (target,) = running["inputs"], running["outputs"]
    assert (source["namespace"], source["name"]) == ("kafka://b:1", "bank.t")
    assert (target["namespace"], target["name"]) == ("file", "/lake/mirror/t")
    fields = target["facets"]["schema"]["fields"]
    assert [(one["name"], one["type"]) for one in fields] == list(TABLE.fields)
    assert target["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert complete["outputs"] == running["outputs"]
    # The class of an error only: its text may hold rows.
    assert received[5]["run"]["facets"]["errorMessage"]["message"] == "UnreachableError"
    assert "4711" not in json.dumps(received)


@needs_client
def test_events_go_to_a_file_by_the_clients_own_configuration(configured, tmp_path):
    file = tmp_path / "events.jsonl"
    configured(f"transport: {{type: file, log_file_path: '{file}', append: true}}")
    with reported(ON, program="tidegate-producer") as lineage:
        work(lineage)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["eventType"] for line in lines] == ["START", "RUNNING", "COMPLETE"]


@needs_client
def test_a_backend_that_is_not_there_is_logged_and_no_more(configured):
    configured("transport: {type: http, url: 'http://127.0.0.1:9', retry: {total: 0}}")
    with capture_logs() as lines, reported(ON, program="x") as lineage:
        work(lineage)
    assert [line["event"] for line in lines] == ["lineage event not sent"]

"""A running query's end, with scripted parts; tests/spark/library has Spark's own."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tests.unit.spark_consumer.batch.test_figures import figures
from tests.unit.spark_consumer.disk_folder import DiskFolder
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.batch.figures import RecentFigures
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.file_names import QUERY_FILE, state_file
from tidegate.spark_consumer.errors import ChangesExpired, WriterReplaced
from tidegate.spark_consumer.library.query import QueryFailed, TidegateQuery
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

EXPIRED = ChangesExpired("Kafka has removed records", hint="Start again", topic="bank.a")


class JavaQuery:
    """Spark's query behind its Python object."""

    def __init__(self, steps):
        self.steps = steps
        self.is_active = True
        self.failure = None
        self.ended = threading.Event()

    def isActive(self):  # noqa: N802 - Spark's name
        return self.is_active

    def status(self):
        said = {"message": "Waiting", "isDataAvailable": False, "isTriggerActive": False}
        return SimpleNamespace(json=lambda: json.dumps(said))

    def end(self, failure=None):
        self.is_active, self.failure = False, failure
        self.ended.set()

    def stop(self):
        self.steps.append("query")
        self.end(self.failure)

    def awaitTermination(self, timeout_ms=None):  # noqa: N802 - Spark's name
        assert timeout_ms != 0, "Timeout has to be positive"
        has_ended = self.ended.wait(30 if timeout_ms is None else timeout_ms / 1_000)
        if self.failure is not None:
            raise StreamingQueryException(self.failure)
        return None if timeout_ms is None else has_ended

    processAllAvailable = awaitTermination  # noqa: N815 - Spark's name


class PlainQuery(StreamingQuery):
    """Makes Spark's exception without a JVM."""

    def exception(self):
        text = self._jsq.failure
        return None if text is None else StreamingQueryException(text)


class Running:
    """A gate with its query; `named` is what the gate says of its failure."""

    def __init__(self):
        self.steps, self.expected_us = [], []
        self.given_back, self.closed = threading.Event(), threading.Event()
        self.java = JavaQuery(self.steps)
        self.query = PlainQuery(self.java)
        self.batch = SimpleNamespace(
            failure=None,
            stop=lambda: self.steps.append("batch"),
            close=self.closed.set,
            expect=self.expected_us.append,
        )
        self.lease = SimpleNamespace(failure=None, stop=self.given_back.set)
        self.named = None
        self.gate = self.output = None

    def failure(self):
        return self.named or self.batch.failure or self.query.exception()

    def stop(self):
        self.steps.append("gate")
        self.java.stop()
        self.lease.stop()


@pytest.fixture
def running():
    found = Running()
    yield found
    found.java.end()


def started(running):
    return TidegateQuery(running, poll_s=0.001)


def fail(running, error):
    running.batch.failure = error
    running.java.end("An exception was raised by the Python Proxy")


@pytest.mark.parametrize("refused", [None, "RunStopped: the run is stopping"])
def test_a_stop_finishes_the_batch_first_and_gives_the_checkpoint_back(running, refused):
    query = started(running)
    assert isinstance(query, StreamingQuery)
    assert (query.isActive, query.exception(), query.awaitTermination(0.001)) == (True, None, False)
    running.java.failure = refused  # a batch that is refused meanwhile is no failure
    query.stop()
    query.stop()
    assert running.steps[:3] == ["batch", "gate", "query"]
    assert running.given_back.is_set()
    assert query.awaitTermination() is None
    assert query.awaitTermination(1) is True
    assert query.exception() is None
    query.processAllAvailable()


def test_a_stop_whose_query_cannot_be_stopped_gives_the_checkpoint_back_all_the_same(running):
    def fail():
        raise TimeoutError

    running.stop = fail
    with pytest.raises(TimeoutError):
        started(running).stop()
    assert running.given_back.is_set()


@pytest.mark.parametrize("wait", ["awaitTermination", "processAllAvailable"])
def test_a_failure_of_the_gate_is_raised_with_its_class_and_hint(running, wait):
    query = started(running)
    fail(running, EXPIRED)
    with pytest.raises(StreamingQueryException) as caught:
        getattr(query, wait)()
    assert str(caught.value) == (
        "ChangesExpired: Kafka has removed records (topic='bank.a'). Start again"
    )
    assert caught.value.error is caught.value.__cause__ is EXPIRED
    assert not caught.value.retriable
    assert caught.value is query.exception()
    assert running.given_back.wait(30)
    assert running.closed.is_set()
    query.stop()  # a failure stays one after a stop
    assert isinstance(query.exception(), QueryFailed)


@pytest.mark.parametrize(
    ("of_batch", "of_gate", "text", "retriable"),
    [
        (KeyError("balance"), None, "KeyError: 'balance'", False),  # a function's own error
        (UnreachableError("no broker answers"), None, "no broker answers", True),
        (None, EXPIRED, "ChangesExpired", False),
        (None, None, "Kafka's client gives up", None),
    ],
)
def test_a_failure_has_the_name_that_says_most(running, of_batch, of_gate, text, retriable):
    query = started(running)
    running.batch.failure, running.named = of_batch, of_gate
    running.java.end("Kafka's client gives up")
    with pytest.raises(StreamingQueryException, match=text) as caught:
        query.awaitTermination()
    assert isinstance(caught.value, QueryFailed) is (retriable is not None)
    if retriable is not None:
        assert (caught.value.error, caught.value.retriable) == (of_batch or of_gate, retriable)


def test_a_query_whose_checkpoint_was_taken_stops_and_says_so(running):
    query = started(running)
    running.lease.failure = WriterReplaced("another run has taken this folder")
    with pytest.raises(QueryFailed, match="WriterReplaced: another run"):
        query.awaitTermination()
    assert running.given_back.wait(30)
    assert running.steps == ["batch", "query"]


PROGRESS = {
    "id": "7a6f6a4e-7b1d-4b7a-9d5e-0d8a3a7f0c11",
    "runId": "7a6f6a4e-7b1d-4b7a-9d5e-0d8a3a7f0c12",
    "name": "tidegate-bank",
    "timestamp": "2026-11-22T10:00:00.000Z",
    "batchDuration": 900,
    "stateOperators": [],
    "sources": [],
    "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
}


def test_progress_has_the_figures_of_its_batch_among_the_observed_metrics(running):
    def progress(batch, **more):
        return SimpleNamespace(json=lambda: json.dumps({**PROGRESS, "batchId": batch, **more}))

    running.java.lastProgress = lambda: None
    running.java.recentProgress = list
    query = started(running)
    assert (query.lastProgress, query.recentProgress) == (None, [])
    running.batch.figures = RecentFigures()
    running.batch.figures.add(figures())
    mine = {"observedMetrics": {"mine": {"rows": 5}}}
    running.java.recentProgress = lambda: [progress(5, **mine), progress(6, **mine)]
    running.java.lastProgress = lambda: progress(6)
    observed = query.lastProgress.observedMetrics
    assert observed["tidegate"].watermark_timestamp_seconds == 3.0
    assert observed["tidegate_phase_seconds"].sinks == 3.0
    assert observed["tidegate_sink_changelog"].release == 8
    assert '"tidegate_sink_changelog"' in query.lastProgress.prettyJson
    before, last = query.recentProgress
    assert before.observedMetrics["mine"].rows == last.observedMetrics["mine"].rows == 5
    assert "tidegate" not in before.observedMetrics
    assert last.observedMetrics["tidegate"].copies == 2


@pytest.fixture
def gate(running, tmp_path):
    running.gate, running.output = DiskFolder(tmp_path / "gate"), DiskFolder(tmp_path / "out")
    running.gate.write_json(QUERY_FILE, {"output": str(tmp_path / "out")})

    def store(batch, watermark_us, *, releases, mirrored):
        state = State("bank", "q", batch=batch, watermark_us=watermark_us)
        state = replace(state, next_release=releases, mirror_release=mirrored)
        running.gate.write_json(state_file(batch), state.snapshot())

    return store


def test_its_status_is_that_of_the_checkpoint(running, gate, tmp_path):
    query = started(running)
    with pytest.raises(ConfigError, match="no state in this checkpoint"):
        query.status()
    gate(0, 7, releases=1, mirrored=0)
    write_manifest(running.output, Manifest(0, "q", 0, 0, 7, 3, {}))

    status = query.status()

    # As a property it is Spark's own.
    assert query.status == StreamingQuery(running.java).status
    assert query.status["message"] == "Waiting"
    assert (status["watermark_us"], status["output"]) == (7, str(tmp_path / "out"))
    assert [one["changes"] for one in status["last_releases"]] == [3]


def test_its_releases_are_a_frame_and_a_picture(running, gate):
    query = started(running)
    for number in range(3):
        write_manifest(running.output, Manifest(number, "q", number, 0, 7, number, {}))

    assert query.releases(2)["rows"].tolist() == [1, 2]
    (above, _) = query.plot().axes
    assert above.get_lines()[0].get_xdata().tolist() == [0, 1, 2]


def test_a_release_has_come_when_the_watermark_has_passed_and_the_mirrors_have_it(running, gate):
    query = started(running)
    assert query.awaitRelease(5, timeout=0.01) is False
    steps = ((4, 1, 0, False), (5, 2, 0, False), (5, 2, 1, True))
    for batch, (watermark_us, releases, mirrored, has_come) in enumerate(steps):
        gate(batch, watermark_us, releases=releases, mirrored=mirrored)
        assert query.awaitRelease(5, timeout=0.01) is has_come
    assert set(running.expected_us) == {5}
    assert query.awaitRelease("1970-01-01T00:00:00.000005Z", timeout=0.01)
    # Without a time it is now.
    assert query.awaitRelease(timeout=0.01) is False
    # Spark waits for whole milliseconds, and refuses to wait for none.
    assert query.awaitRelease(timeout=0.0005) is False


def test_to_wait_for_a_release_ends_with_the_query_or_raises_what_has_ended_it(running, gate):
    query = started(running)
    query.stop()
    assert query.awaitRelease(5) is False
    gate(0, 5, releases=1, mirrored=0)
    assert query.awaitRelease(5)
    failed = Running()
    failed.gate, failed.output = running.gate, running.output
    query = started(failed)
    fail(failed, EXPIRED)
    with pytest.raises(QueryFailed, match="ChangesExpired"):
        query.awaitRelease(6)

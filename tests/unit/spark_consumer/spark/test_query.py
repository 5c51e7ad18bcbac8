"""How a run's failure is reported; the parts are scripted, and no Spark is started."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog
from structlog.testing import capture_logs

from tidegate.program.health import Health
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.caught_up import CaughtUp
from tidegate.spark_consumer.core.retention import FirstRecord
from tidegate.spark_consumer.errors import ChangesExpired, CheckpointConflict, WriterReplaced
from tidegate.spark_consumer.spark import query
from tidegate.spark_consumer.spark.gate_query import GateQuery
from tidegate.spark_consumer.spark.query import _begin, _wait

CONFLICT = RuntimeError("two runs at once")
REPLACED = WriterReplaced("another run has taken this folder")


def ended(*, of_batch=None, of_query=None, of_gate=None):
    """Return a query that has ended by failures, and a gate that answers with one."""

    def require_writer():
        if of_gate is not None:
            raise of_gate

    query = SimpleNamespace(isActive=False, exception=lambda: of_query)
    return GateQuery(
        query,
        SimpleNamespace(failure=of_batch),
        SimpleNamespace(require_writer=require_writer),
        SimpleNamespace(failure=None),
        frontier=lambda _: None,
    )


@pytest.mark.parametrize(
    ("sinks", "asked"), [("changelog", []), ("changelog,iceberg_mirror", ["lake"])]
)
def test_a_session_needs_iceberg_only_where_a_sink_does(monkeypatch, sinks, asked):
    class Reached(Exception):
        pass

    def reach(_):
        raise Reached

    found = []
    monkeypatch.setattr(query, "require_session", lambda _: None)
    monkeypatch.setattr(query, "require_iceberg", lambda _, *, catalog: found.append(catalog))
    monkeypatch.setattr(query, "hide_logins", reach)
    config = ConsumerConfig(
        bootstrap_servers="b", registry_url="http://r", prefix="bank", output="o", checkpoint="c",
        sinks=sinks, iceberg_catalog="lake" if asked else "",
    )  # fmt: skip
    with pytest.raises(Reached):
        query.build_query(None, config)
    assert found == asked


@pytest.mark.parametrize("where", ["of_batch", "of_query"])
def test_a_run_that_was_replaced_says_so_whatever_has_refused_it(where):
    running = ended(**{where: CONFLICT}, of_gate=REPLACED)

    with pytest.raises(WriterReplaced) as raised:
        _wait(running, threading.Event(), Health())
    assert raised.value.__cause__ is CONFLICT


@pytest.mark.parametrize("where", ["of_batch", "of_query"])
@pytest.mark.parametrize("of_gate", [None, ConnectionError("the JVM is gone")])
def test_any_other_failure_is_raised_as_it_is(where, of_gate):
    running = ended(**{where: CONFLICT}, of_gate=of_gate)

    with pytest.raises(RuntimeError, match="two runs at once"):
        _wait(running, threading.Event(), Health())


@pytest.mark.parametrize("where", ["of_batch", "of_query"])
def test_records_that_have_expired_are_named_whatever_spark_says(where):
    def require_kept():
        raise ChangesExpired("removed", topic="bank.a")

    running = replace(ended(**{where: CONFLICT}), require_kept=require_kept)
    with pytest.raises(ChangesExpired, match=r"bank\.a") as raised:
        _wait(running, threading.Event(), Health())
    assert raised.value.__cause__ is CONFLICT


def test_a_kafka_that_does_not_answer_hides_no_failure():
    def require_kept():
        raise ConnectionError

    with pytest.raises(RuntimeError, match="two runs at once"):
        _wait(
            replace(ended(of_query=CONFLICT), require_kept=require_kept),
            threading.Event(),
            Health(),
        )


class Starts:
    """Notes what is stored of a start."""

    def __init__(self, adopted_us=None):
        self.noted = []
        self.adopted_us = adopted_us

    def adopted(self):
        return None if self.adopted_us is None else SimpleNamespace(watermark_us=self.adopted_us)

    def note_start(self, complete_from_us):
        self.noted.append(complete_from_us)


def test_a_late_start_is_noted_and_logged_before_the_first_batch_only():
    kept = {"bank.a": {0: FirstRecord(3, 5_000)}, "bank.b": {0: FirstRecord(0, 1_000)}}
    files = Starts()
    with capture_logs() as lines:
        _begin(files, None, kept, structlog.get_logger())
        _begin(files, {"bank.a": {0: 3}}, kept, structlog.get_logger())
    assert files.noted == [5_000_000]
    (line,) = lines
    assert (line["log_level"], line["complete_from_us"], line["topics"]) == (
        "warning", 5_000_000, ["bank.a"],
    )  # fmt: skip
    with pytest.raises(ChangesExpired, match="lost_from=2, lost_through=2"):
        _begin(files, {"bank.a": {0: 2}}, kept, structlog.get_logger())


def test_a_start_with_everything_is_noted_and_not_logged():
    files = Starts()
    with capture_logs() as lines:
        _begin(files, None, {"bank.a": {0: FirstRecord(0, 5_000)}}, structlog.get_logger())
    assert (files.noted, lines) == ([None], [])


def test_an_adopted_output_keeps_its_own_beginning_while_kafka_has_what_follows_it():
    kept = {"bank.a": {0: FirstRecord(3, 5_000)}}
    files = Starts(adopted_us=5_000_000)
    _begin(files, None, kept, structlog.get_logger())
    assert files.noted == []
    with pytest.raises(ChangesExpired, match="adopted output"):
        _begin(Starts(adopted_us=4_999_999), None, kept, structlog.get_logger())


def test_a_query_that_ended_without_failure_is_no_failure():
    assert _wait(ended(), threading.Event(), Health())


def test_a_query_that_another_run_has_replaced_says_so_where_spark_has_stopped_it():
    with pytest.raises(WriterReplaced):
        _wait(ended(of_gate=REPLACED), threading.Event(), Health())


class Running:
    """A query that runs until it is stopped."""

    def __init__(self, *, replaced=None):
        self.isActive = True
        self.failure = None
        self.steps = []
        lease = SimpleNamespace(failure=replaced, stop=lambda: self.steps.append("lease"))
        self.query = GateQuery(
            self,
            SimpleNamespace(
                stop=lambda: self.steps.append("batch"),
                close=lambda: self.steps.append("sinks"),
                failure=None,
                batch_s=None,
            ),
            SimpleNamespace(), lease, frontier=lambda name: None,
        )  # fmt: skip

    def stop(self):
        self.steps.append("query")
        self.isActive = False

    def exception(self):
        return None


def test_a_run_that_is_replaced_while_nothing_happens_stops_too():
    running = Running(replaced=REPLACED)
    with pytest.raises(WriterReplaced):
        _wait(running.query, threading.Event(), Health())
    assert running.steps == ["batch", "query", "sinks", "lease"]


def test_a_run_whose_goal_is_reached_before_any_batch_ends():
    running = Running()
    goal = CaughtUp(10, now_s=0)
    goal.resume(State(prefix="bank", query_id="q", batch=3, stream_has_ended=True))
    _wait(running.query, threading.Event(), Health(), goal=goal)
    assert running.steps == ["batch", "query", "sinks", "lease"]


def test_a_query_that_reads_far_too_much_is_stopped_and_keeps_its_checkpoint(monkeypatch):
    monkeypatch.setattr(query, "_POLL_SECONDS", 0)
    running = Running()
    wanted = iter([800, 600, 400])
    is_over = _wait(
        replace(running.query, reads=1_000),
        threading.Event(),
        Health(),
        wanted=lambda: next(wanted),
    )
    assert (is_over, running.steps, list(wanted)) == (False, ["batch", "query", "sinks"], [])


def test_a_run_that_is_far_from_its_goal_says_what_it_waits_for():
    running, stop = Running(), threading.Event()
    running.query.batch.stop = stop.set
    for batch_s, said in ((None, "has the fleet a worker?"), (95.0, "the running batch, for 95 s")):
        running.isActive, goal = True, CaughtUp(10, now_s=-1e9)
        running.query.batch.batch_s = batch_s
        stop.clear()
        with capture_logs() as lines:
            timer = threading.Timer(0.1, stop.set)
            timer.start()
            _wait(running.query, stop, Health(), goal=goal)
        (line,) = [line for line in lines if line["event"] == "not caught up"]
        assert said in line["waits_for"]


LATE = RuntimeError("Multiple streaming queries are concurrently using file:/check/spark/commits.")


@pytest.mark.parametrize(
    ("of_gate", "expected"),
    [
        (None, CheckpointConflict),
        (ConnectionError("the JVM is gone"), CheckpointConflict),
        (REPLACED, WriterReplaced),
    ],
)
def test_a_late_write_is_named_for_the_run_that_may_write(of_gate, expected):
    running = ended(of_query=LATE, of_gate=of_gate)
    running.gate.root = "file:/check/gate"
    with pytest.raises(expected) as raised:
        _wait(running, threading.Event(), Health())
    assert raised.value.__cause__ is LATE
    assert raised.value.retriable == (expected is CheckpointConflict)


@pytest.fixture
def runs(monkeypatch):
    """Return a function that runs queries, each of which ends by the next of some errors."""
    config = SimpleNamespace(
        until="stopped",
        take_over=True,
        changes_per_batch_max=1,
        bytes_per_batch_max=1,
    )
    monkeypatch.setattr(query, "session_of", lambda _: SimpleNamespace(stop=lambda: None))
    monkeypatch.setattr(query, "stopped_before_java", lambda *_: nullcontext())
    monkeypatch.setattr(query, "_folders", lambda *_: (None, None))
    monkeypatch.setattr(query, "newest_state", lambda _: None)
    monkeypatch.setattr(query, "_POLL_SECONDS", 0)
    built = []

    def run(*errors, at_start=()):
        failures = iter(errors)
        starts = iter(at_start)

        def build(*_arguments, **_named):
            if error := next(starts, None):
                raise error
            running = Running()
            running.query.gate.root = "file:/check/gate"
            running.query.gate.require_writer = lambda: None
            running.isActive = False
            failure = next(failures, None)
            running.exception = lambda: failure
            built.append(running)
            return running.query

        monkeypatch.setattr(query, "build_query", build)
        query.run(config, stop=threading.Event(), begun_us=0, metrics=None, health=Health())
        return built

    run.built = built
    return run


def test_a_query_that_a_late_write_has_ended_starts_again_and_keeps_its_checkpoint(runs):
    planned = CheckpointConflict("another run has already planned this batch")
    first, second, third = runs(LATE, planned)
    assert first.steps[:2] == second.steps[:2] == ["batch", "query"]
    assert third.steps == ["lease"]


def test_a_query_that_finds_a_late_write_at_its_start_starts_again(runs):
    assert len(runs(at_start=[CheckpointConflict("metadata")])) == 1


def test_what_writes_into_the_checkpoint_again_and_again_ends_the_run(runs):
    with pytest.raises(CheckpointConflict, match="look for another query"):
        runs(*[LATE] * 100)
    assert len(runs.built) == 6

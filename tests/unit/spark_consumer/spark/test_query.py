"""How a run ends and how its failure is reported; the parts are scripted, no Spark is started."""

from __future__ import annotations

import json
import threading
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog
from deltalake.exceptions import CommitFailedError, DeltaError
from structlog.testing import capture_logs

from tests.unit.spark_consumer.core.core_building import PLAN
from tidegate.program.status_server import Health
from tidegate.schemas.errors import ConfigError, UnreachableError
from tidegate.spark_consumer.config import SINKS, ConsumerConfig
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.retention import FirstRecord
from tidegate.spark_consumer.core.runs import CaughtUp
from tidegate.spark_consumer.core.sink_names import BY_KEY, MIRRORS
from tidegate.spark_consumer.errors import (
    ChangesExpired,
    CheckpointConflict,
    DataTopicChanged,
    ReportFailed,
    WriterReplaced,
)
from tidegate.spark_consumer.sinks.delta.catalog import NamedSink
from tidegate.spark_consumer.sinks.delta.direct.table import DirectTable
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.files.datastream import FileSettings
from tidegate.spark_consumer.sinks.files.events import FileFormat, FileLimits
from tidegate.spark_consumer.sinks.kinds import KINDS
from tidegate.spark_consumer.sinks.port import MergingSink, TableSink
from tidegate.spark_consumer.spark import query, sink_factory
from tidegate.spark_consumer.spark.failures import (
    name_failure,
    require_no_conflict,
    require_storage,
)
from tidegate.spark_consumer.spark.gate_query import GateQuery
from tidegate.spark_consumer.spark.preparation import begin
from tidegate.spark_consumer.spark.query import _wait
from tidegate.spark_consumer.spark.sink_factory import all_names, make_sinks

CONFLICT = RuntimeError("two runs at once")
REPLACED = WriterReplaced("another run has taken this folder")
PLAIN = RuntimeError("a file system fails")
LATE = RuntimeError("Multiple streaming queries are concurrently using file:/check/spark/commits.")
GONE = ConnectionError("the JVM is gone")


def raises(error):
    def check():
        if error is not None:
            raise error

    return check


# ---------------------------------------------------------------- names of failures
def named(failure, *, of_gate=None, of_kafka=None):
    gate = SimpleNamespace(root="file:/check/gate", require_writer=raises(of_gate))
    return name_failure(failure, gate=gate, require_kept=raises(of_kafka))


def test_what_kafka_lacks_is_named_even_where_storage_does_not_answer():
    for lost in (ChangesExpired("removed"), DataTopicChanged("re-created")):
        found = named(PLAIN, of_gate=GONE, of_kafka=lost)
        assert (found, found.__cause__) == (lost, PLAIN)
    require_no_conflict(SimpleNamespace(root="", require_writer=raises(None)), PLAIN)
    found = named(LATE)
    assert isinstance(found, CheckpointConflict)
    assert "file:/check/gate" in str(found)


SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
)

PACKAGE = "tidegate.spark_consumer.sinks."


def raised_in(module, action):
    """Return the error of an action that a module of Tidegate's has called."""
    names = {"__name__": module, "action": action}
    exec("def call(): action()", names)
    with pytest.raises(Exception) as caught:
        names["call"]()
    return caught.value


def test_what_the_disk_refuses_is_named_with_its_cause(tmp_path):
    (tmp_path / "file").touch()

    def create():
        DirectTable.create(f"{tmp_path}/file/t", schema=SCHEMA, properties={}, metadata="{}")

    def open_file():
        (tmp_path / "file" / "t").read_bytes()

    of_delta_rs = raised_in("anywhere", create)
    of_the_system = raised_in(f"{PACKAGE}delta.direct.files", open_file)
    assert not isinstance(of_delta_rs, OSError)
    for failure in (of_delta_rs, of_the_system):
        found = named(failure)
        assert isinstance(found, UnreachableError)
        assert found.__cause__ is failure
        assert "Not a directory" in str(found)
        with pytest.raises(UnreachableError):
            require_storage(failure)


def test_other_errors_are_not_taken_for_the_disks():
    # What delta-rs calls every error of its own.
    plan = "Generic DeltaTable error: External error: Generic error: Schema error: No field named a"
    for failure in (
        raised_in(f"{PACKAGE}append", raises(GONE)),
        raised_in(f"{PACKAGE}append", raises(TimeoutError("the JVM"))),
        raised_in(f"{PACKAGE}function", raises(OSError("a user's function"))),
        raised_in(f"{PACKAGE}delta.direct.table", raises(CommitFailedError("a conflict"))),
        raised_in(f"{PACKAGE}delta.direct.table", raises(DeltaError(plan))),
        OSError("from nowhere"),
    ):
        require_storage(failure)
        assert named(failure) is failure
    # An object store that refuses is named within an error of delta-rs.
    text = "Generic DeltaTable error: External error: Generic S3 error: 503 Slow Down"
    refused = raised_in(f"{PACKAGE}delta.direct.table", raises(DeltaError(text)))
    assert isinstance(named(refused), UnreachableError)


# ---------------------------------------------------------------- a running query
@pytest.fixture
def steps():
    return []


@pytest.fixture
def running(steps):
    def step(name):
        return lambda: steps.append(name)

    return GateQuery(
        SimpleNamespace(stop=step("query"), exception=lambda: None),
        SimpleNamespace(stop=step("finish"), close=step("close"), failure=None),
        SimpleNamespace(require_writer=lambda: None),
        SimpleNamespace(stop=step("lease")),
        frontier=lambda _: None,
        unlisten=step("unlisten"),
    )


def test_the_batch_is_finished_before_the_query_stops_and_the_lease_goes_last(running, steps):
    running.stop()
    assert steps == ["finish", "query", "close", "lease"]
    steps.clear()
    running.pause()  # keeps the lease
    assert steps == ["finish", "query", "close", "unlisten"]


def test_a_failure_is_named_by_what_the_gate_says(running):
    assert running.failure() is None
    running.batch.failure = CONFLICT
    assert running.failure() is CONFLICT
    # Spark stops a query when another one of the session starts with its checkpoint.
    running.batch.failure = None
    running.gate.require_writer = raises(REPLACED)
    assert running.failure() is REPLACED
    running.gate.require_writer = raises(ConnectionError("the storage is away"))
    assert running.failure() is None


def ended(*, of_batch=None, of_query=None, of_gate=None, of_kafka=None):
    """Return a query that has ended by failures, and a gate that answers with one."""
    query = SimpleNamespace(isActive=False, exception=lambda: of_query)
    batch, lease = SimpleNamespace(failure=of_batch), SimpleNamespace(failure=None)
    gate = SimpleNamespace(require_writer=raises(of_gate), root="file:/check/gate")
    found = GateQuery(query, batch, gate, lease, frontier=lambda _: None)
    return replace(found, require_kept=raises(of_kafka))


def wait(running, **options):
    return _wait(running, threading.Event(), Health(), **options)


EXPIRED = ChangesExpired("removed", topic="bank.a")
UNREPORTED = RuntimeError(
    'Cannot invoke "scala.collection.IterableOps.map(scala.Function1)" because the return value of '
    '"scala.Option.get()" is null\n=== Streaming Query ===\nIdentifier: tidegate-bank'
)
"""The words of Spark 4.1.1, after a run that was killed in a batch."""


@pytest.mark.parametrize("where", ["of_batch", "of_query"])
def test_a_late_write_or_another_failure_is_named_for_the_run_that_may_write(where):
    for failure, answers, raised in (
        (CONFLICT, {"of_gate": REPLACED}, WriterReplaced),
        (CONFLICT, {}, RuntimeError),
        (CONFLICT, {"of_gate": GONE}, RuntimeError),
        # Records that have expired are named, whatever Spark says.
        (CONFLICT, {"of_kafka": EXPIRED}, ChangesExpired),
        (CONFLICT, {"of_kafka": GONE}, RuntimeError),
        (UNREPORTED, {}, ReportFailed),
        (UNREPORTED, {"of_gate": REPLACED}, WriterReplaced),
        # A late write is named for the run that may write.
        (LATE, {}, CheckpointConflict),
        (LATE, {"of_gate": GONE}, CheckpointConflict),
        (LATE, {"of_gate": REPLACED}, WriterReplaced),
    ):
        with pytest.raises(raised) as caught:
            wait(ended(**{where: failure}, **answers))
        if raised is RuntimeError:
            assert caught.value is failure
        else:
            assert caught.value.__cause__ is failure
            assert caught.value.retriable == (raised in (CheckpointConflict, ReportFailed))
    assert wait(ended())
    with pytest.raises(WriterReplaced):
        wait(ended(of_gate=REPLACED))


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


def test_a_query_that_does_not_start_leaves_no_client_open(monkeypatch):
    steps = []

    def refuse():
        raise UnreachableError("Spark does not start the query")

    def step(name):
        return lambda *_: steps.append(name)

    gate = SimpleNamespace(take=lambda: 1, root="file:/check/gate")
    batch = SimpleNamespace(idle_s={}, close=step("sinks"))
    for name in ("require_session", "require_login", "hide_logins"):
        monkeypatch.setattr(query, name, lambda *_: None)
    monkeypatch.setattr(query, "_folders", lambda *_: (gate, SimpleNamespace(root="file:/lake")))
    monkeypatch.setattr(query, "newest_state", lambda _: None)
    monkeypatch.setattr(query, "Lease", lambda *_: None)
    lease = SimpleNamespace(stop=step("lease"))
    monkeypatch.setattr(query, "LeaseKeeper", lambda *_, **__: lease)
    writing = SimpleNamespace(start=refuse)
    monkeypatch.setattr(query, "prepare", lambda *_, **__: (batch, writing))
    config = ConsumerConfig(
        bootstrap_servers="b", registry_url="http://r", prefix="bank", output="o", checkpoint="c"
    )
    with pytest.raises(UnreachableError):
        query.build_query(None, config)
    assert steps == ["sinks", "lease"]


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
    whole = {"bank.a": {0: FirstRecord(0, 5_000)}}
    files = Starts()
    with capture_logs() as lines:
        begin(files, None, kept, structlog.get_logger())
        begin(files, {"bank.a": {0: 3}}, kept, structlog.get_logger())
        begin(files, None, whole, structlog.get_logger())
    assert files.noted == [5_000_000, None]
    (line,) = lines
    assert (line["log_level"], line["complete_from_us"]) == ("warning", 5_000_000)
    assert line["topics"] == ["bank.a"]
    with pytest.raises(ChangesExpired, match="lost_from=2, lost_through=2"):
        begin(files, {"bank.a": {0: 2}}, kept, structlog.get_logger())
    # An adopted output keeps its own beginning while Kafka has what follows it.
    files = Starts(adopted_us=5_000_000)
    begin(files, None, kept, structlog.get_logger())
    assert files.noted == []
    with pytest.raises(ChangesExpired, match="adopted output"):
        begin(Starts(adopted_us=4_999_999), None, kept, structlog.get_logger())


class Running:
    """A query that runs until it is stopped."""

    def __init__(self, *, replaced=None):
        self.isActive, self.failure, self.steps = True, None, []
        lease = SimpleNamespace(failure=replaced, stop=self.step("lease"))
        batch = SimpleNamespace(
            stop=self.step("batch"), close=self.step("sinks"), failure=None, batch_s=None
        )
        self.query = GateQuery(self, batch, SimpleNamespace(), lease, frontier=lambda name: None)

    def step(self, name):
        return lambda: self.steps.append(name)

    def stop(self):
        self.steps.append("query")
        self.isActive = False

    def exception(self):
        return None


def test_a_run_that_is_replaced_or_has_reached_its_goal_stops_too():
    running = Running(replaced=REPLACED)
    with pytest.raises(WriterReplaced):
        wait(running.query)
    done = Running()
    goal = CaughtUp(10, now_s=0)
    goal.resume(State(prefix="bank", query_id="q", batch=3, stream_has_ended=True))
    wait(done.query, goal=goal)
    assert running.steps == done.steps == ["batch", "query", "sinks", "lease"]


def test_a_query_that_reads_far_too_much_is_stopped_and_keeps_its_checkpoint(monkeypatch):
    monkeypatch.setattr(query, "_POLL_SECONDS", 0)
    running, wanted = Running(), iter([800, 600, 400])
    is_over = wait(replace(running.query, reads=1_000), wanted=lambda: next(wanted))
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
    monkeypatch.setattr(query, "wait_for_turn", lambda *_, **__: True)
    monkeypatch.setattr(query, "_POLL_SECONDS", 0)
    monkeypatch.setattr(query, "_ABSENCE_PAUSE_S", 0)
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
    runs.built.clear()
    assert len(runs(at_start=[CheckpointConflict("metadata")])) == 1


def test_a_query_that_spark_ends_after_a_repeated_batch_starts_again(runs):
    first, second = runs(UNREPORTED)
    assert first.steps[:2] == ["batch", "query"]
    assert second.steps == ["lease"]
    with pytest.raises(ReportFailed, match="Nothing is lost"):
        runs(*[UNREPORTED] * 100)


AWAY = UnreachableError("the schema registry does not answer")


def test_a_service_that_has_answered_before_is_waited_for(runs):
    with capture_logs() as lines:
        first, second, third = runs(AWAY, AWAY)
    assert first.steps[:2] == second.steps[:2] == ["batch", "query"]
    assert third.steps == ["lease"]
    assert [line["event"] for line in lines] == ["a service does not answer"] * 2
    # Not without end.
    with pytest.raises(UnreachableError):
        runs(*[AWAY] * 100)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_a_run_that_lost_its_checkpoint_in_a_pause_stands_by(runs, monkeypatch, is_stopped):
    turns = []

    def wait_for_turn(*_arguments, **_named):
        # The lease is released before: the other run need not wait for it.
        turns.append([running.steps.copy() for running in runs.built])
        return not is_stopped

    monkeypatch.setattr(query, "wait_for_turn", wait_for_turn)
    runs(AWAY)
    assert turns == [[["batch", "query", "sinks", "lease"]]]
    assert len(runs.built) == (1 if is_stopped else 2)


def test_a_service_that_does_not_answer_at_the_start_ends_the_run(runs):
    with pytest.raises(UnreachableError):
        runs(at_start=[AWAY])
    assert runs.built == []


def test_what_writes_into_the_checkpoint_again_and_again_ends_the_run(runs):
    with pytest.raises(CheckpointConflict, match="look for another query"):
        runs(*[LATE] * 100)
    assert len(runs.built) == 6


# ---------------------------------------------------------------- the sinks of a query

PROPERTIES = {"delta.logRetentionDuration": "interval 10 days"}


def config(sinks, catalog_schema=""):
    return ConsumerConfig(
        bootstrap_servers="b", registry_url="http://r", prefix="bank", output="o", checkpoint="c",
        sinks=sinks, ordered_topic="bank-ordered" if "topic" in sinks else "",
        catalog_schema=catalog_schema,
    )  # fmt: skip


OWN = SimpleNamespace(name="mine")
OUTPUT = SimpleNamespace(root="/lake", require_writer=lambda: None)


@pytest.mark.parametrize("sinks", [*SINKS, ",".join(SINKS)])
def test_each_sink_that_settings_name_is_made_under_its_name(sinks):
    made = make_sinks(None, config(sinks), output=OUTPUT, direct=None, further=[OWN])
    assert tuple(sink.name for sink in made) == all_names(config(sinks), [OWN])
    assert made[-1] is OWN


@pytest.mark.parametrize(("sinks", "first"), [(("topic",), 0), (("changelog",), None)])
def test_the_ordered_topic_knows_with_which_release_it_begins(sinks, first):
    stored = replace(PLAN, sinks=sinks)
    (sink,) = make_sinks(None, config("topic"), output=OUTPUT, direct=None, stored=stored)
    assert sink._first_release == first


def test_each_sink_of_delta_tables_says_which_versions_it_has_read():
    made = make_sinks(None, config(",".join(SINKS)), output=OUTPUT, direct=None)
    with_tables = {sink.name: sink for sink in made if isinstance(sink, TableSink)}
    assert set(with_tables) == {"changelog", "mirror", "history"}
    for name, sink in with_tables.items():
        assert sink.heads() == {}
        sink._tables._logs["t"] = SimpleNamespace(exists=True, head=7)
        sink._tables._logs["none"] = SimpleNamespace(exists=False, head=-1)
        expected = {f"{name}/t": 7}
        if name != "changelog":
            sink._incomplete._tables._logs["t"] = SimpleNamespace(exists=True, head=1)
            expected[sink._incomplete._tables.path("t")] = 1
        assert sink.heads() == expected


def test_layouts_are_those_of_new_mirrors_and_properties_those_of_all():
    settings = config("changelog,mirror,history").model_copy(
        update={
            "table_properties": PROPERTIES,
            "mirror_partition_by": {"t": "a, b"},
            "mirror_cluster_by": {"u": "c"},
        }
    )
    made = make_sinks(None, settings, output=OUTPUT, direct=None)
    layouts = {sink.name: sink._tables._layout for sink in made}
    assert layouts["mirror"] == TableLayout(PROPERTIES, {"t": ("a", "b")}, {"u": ("c",)})
    assert layouts["changelog"] == layouts["history"] == TableLayout(PROPERTIES)


def test_the_table_of_sinks_agrees_with_the_settings_and_the_gate():
    assert set(KINDS) == set(SINKS)
    assert {name for name, kind in KINDS.items() if kind.when == "each batch"} == set(BY_KEY)
    assert {name for name, kind in KINDS.items() if "several" in kind.when} == set(MIRRORS)


def test_two_sinks_have_two_names():
    with pytest.raises(ConfigError, match="same name"):
        all_names(config("mirror"), [SimpleNamespace(name="mirror")])


def test_tables_of_delta_get_names_where_a_schema_is_set():
    wanted = config(",".join(SINKS), catalog_schema="bank")
    made = make_sinks(None, wanted, output=OUTPUT, direct=None, further=[OWN])
    assert tuple(sink.name for sink in made) == all_names(wanted, [OWN])
    given = {sink.name for sink in made if isinstance(sink, NamedSink)}
    assert given == {"changelog", "mirror", "history"}
    merging = {sink.name for sink in made if isinstance(sink, MergingSink)}
    assert merging == {"mirror", "history", "iceberg_mirror"}


def test_files_as_datastream_writes_them_get_the_streams_name_from_its_first_record(monkeypatch):
    settings = config("datastream_files").model_copy(
        update={"datastream_files_format": "jsonl", "datastream_files_rows_max": 7}
    )
    (sink,) = make_sinks(None, settings, output=OUTPUT, direct=None)
    assert sink._settings == FileSettings(FileFormat.JSON, FileLimits(7, 16 * 1024**2))
    found = iter([SimpleNamespace(stream="projects/p"), None])
    asked = []
    monkeypatch.setattr(
        sink_factory, "recorded_start", lambda topic, **_: (asked.append(topic), next(found))[1]
    )
    assert sink._find_stream() == "projects/p"
    with pytest.raises(ConfigError, match=r"does not say which change stream.*bank-progress"):
        sink._find_stream()
    assert asked == ["bank-progress"] * 2

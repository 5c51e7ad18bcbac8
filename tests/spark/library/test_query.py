"""Queries that a program starts, stops, loses and starts again, on Spark's own streaming.

Spark's queries, logs and errors are real, and so are the gate's batches, its checkpoint and its
lease; a source of numbers stands for Kafka, and the rows of each batch are hand-made.
"""

import threading
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.batch.gate_world import GateWorld
from tests.spark.gate_rows import GATE_SCHEMA
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.checkpoint.writers import seen_lease
from tidegate.spark_consumer.errors import ChangesExpired, WriterReplaced
from tidegate.spark_consumer.library import builder
from tidegate.spark_consumer.library.builder import stream
from tidegate.spark_consumer.library.query import QueryFailed
from tidegate.spark_consumer.spark import query
from tidegate.spark_consumer.spark.failures import with_short_failures

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


class Py4JJavaError(Exception):
    """As py4j's; that one asks Java for its text."""

    __module__ = "py4j.protocol"


CHANGES = 3
"""In each batch."""
PATIENCE_S = 120


class Program:
    """A program's queries on one checkpoint; `deed` is done within each batch, with its number."""

    def __init__(self, spark, folder):
        self.spark, self.folder = spark, folder
        self.world = GateWorld(spark, folder / "check")
        self.deed = lambda _: None
        self.finished = {}
        self.gate = Storage(spark, str(folder / "check" / "gate"))

    def prepare(self, spark, config, gate, _output, *, query_name, **_):
        """Stand for what makes the batch and its source."""
        batch = self.world.start(gate=gate)
        run = batch._run

        def with_deed(_rows, number):
            self.deed(number)
            while len(self.world.cuts) <= number:
                self._send()
            cut = spark.createDataFrame(self.world.cuts[number].rows, GATE_SCHEMA)
            state = run(cut, number)
            self.finished.setdefault(number, threading.Event()).set()
            return state

        batch._run = with_deed
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
        writing = rows.writeStream.queryName(query_name).foreachBatch(with_short_failures(batch))
        return batch, writing.option("checkpointLocation", f"{config.checkpoint}/spark")

    def _send(self):
        log = self.world.log
        for _ in range(CHANGES):
            log.change(10 * len(log.sent) + 10)
        log.beat(10 * len(log.sent))
        self.world.cut()

    def start(self, name="", **options):
        building = stream(
            self.spark,
            bootstrap_servers="127.0.0.1:1",
            registry_url="http://127.0.0.1:1",
            prefix="bank",
            **options,
        )
        building.output(str(self.folder / "output")).changelog().queryName(name)
        return building.start(self.folder / "check")

    def wait(self, batch):
        assert self.finished.setdefault(batch, threading.Event()).wait(PATIENCE_S)

    def released(self):
        found = self.world.released
        return [change for number in sorted(found) for *_, change in found[number]]

    def is_given_back(self):
        return seen_lease(self.gate, self.gate.writers.newest()).is_given_back


@pytest.fixture
def program(spark, tmp_path, monkeypatch):
    found = Program(spark, tmp_path)
    monkeypatch.setattr(query, "prepare", found.prepare)
    monkeypatch.setattr(builder, "require_stream", lambda _: None)
    yield found
    for running in spark.streams.active:
        running.stop()


def test_a_stop_finishes_the_batch_and_the_next_start_goes_on_at_once(program):
    began, go_on = threading.Event(), threading.Event()

    def deed(number):
        if number == 1:
            began.set()
            assert go_on.wait(PATIENCE_S)

    program.deed = deed
    running = program.start()
    assert isinstance(running, StreamingQuery)
    assert (running.isActive, running.name) == (True, "tidegate-bank")
    assert began.wait(PATIENCE_S)
    stopping = threading.Thread(target=running.stop)
    stopping.start()
    go_on.set()
    stopping.join(PATIENCE_S)

    assert not running.isActive
    assert running.exception() is None
    assert running.awaitTermination() is None
    assert program.finished[1].is_set()
    assert program.is_given_back()

    again = program.start()
    program.wait(3)
    again.stop()
    assert program.is_given_back()
    assert program.gate.writers.newest() == 2
    released = program.released()
    assert released == [10 * number + 10 for number in range(len(released))]
    assert len(released) >= 4 * CHANGES
    assert program.world.late == {}


def test_a_failure_of_the_gate_is_raised_by_name_and_the_next_start_repeats_the_batch(program):
    def deed(number):
        if number == 2:
            raise ChangesExpired("Kafka has removed records", hint="Reset", topic="bank.accounts")

    program.deed = deed
    running = program.start()
    with pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination()
    assert str(caught.value) == (
        "ChangesExpired: Kafka has removed records (topic='bank.accounts'). Reset"
    )
    assert isinstance(caught.value.__cause__, ChangesExpired)
    assert running.exception() is caught.value
    with pytest.raises(QueryFailed):
        running.processAllAvailable()

    program.deed = lambda _: None
    again = program.start()
    program.wait(2)
    again.stop()
    released = program.released()
    assert released == [10 * number + 10 for number in range(len(released))]


class Uncaught:
    """Notes what ends the JVM's threads."""

    class Java:
        implements = ("java.lang.Thread$UncaughtExceptionHandler",)

    def __init__(self):
        self.seen = []

    def uncaughtException(self, _thread, error):  # noqa: N802 - Java's name
        self.seen.append(error.getClass().getName())


@pytest.mark.deep
def test_a_batch_that_spark_interrupts_ends_the_query_whatever_the_length_of_its_error(program):
    """Spark matches the text with a pattern that recurses for each character."""
    began, uncaught = threading.Event(), Uncaught()

    def deed(_number):
        began.set()
        while of_spark[0].isActive:
            time.sleep(0.05)
        raise Py4JJavaError(
            "An error occurred while calling o1.collect.\n: java.lang.InterruptedException\n"
            + "\tat org.apache.spark.Somewhere.run(Somewhere.scala:1)\n" * 2_000
        )

    program.deed = deed
    of_spark = [program.start()._running.query]
    threads = program.spark._jvm.java.lang.Thread
    threads.setDefaultUncaughtExceptionHandler(uncaught)
    try:
        assert began.wait(PATIENCE_S)
        of_spark[0].stop()  # returns when the thread has ended
        assert of_spark[0].exception() is None
        assert uncaught.seen == []
    finally:
        threads.setDefaultUncaughtExceptionHandler(None)


def test_a_second_query_is_refused_and_a_forced_one_ends_the_first_by_name(program):
    first = program.start()
    program.wait(0)
    with pytest.raises(ConfigError, match="a query of this name runs in this session"):
        program.start()
    with pytest.raises(ConfigError, match=r"another run works on this checkpoint.*take_over"):
        program.start(name="second")
    assert first.isActive

    program.start(name="second", take_over=True)
    with pytest.raises(QueryFailed, match="WriterReplaced") as caught:
        first.awaitTermination()
    assert isinstance(caught.value.error, WriterReplaced)
    assert not first.isActive
    assert program.gate.writers.newest() == 2


@pytest.mark.deep
def test_a_batch_cannot_stop_its_own_query(program):
    ready = threading.Event()

    def deed(_number):
        assert ready.wait(PATIENCE_S)
        running.stop()

    program.deed = deed
    running = program.start()
    ready.set()
    with pytest.raises(QueryFailed, match=r"ConfigError: the query cannot be stopped inside"):
        running.awaitTermination()

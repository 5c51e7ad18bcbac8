"""A running query is stopped in order, and its end has the name that says most."""

from types import SimpleNamespace

import pytest

from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.spark.gate_query import GateQuery

CONFLICT = RuntimeError("two runs at once")


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


def test_a_pause_keeps_the_lease(running, steps):
    running.pause()
    assert steps == ["finish", "query", "close", "unlisten"]


def test_a_failure_is_named_by_what_the_gate_says(running):
    def replaced():
        raise WriterReplaced("another run has taken this folder")

    assert running.failure() is None
    running.batch.failure = CONFLICT
    assert running.failure() is CONFLICT
    running.gate.require_writer = replaced
    assert isinstance(running.failure(), WriterReplaced)


def test_a_query_that_ended_without_an_error_may_have_been_replaced(running):
    """Spark stops it when another query of the session starts with its checkpoint."""

    def replaced():
        raise WriterReplaced("another run has taken this folder")

    def unknown():
        raise ConnectionError("the storage is away")

    running.gate.require_writer = unknown
    assert running.failure() is None
    running.gate.require_writer = replaced
    assert isinstance(running.failure(), WriterReplaced)

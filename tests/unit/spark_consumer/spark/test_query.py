"""How a run's failure is reported; the parts are scripted, and no Spark is started."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from tidegate.program.health import Health
from tidegate.spark_consumer.errors import WriterReplaced
from tidegate.spark_consumer.spark.query import GateQuery, _wait

CONFLICT = RuntimeError("two runs at once")
REPLACED = WriterReplaced("another run has taken this folder")


def ended(*, of_batch=None, of_query=None, of_gate=None):
    """Return a query that has ended by failures, and a gate that answers with one."""

    def require_writer():
        if of_gate is not None:
            raise of_gate

    query = SimpleNamespace(isActive=False, exception=lambda: of_query)
    return GateQuery(
        query, SimpleNamespace(failure=of_batch), SimpleNamespace(require_writer=require_writer)
    )


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


def test_a_query_that_ended_without_failure_is_no_failure():
    _wait(ended(of_gate=REPLACED), threading.Event(), Health())

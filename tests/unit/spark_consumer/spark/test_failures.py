"""What a query's failure is called."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tidegate.spark_consumer.errors import (
    ChangesExpired,
    CheckpointConflict,
    DataTopicChanged,
    WriterReplaced,
)
from tidegate.spark_consumer.spark.failures import name_failure, require_no_conflict

PLAIN = RuntimeError("a file system fails")
LATE = RuntimeError("Multiple streaming queries are concurrently using file:/check/spark/commits.")
GONE = ConnectionError("the JVM is gone")


def raises(error):
    def check():
        if error is not None:
            raise error

    return check


def named(failure, *, of_gate=None, of_kafka=None):
    gate = SimpleNamespace(root="file:/check/gate", require_writer=raises(of_gate))
    return name_failure(failure, gate=gate, require_kept=raises(of_kafka))


@pytest.mark.parametrize("of_gate", [None, GONE])
@pytest.mark.parametrize("of_kafka", [None, GONE])
def test_a_failure_of_which_nothing_is_known_stays(of_gate, of_kafka):
    assert named(PLAIN, of_gate=of_gate, of_kafka=of_kafka) is PLAIN


@pytest.mark.parametrize("lost", [ChangesExpired("removed"), DataTopicChanged("re-created")])
def test_what_kafka_lacks_is_named_even_where_storage_does_not_answer(lost):
    found = named(PLAIN, of_gate=GONE, of_kafka=lost)
    assert (found, found.__cause__) == (lost, PLAIN)


@pytest.mark.parametrize("failure", [PLAIN, LATE])
def test_a_run_that_was_replaced_says_so_before_all_else(failure):
    replaced = WriterReplaced("another run")
    found = named(failure, of_gate=replaced, of_kafka=ChangesExpired("removed"))
    assert (found, found.__cause__) == (replaced, failure)


def test_a_late_write_is_a_conflict_for_the_run_that_may_write():
    found = named(LATE)
    assert isinstance(found, CheckpointConflict)
    assert found.__cause__ is LATE
    assert "file:/check/gate" in str(found)


def test_another_failure_at_the_start_is_no_conflict():
    gate = SimpleNamespace(root="file:/check/gate", require_writer=raises(None))
    require_no_conflict(gate, PLAIN)

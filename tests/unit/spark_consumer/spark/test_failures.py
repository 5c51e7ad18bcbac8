"""What a query's failure is called."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from deltalake.exceptions import CommitFailedError, DeltaError

from tidegate.schemas.errors import UnreachableError
from tidegate.spark_consumer.errors import (
    ChangesExpired,
    CheckpointConflict,
    DataTopicChanged,
    WriterReplaced,
)
from tidegate.spark_consumer.sinks.delta.direct_table import DirectTable
from tidegate.spark_consumer.spark.failures import (
    name_failure,
    require_no_conflict,
    require_storage,
)

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


SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}],
    }
)
SINKS = "tidegate.spark_consumer.sinks."


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
    of_the_system = raised_in(f"{SINKS}delta.direct_files", open_file)
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

    def lose(error):
        def fail():
            raise error

        return fail

    for failure in (
        raised_in(f"{SINKS}delta.changelog", lose(GONE)),
        raised_in(f"{SINKS}delta.changelog", lose(TimeoutError("the JVM"))),
        raised_in(f"{SINKS}function", lose(OSError("a user's function"))),
        raised_in(f"{SINKS}delta.direct_table", lose(CommitFailedError("a conflict"))),
        raised_in(f"{SINKS}delta.direct_table", lose(DeltaError(plan))),
        OSError("from nowhere"),
    ):
        require_storage(failure)
        assert named(failure) is failure


def test_an_object_store_that_refuses_is_named_within_an_error_of_delta_rs():
    def fail():
        message = "Generic DeltaTable error: External error: Generic S3 error: 503 Slow Down"
        raise DeltaError(message)

    assert isinstance(named(raised_in(f"{SINKS}delta.direct_table", fail)), UnreachableError)

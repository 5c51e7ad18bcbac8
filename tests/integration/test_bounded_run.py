"""A bounded run, as a scheduler starts it: one time to another, then both programs end with 0."""

from __future__ import annotations

import time

import pytest

from tests.integration.shared_stack import now, rows_of, run_consumer, run_producer
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.schemas.instants import NS_PER_US, format_rfc3339

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]

DDL = [
    "CREATE TABLE Seen (Id INT64, V INT64) PRIMARY KEY (Id)",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
TIMED = "CREATE TABLE Timed (Id INT64, Since TIMESTAMP) PRIMARY KEY (Id)"
ROWS = range(10)


def put(database, value):
    """Insert ten rows with a value; return the commit time."""
    with database.batch() as batch:
        batch.insert("Seen", ("Id", "V"), [(10 * value + row, value) for row in ROWS])
    return commit_time_us(batch.committed)


@pytest.mark.deep
def test_a_time_is_taken_whole_and_both_programs_end_with_0(shared_stack):
    database = shared_stack.create_database(DDL)
    put(database, 0)
    time.sleep(0.01)
    start = now()
    put(database, 1)
    end_us = put(database, 2)
    time.sleep(0.01)
    put(database, 3)
    programs = shared_stack.programs(PRODUCER_SLOTS=2)
    end = format_rfc3339(end_us * NS_PER_US)
    bounds = ("--start", start, "--end", end)
    commands = (
        (run_producer, ("run", "--worker", "day", "--until", "ended", *bounds)),
        (run_consumer, ("run", "--until", "caught-up")),
    )
    # A scheduler that repeats a task gets the same result.
    for _ in range(2):
        for run, arguments in commands:
            done = run(programs, *arguments)
            assert done.returncode == 0, done.stderr
        changes = rows_of(programs, "changelog/Seen")
        assert sorted(change["new_values"]["V"] for change in changes) == [1] * 10 + [2] * 10
        mirror = rows_of(programs, "mirror/Seen")
        assert sorted(row["Id"] for row in mirror) == list(range(10, 30))


@pytest.mark.deep
def test_a_change_that_stops_its_stream_partition_ends_the_run_and_names_it(shared_stack):
    """Nanoseconds do not fit `timestamps = "micros"`; once that is parked, the end comes."""
    database = shared_stack.create_database([TIMED, DDL[1]])
    start = now()
    with database.batch() as batch:
        batch.insert("Timed", ("Id", "Since"), [(1, "2026-01-01T00:00:00.123456789Z")])
    end = format_rfc3339(commit_time_us(batch.committed) * NS_PER_US)
    programs = shared_stack.programs(PRODUCER_SLOTS=2, PRODUCER_TIMESTAMPS="micros")
    command = ("run", "--worker", "day", "--until", "ended", "--start", start, "--end", end)

    done = run_producer(programs, *command)
    assert done.returncode == 1, done.stderr
    assert "the stream does not reach its end: a stream partition is stopped" in done.stderr
    assert "microsecond" in done.stderr

    done = run_producer(programs, *command, PRODUCER_POISON="park")
    assert done.returncode == 0, done.stderr

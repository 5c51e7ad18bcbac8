"""A table of Spanner to a mirror, to Datastream's files, and by two workers to a second mirror."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.shared_stack import (
    PATIENCE_S,
    gate,
    read_bytes,
    read_everything,
    release,
    rows_of,
    running,
    wait_released,
)
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.producer.datastream.objects_query import object_token
from tidegate.schemas.order_key import TIMESTAMP_BYTES
from tidegate.schemas.topics import slot_of

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

TABLES = ("Orders", "Lines")
COLUMNS = ("Id", "Note", "Amount")
DDL = [
    *(
        f"CREATE TABLE {one} (Id INT64, Note STRING(MAX), Amount NUMERIC) PRIMARY KEY (Id)"
        for one in TABLES
    ),
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
SLOTS = 2
FEW, PAUSE_S = 40, 0.2


def files_of(programs, location):
    """Return the programs that read the files in a folder."""
    source = {
        "kind": "datastream", "location": str(location), "poll_seconds": 1, "lateness_seconds": 2,
    }  # fmt: skip
    settings = {**programs.more, "TIDEGATE_PRODUCER_SLOTS": str(SLOTS)}
    return replace(programs, source=json.dumps(source), more=settings)


def kill_and_start(pipeline, worker):
    pipeline.going_down(worker)
    worker.kill()
    worker.start()
    pipeline.is_up_again(worker)


class Shop:
    """Writes to both tables in each round: rows come, change and go."""

    def __init__(self, database):
        self._database = database
        self._rng = random.Random(3)
        self._next_at = 0.0
        self.rounds = 0
        self.last_us = 0

    def round(self):
        self.rounds += 1
        *changed, gone = self._rng.sample(range(30), 4)
        rows = [(key, f"round {self.rounds}", f"{self.rounds}.5") for key in changed]
        with self._database.batch() as batch:
            for table in TABLES:
                batch.insert_or_update(table, COLUMNS, rows)
                batch.delete(table, KeySet(keys=[[gone]]))
        self.last_us = commit_time_us(batch.committed)

    def goes_on(self):
        """Write a round if the last one was some time ago."""
        if time.monotonic() >= self._next_at:
            self.round()
            self._next_at = time.monotonic() + PAUSE_S

    def rows(self, table):
        with self._database.snapshot() as snapshot:
            return dict_of(snapshot.read(table, COLUMNS, KeySet(all_=True)))


def dict_of(rows):
    return {key: (note, float(amount)) for key, note, amount in rows}


def changes_behind_newer_ones(programs):
    """The changes of the changelogs that stand behind a newer one of their row."""
    found = set()
    for table in TABLES:
        newest = {}
        rows = rows_of(programs, f"changelog/{table}")
        for row in sorted(rows, key=lambda row: (row["release"], row["ordinal"])):
            values = row["new_values"] or row["old_values"]
            key, order = values["Id"], values["_datastream_order"]
            if order < newest.get(key, ""):
                found.add((table, row["release"], row["ordinal"]))
            newest[key] = max(order, newest.get(key, ""))
    return found


def late(programs):
    """The place of each late event in the changelogs."""
    rows = rows_of(programs, "late_events")
    found = {(row["table"], row["release"], row["ordinal"]) for row in rows}
    assert len(found) == len(rows) > 0
    return found


def mirrored(programs, table):
    """The rows of a mirror; that of files marks those that were deleted."""
    found = rows_of(programs, f"mirror/{table}")
    alive = [row for row in found if "DELETE" not in row.get("_datastream_change_type", "")]
    rows = dict_of(tuple(row[name] for name in COLUMNS) for row in alive)
    assert len(rows) == len(alive)
    return rows


def start_of_the_second():
    """A time before all files at which the tables' objects are in different slots."""
    minute = int(time.time()) // 60 - 2
    while len({slot_of(object_token(minute, table), SLOTS) for table in TABLES}) < SLOTS:
        minute -= 1
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def source_order_keys(stack, topic, count):
    """The order key of the change of each event of a topic, behind the byte that says `change`.

    And the last time at which one of the events is released.
    """
    found, last_us = Counter(), 0
    for message in read_everything(stack, topic, count=count):
        released = dict(message.headers())["order"][:TIMESTAMP_BYTES]
        last_us = max(last_us, int.from_bytes(released, "big"))
        row = message.value()["new_values"] or message.value()["old_values"]
        order, _, _ = row["_datastream_order"].partition("-")
        found[bytes.fromhex(order)[1:]] += 1
    return found, last_us


def has_read_files(worker):
    """Whether the running process of a worker has read a file to its end, with new events."""
    return b"files were read" in worker.spec.log.read_bytes()[worker.log_began :]


def test_a_table_comes_back_from_files_that_two_workers_read_while_they_are_written(
    shared_stack, spark
):
    """The second fleet reads the folder while the first consumer writes it, and loses a worker.

    Its events come later than its lateness, nearly all of them.
    """
    stack = shared_stack
    shop = Shop(stack.create_database(DDL))
    one = stack.programs(CONSUMER_SINKS="mirror,datastream_files")
    location = one.output / "datastream_files"
    location.mkdir(parents=True)
    other = files_of(stack.programs(name="s"), location)
    with running(other, 0) as second:
        with running(one, 2) as first:
            second.start_workers(2, start=start_of_the_second(), tick=first.check)
            with gate(spark, one) as query:
                for _ in range(FEW):
                    shop.round()
                second.wait(
                    lambda: all(map(has_read_files, second.workers)),
                    what="both workers to read files", deadline_s=PATIENCE_S, tick=shop.goes_on,
                )  # fmt: skip
                victim, _ = second.workers
                kill_and_start(second, victim)
                shop.round()
                second.wait(
                    lambda: has_read_files(victim),
                    what="files to be read again", deadline_s=PATIENCE_S, tick=shop.goes_on,
                )  # fmt: skip
                for _ in range(FEW):
                    shop.round()
                wait_released(query, first, shop.last_us)
        changes = {
            table: Counter(
                dict(message.headers())["order"]
                for message in read_bytes(stack, stack.topic(table), count=FEW)
            )
            for table in TABLES
        }
        events = {
            table: source_order_keys(stack, f"{other.prefix}.{table}", changes[table].total())
            for table in TABLES
        }
        # No event comes after these, so there is no release that would reach a later time.
        release(spark, second, max(us for _, us in events.values()))
    assert changes_behind_newer_ones(other) <= late(other)
    for table in TABLES:
        assert set(changes[table].values()) == {1}
        assert changes[table].total() > 6 * FEW
        assert events[table][0] == changes[table]
        rows = shop.rows(table)
        assert mirrored(one, table) == rows
        assert mirrored(other, table) == rows

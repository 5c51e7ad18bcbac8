"""A table of Spanner to a mirror, to Datastream's files, and by two workers to a second mirror.

The second fleet reads the folder while the first consumer writes it, and one of its workers is
killed and started again.  Its events come later than its lateness, nearly all of them.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import deltalake
import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.shared_stack import now
from tests.integration.topic_reading import read_everything
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.producer.datastream_source.tokens import object_token
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
PATIENCE_S = 400.0
FEW, PAUSE_S = 40, 0.2


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


def rows_in(folder):
    return deltalake.DeltaTable(folder).to_pyarrow_table().to_pylist()


def changes_behind_newer_ones(programs):
    """The changes of the changelogs that stand behind a newer one of their row."""
    found = set()
    for table in TABLES:
        newest = {}
        rows = rows_in(programs.output / "changelog" / table)
        for row in sorted(rows, key=lambda row: (row["release"], row["ordinal"])):
            values = row["new_values"] or row["old_values"]
            key, order = values["Id"], values["_datastream_order"]
            if order < newest.get(key, ""):
                found.add((table, row["release"], row["ordinal"]))
            newest[key] = max(order, newest.get(key, ""))
    return found


def late(programs):
    """The place of each late event in the changelogs."""
    rows = rows_in(programs.output / "late_events")
    found = {(row["table"], row["release"], row["ordinal"]) for row in rows}
    assert len(found) == len(rows) > 0
    return found


def mirrored(programs, table):
    """The rows of a mirror; that of files marks those that were deleted."""
    found = rows_in(programs.output / "mirror" / table)
    alive = [row for row in found if "DELETE" not in row.get("_datastream_change_type", "")]
    rows = dict_of(tuple(row[name] for name in COLUMNS) for row in alive)
    assert len(rows) == len(alive)
    return rows


def start_of_the_second():
    """A time before all files at which the tables' objects are in different slots."""
    minute = int(time.time()) // 60 - 2
    while len({slot_of(object_token(minute, table), SLOTS) for table in TABLES}) < SLOTS:
        minute -= 1
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)).strftime(
        "%Y-%m-%dT%H:%M:%SZ"
    )


def order_keys(stack, topic, count):
    """The order key of each record of a topic, as its header has it."""
    return Counter(
        dict(one.headers())["order"] for one in read_everything(stack, topic, count=count)
    )


def source_order_keys(stack, topic, count):
    """The order key of the change of each event of a topic, behind the byte that says `change`.

    And the last time at which one of the events is released.
    """
    found, last_us = Counter(), 0
    for message in read_everything(stack, topic, count=count):
        released = dict(message.headers())["order"][:TIMESTAMP_BYTES]
        last_us = max(last_us, int.from_bytes(released, "big"))
        value = message.value()
        row = value["new_values"] or value["old_values"]
        order, _, _ = row["_datastream_order"].partition("-")
        found[bytes.fromhex(order)[1:]] += 1
    return found, last_us


def has_read_files(worker):
    """Whether the running process of a worker has read a file to its end, with new events."""
    return b"files were read" in worker.spec.log.read_bytes()[worker.log_began :]


def test_a_table_comes_back_from_files_that_two_workers_read_while_they_are_written(shared_stack):
    stack = shared_stack
    shop = Shop(stack.create_database(DDL))
    first = Pipeline(stack.programs("Feed", TIDEGATE_CONSUMER_SINKS="mirror,datastream_files"))
    location = first.programs.output / "datastream_files"
    location.mkdir(parents=True)
    source = {
        "kind": "datastream", "location": str(location), "poll_seconds": 1, "lateness_seconds": 2,
    }  # fmt: skip
    second = Pipeline(
        replace(
            stack.programs("Feed", TIDEGATE_PRODUCER_SLOTS=str(SLOTS)),
            folder=stack.folder / "second",
            prefix=f"{stack.prefix}s",
            source=json.dumps(source),
        )
    )
    try:
        first.start_workers(2, start=now())
        second.start_workers(2, start=start_of_the_second(), tick=first.check)
        first.start_consumer()
        for _ in range(FEW):
            shop.round()
        second.wait(
            lambda: all(map(has_read_files, second.workers)),
            what="both workers to read files", deadline_s=PATIENCE_S, tick=shop.goes_on,
        )  # fmt: skip
        victim, _ = second.workers
        second.going_down(victim)
        victim.kill()
        shop.round()
        victim.start()
        second.is_up_again(victim)
        second.wait(
            lambda: has_read_files(victim),
            what="the worker to read files again", deadline_s=PATIENCE_S, tick=shop.goes_on,
        )  # fmt: skip
        for _ in range(FEW):
            shop.round()
        first.wait_released(shop.last_us, deadline_s=PATIENCE_S, tick=second.check)
        faults = first.stop()
        changes = {one: order_keys(stack, stack.topic(one), FEW) for one in TABLES}
        second.start_consumer()
        events = {
            one: source_order_keys(stack, f"{second.programs.prefix}.{one}", changes[one].total())
            for one in TABLES
        }
        # No event comes after these, so there is no release that would reach a later time.
        second.wait_released(max(us for _, us in events.values()), deadline_s=PATIENCE_S)
        faults += second.stop()
    finally:
        first.stop()
        second.stop()
    assert faults == []
    assert changes_behind_newer_ones(second.programs) <= late(second.programs)
    for table in TABLES:
        assert set(changes[table].values()) == {1}
        assert changes[table].total() > 6 * FEW
        assert events[table][0] == changes[table]
        rows = shop.rows(table)
        assert mirrored(first.programs, table) == rows
        assert mirrored(second.programs, table) == rows

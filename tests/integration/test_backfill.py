"""Rows that were there before the stream are read while it runs: they come among the changes."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from contextlib import contextmanager

import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.shared_stack import (
    PATIENCE_S,
    gate,
    rows_of,
    run_producer,
    running,
    wait_for,
    wait_released,
)
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.producer.spanner.table_rows import BACKFILL_TAG

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ORDERS = """CREATE TABLE Orders (
    Region STRING(9), Id INT64, Note STRING(MAX), Tags ARRAY<STRING(9)>, Weight FLOAT64
) PRIMARY KEY (Region, Id DESC)"""
STREAM = "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')"
COLUMNS = ("Region", "Id", "Note", "Tags", "Weight")


def region(number):
    return None if number % 5 == 0 else f"r{number % 3}"


def rows_from(first, count):
    return [
        (region(n), n, f"note {n}", ["a", None], float("inf") if n % 7 == 0 else n / 4)
        for n in range(first, first + count)
    ]


class Orders:
    """The table: filled, then changed by a thread while workers and queries run."""

    def __init__(self, stack, rows):
        self.rows, self.changes = rows, 0
        self.database = stack.create_database([ORDERS, STREAM])
        for first in range(0, rows, 2_000):
            with self.database.batch() as batch:
                batch.insert("Orders", COLUMNS, rows_from(first, min(2_000, rows - first)))

    def change(self):
        """Update some rows, delete one and insert one."""
        self.changes += 1
        number = self.changes
        with self.database.batch() as batch:
            batch.update(
                "Orders", ("Region", "Id", "Note"),
                [(region(n), n, f"changed {number}") for n in range(number, number + 30) if n % 5],
            )  # fmt: skip
            batch.delete("Orders", KeySet(keys=[[None, 5 * number]]))
            batch.insert("Orders", COLUMNS, rows_from(self.rows + number, 1))

    @contextmanager
    def changing(self, every_s):
        is_done = threading.Event()

        def write():
            # It updates 30 rows behind it.
            while self.changes < self.rows - 30 and not is_done.wait(every_s):
                self.change()

        writer = threading.Thread(target=write)
        writer.start()
        try:
            yield
        finally:
            is_done.set()
            writer.join()

    def now(self):
        with self.database.snapshot() as snapshot:
            ((now,),) = snapshot.execute_sql("SELECT CURRENT_TIMESTAMP()")
        return now

    def at(self, time=None):
        """Return the rows of the table at a time, or now."""
        with self.database.snapshot(read_timestamp=time) as snapshot:
            return keyed(snapshot.read("Orders", COLUMNS, KeySet(all_=True)))


def keyed(rows):
    return {(row[0], row[1]): list(row[2:]) for row in map(list, rows)}


def folded(changes, at):
    """The rows of the table at a time, as its changes up to then leave them."""
    rows = {}
    for change in changes:
        if change["commit_timestamp"] > at:
            continue
        key = (change["key"]["Region"], change["key"]["Id"])
        if change["mod_type"] == "DELETE":
            rows.pop(key, None)
        else:
            rows[key] = [change["new_values"][name] for name in COLUMNS[2:]]
    return rows


def released(programs):
    """Return the changelog in its order, which is that of the order keys, and the mirror."""
    changes = rows_of(programs, "changelog/Orders")
    changes.sort(key=lambda row: (row["release"], row["ordinal"]))
    order_keys = [row["order_key"] for row in changes]
    assert order_keys == sorted(set(order_keys))
    mirror = rows_of(programs, "mirror/Orders")
    return changes, keyed([row[name] for name in COLUMNS] for row in mirror)


@pytest.mark.deep
def test_rows_come_among_the_changes(shared_stack, spark):
    """A table is read by Data Boost, stopped, resumed after a kill; then a part of it again."""
    rows, chunk_rows = 1_500, 100
    orders, programs = Orders(shared_stack, rows), shared_stack.programs(PRODUCER_HEARTBEAT_MS=500)

    def command(*arguments):
        done = run_producer(programs, "backfill", "Orders", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def refused(text, *arguments):
        done = run_producer(programs, "backfill", *arguments)
        assert done.returncode == 2
        assert text in done.stderr

    unknown = run_producer(programs, "check", PRODUCER_BACKFILL="Orders,None")
    assert unknown.returncode == 2
    assert "backfill: the stream does not publish the table None" in unknown.stderr
    with running(programs, 2) as pipeline, gate(spark, programs) as query:

        def wait_done():
            pipeline.wait(
                lambda: command("--show")["state"] == "done",
                what="the last chunk", deadline_s=PATIENCE_S,
            )  # fmt: skip

        with orders.changing(0.1):
            wait_for(query, pipeline, lambda: pipeline.released().releases, what="a release")
            refused("the stream does not publish the table Missing", "Missing")
            begun = command("--chunk-rows", str(chunk_rows), "--data-boost")
            assert begun["is_taken_up"]
            command("--stop")
            refused("goes on", "Orders")
            pipeline.wait(
                lambda: command("--show")["state"] == "stopped",
                what="the stop", deadline_s=PATIENCE_S,
            )  # fmt: skip
            time.sleep(2)
            stopped = command("--show")
            time.sleep(2)
            assert command("--show") == stopped
            victim = pipeline.workers[0]
            pipeline.going_down(victim)
            victim.kill()
            command("--resume")
            victim.start()
            pipeline.is_up_again(victim)
            wait_done()
            refused("Unrecognized name: Missing", "Orders", "--where", "Missing = 3")
            assert command("--show")["run"] == begun["run"]
            second = command("--where", "MOD(Id, 10) = 3 -- a tenth", "--chunk-rows", "50")
            assert second["where"] == "MOD(Id, 10) = 3 -- a tenth"
            wait_done()
            done_at = orders.now()
            then = orders.at(done_at)
            time.sleep(1)
        with orders.database.batch() as last:
            last.insert("Orders", COLUMNS, rows_from(3 * rows, 1))
        wait_released(query, pipeline, commit_time_us(last.committed))
    assert {path.name for path in (programs.output / "changelog").iterdir()} == {"Orders"}
    changes, mirror = released(programs)
    assert folded(changes, done_at) == then
    assert mirror == orders.at()
    filled, chosen = (
        [row for row in changes if row["server_transaction_id"].startswith(f"{head}-")]
        for head in (f"{BACKFILL_TAG}-{one['run']}" for one in (begun, second))
    )
    counts, of_chosen = (
        Counter((row["key"]["Region"], row["key"]["Id"]) for row in found)
        for found in (filled, chosen)
    )
    assert set(counts.values()) == set(of_chosen.values()) == {1}
    assert {number % 10 for _, number in of_chosen} == {3}
    assert len(of_chosen) > rows // 10 * 0.9
    assert len(counts) > rows * 0.7  # each change deletes a row
    assert len({row["commit_timestamp"] for row in filled}) >= rows // chunk_rows

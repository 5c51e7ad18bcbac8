"""A table that is read while the stream runs: in its place in the output, at each watermark."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter

import pytest
from google.cloud.spanner_v1 import KeySet

from tests.integration.commands import run_producer
from tests.integration.shared_stack import now
from tests.integration.test_backfill import COLUMNS, change, folded, keyed, rows_in, rows_of
from tidegate.local_stack.demo.bank_database import commit_time_us
from tidegate.local_stack.demo.pipeline import Pipeline
from tidegate.producer.spanner.table_rows import BACKFILL_TAG

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(1_500)]

DDL = [
    """CREATE TABLE Orders (
        Region STRING(9), Id INT64, Note STRING(MAX), Tags ARRAY<STRING(9)>, Weight FLOAT64
    ) PRIMARY KEY (Region, Id DESC)""",
    "CREATE CHANGE STREAM Feed FOR ALL OPTIONS (value_capture_type = 'NEW_ROW')",
]
ROWS = 6_000
CHUNK_ROWS = 700
PATIENCE_S = 600


def test_rows_come_among_the_changes(shared_stack, tmp_path):
    database = shared_stack.create_database(DDL)
    for first in range(0, ROWS, 2_000):
        with database.batch() as batch:
            batch.insert("Orders", COLUMNS, rows_of(first, 2_000))
    programs = shared_stack.programs("Feed")
    pipeline, is_done = Pipeline(programs), threading.Event()

    def command(*arguments):
        done = run_producer(programs, "backfill", "Orders", *arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def shown(*arguments):
        return command("--show")["state"] in arguments

    def write():
        number = 0
        while number < ROWS - 30 and not is_done.wait(0.1):  # it changes 30 rows behind it
            number += 1
            change(database, number)

    writer = threading.Thread(target=write)
    try:
        pipeline.start_workers(2, start=now())
        pipeline.start_consumer()
        writer.start()
        pipeline.wait(
            lambda: any((tmp_path / "output").glob("_releases/*")),
            what="the first release", deadline_s=PATIENCE_S,
        )  # fmt: skip
        unknown = run_producer(programs, "backfill", "Missing")
        assert unknown.returncode == 2
        assert "the stream does not publish the table Missing" in unknown.stderr
        begun = command("--chunk-rows", str(CHUNK_ROWS))
        assert begun["is_taken_up"]
        command("--stop")
        again = run_producer(programs, "backfill", "Orders")
        assert again.returncode == 2
        assert "goes on" in again.stderr
        time.sleep(5)
        stopped = command("--show")
        time.sleep(5)
        assert command("--show") == stopped
        assert stopped["state"] == "stopped"
        victim = pipeline.workers[0]
        pipeline.going_down(victim)
        victim.kill()
        command("--resume")
        victim.start()
        pipeline.is_up_again(victim)
        pipeline.wait(lambda: shown("done"), what="the last chunk", deadline_s=PATIENCE_S)
        wrong = run_producer(programs, "backfill", "Orders", "--where", "Missing = 3")
        assert wrong.returncode == 2
        assert "Unrecognized name: Missing" in wrong.stderr
        assert command("--show")["run"] == begun["run"]
        second = command("--where", "MOD(Id, 10) = 3 -- a tenth", "--chunk-rows", "100")
        assert second["where"] == "MOD(Id, 10) = 3 -- a tenth"
        pipeline.wait(lambda: shown("done"), what="the last row", deadline_s=PATIENCE_S)
        with database.snapshot() as snapshot:
            ((done_at,),) = snapshot.execute_sql("SELECT CURRENT_TIMESTAMP()")
        with database.snapshot(read_timestamp=done_at) as snapshot:
            then = keyed(snapshot.read("Orders", COLUMNS, KeySet(all_=True)))
        time.sleep(3)
        is_done.set()
        writer.join()
        with database.batch() as last:
            last.insert("Orders", COLUMNS, rows_of(3 * ROWS, 1))
        pipeline.wait_released(commit_time_us(last.committed), deadline_s=PATIENCE_S)
    finally:
        is_done.set()
        faults = pipeline.stop()
    assert faults == []
    with database.snapshot() as snapshot:
        final = keyed(snapshot.read("Orders", COLUMNS, KeySet(all_=True)))
    assert {path.name for path in (tmp_path / "output/changelog").iterdir()} == {"Orders"}
    changes = rows_in(tmp_path, "changelog/Orders")
    changes.sort(key=lambda row: (row["release"], row["ordinal"]))
    order_keys = [row["order_key"] for row in changes]
    assert order_keys == sorted(set(order_keys))
    assert folded(changes, done_at) == then
    mirror = rows_in(tmp_path, "mirror/Orders")
    assert keyed([row[name] for name in COLUMNS] for row in mirror) == final
    filled, chosen = (
        [row for row in changes if row["server_transaction_id"].startswith(f"{head}-")]
        for head in (f"{BACKFILL_TAG}-{one['run']}" for one in (begun, second))
    )
    counts, of_chosen = (
        Counter((row["key"]["Region"], row["key"]["Id"]) for row in rows)
        for rows in (filled, chosen)
    )
    assert set(counts.values()) == set(of_chosen.values()) == {1}
    assert {number % 10 for _, number in of_chosen} == {3}
    assert len(of_chosen) > ROWS // 10 * 0.9
    assert len(counts) > ROWS * 0.9  # each change deletes a row
    assert len({row["commit_timestamp"] for row in filled}) >= ROWS // CHUNK_ROWS

"""A checkpoint that the version before wrote goes on: nothing is lost, nothing comes twice.

`older_checkpoint.tar.gz` is what a killed run of that version has left on a disk, with states and
plans of format 7 and a plan without a state; `older_checkpoint.py` says how it was made.  The same
calls write the same records, so that a new broker has them at the same offsets.
"""

import json
import shutil
import time
from pathlib import Path

import deltalake
import pytest

from tests.hand_stream import HandStream, Ids
from tests.spark.older_checkpoint import BATCHES, PREFIX, SETTINGS, broker, write_batch
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.commands.status import status
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import STATE_FORMAT
from tidegate.spark_consumer.core.plan import PLAN_FORMAT
from tidegate.spark_consumer.sinks.manifest import read_manifest
from tidegate.spark_consumer.spark.query import build_query

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

ARCHIVE = Path(__file__).with_name("older_checkpoint.tar.gz")
FORMAT = 7
TABLES = ("accounts", "ledger")
END_US = 950
PATIENCE_S = 600


@pytest.fixture
def folder(tmp_path):
    """The checkpoint and the output, in another place than they were written in."""
    shutil.unpack_archive(ARCHIVE, tmp_path)
    query = tmp_path / "checkpoint" / "gate" / "query.json"
    content = json.loads(query.read_text())
    query.write_text(json.dumps({**content, "output": f"file:{tmp_path}/output"}))
    return tmp_path


def stored(folder, kind):
    paths = (folder / "checkpoint" / "gate" / kind).glob("[0-9]*.json")
    return {int(file.stem): json.loads(file.read_text()) for file in paths}


def rows(folder, table):
    return deltalake.DeltaTable(folder / "output" / table).to_pyarrow_table().to_pylist()


def changelog(folder):
    found = [row for table in TABLES for row in rows(folder, f"changelog/{table}")]
    return sorted(found, key=lambda row: (row["release"], row["ordinal"]))


def texts(found):
    return {row["id"]: row["t"] for row in found}


def test_the_archive_is_of_a_run_that_was_killed_between_two_sinks(folder):
    assert FORMAT < min(STATE_FORMAT, PLAN_FORMAT)
    states, plans = stored(folder, "states"), stored(folder, "plans")
    assert {state["format"] for state in (*states.values(), *plans.values())} == {FORMAT}
    assert (max(states), max(plans)) == (BATCHES - 2, BATCHES - 1)
    last, plan = states[max(states)], plans[max(plans)]
    assert last["segments"]
    assert last["mirror_release"] < last["next_release"] - 1
    assert plan["merges"][0] == last["next_release"] - 1
    begun = plan["releases"][0]["number"]
    assert len(plan["releases"]) > 1
    files = LocalFolder(folder / "output")
    assert read_manifest(files, begun) is None
    assert read_manifest(files, begun - 1).mirror_release == begun - 1
    assert changelog(folder)[-1]["release"] == begun
    older = f"{BATCHES - 2}/"
    assert texts(rows(folder, "mirror/accounts")) == {n: f"{older}{n}" for n in (0, 2, 4)}
    assert texts(rows(folder, "mirror/ledger")) == {n: f"{older}{n}" for n in (1, 3, 5)}
    assert len(rows(folder, "late")) == BATCHES - 1
    assert status(str(folder / "checkpoint"))["watermark_us"] == last["watermark_us"]


def test_this_version_goes_on_from_it_and_a_sink_may_join(spark, folder):
    ids = Ids()
    stream = HandStream(PREFIX, ids.register)
    for batch in range(BATCHES):
        write_batch(stream, batch)
    older = changelog(folder)
    with broker(folder / "kafka") as address:
        stream.create(address)
        stream.send(address)
        go_on(spark, folder, stream, ids, address)

    states = stored(folder, "states")
    last = states[max(states)]
    assert (last["format"], last["segments"]) == (STATE_FORMAT, [])
    assert (last["late_rows"], last["mismatches"]) == (BATCHES, 0)
    changes = changelog(folder)
    assert changes[: len(older)] == older
    assert [row["order_key"] for row in changes] == sorted(key for _, key, _ in stream.changes)
    late = rows(folder, "late")
    assert [row["order_key"] for row in late] == [changes[0]["order_key"]] * BATCHES
    assert len({(row["batch"], row["offset"]) for row in late}) == BATCHES
    expected = {
        "accounts": {0: "3/0", 2: "3/2", 4: "3/4", 53: "waits"},
        "ledger": {1: "3/1", 3: "3/3", 5: "3/5"},
    }
    for table in TABLES:
        assert texts(rows(folder, f"mirror/{table}")) == expected[table]
        versions = rows(folder, f"history/{table}")
        assert texts(row for row in versions if row["is_current"]) == expected[table]
    ended = [row["t"] for row in rows(folder, "history/ledger") if row["id"] == 1]
    assert sorted(ended) == ["0/1", "1/1", "2/1", "3/1"]
    numbers = sorted({row["release"] for row in changes})
    assert numbers == list(range(len(numbers)))
    files = LocalFolder(folder / "output")
    manifests = [read_manifest(files, number) for number in numbers]
    assert sum(manifest.rows for manifest in manifests) == len(changes)
    assert manifests[-1].through_us >= changes[-1]["commit_timestamp"].timestamp() * 1_000_000


def go_on(spark, folder, stream, ids, bootstrap_servers):
    """Run today's program until all is released.

    The stream partition's marker, which comes last, counts the changes of both versions.
    """
    settings = ConsumerConfig.load(
        None,
        **SETTINGS,
        mirror_interval_ms=0,
        sinks="changelog,mirror,history",
        output=str(folder / "output"),
        checkpoint=str(folder / "checkpoint"),
        bootstrap_servers=bootstrap_servers,
        registry_url="http://127.0.0.1:1",
    )
    write_batch(stream, BATCHES)
    stream.finish(end_us=900)
    stream.beat(END_US, token="u")
    stream.send(bootstrap_servers)
    running = build_query(spark, settings, registry=ids)
    try:
        give_up_at = time.monotonic() + PATIENCE_S
        while max(one["watermark_us"] for one in stored(folder, "states").values()) < END_US:
            assert running.query.isActive, running.failure()
            assert time.monotonic() < give_up_at
            time.sleep(0.2)
    finally:
        running.stop()

"""A checkpoint that the version before wrote goes on: nothing is lost, nothing comes twice.

`older_checkpoint.tar.gz` is what a killed run of that version has left on a disk: its states and
plans have format 7, and the last plan has no state yet.  `older_checkpoint.py` says how it was
made.  Its records come again from the same calls, so that a new broker has them at the same
offsets.
"""

from __future__ import annotations

import json
import tarfile
import time
from pathlib import Path

import deltalake
import pytest

from tests.hand_stream import HandStream, Ids
from tests.integration.older_checkpoint import BATCHES, PREFIX, SETTINGS, write_batch
from tests.spark.conftest import local_spark
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.config import ConsumerConfig
from tidegate.spark_consumer.core.batch_state import STATE_FORMAT
from tidegate.spark_consumer.sinks.manifest import read_manifest

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ARCHIVE = Path(__file__).with_name("older_checkpoint.tar.gz")
PATIENCE_S = 300


@pytest.fixture
def folder(tmp_path):
    """The checkpoint and the output, in another place than they were written in."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(tmp_path, filter="data")
    query = tmp_path / "checkpoint" / "gate" / "query.json"
    content = json.loads(query.read_text())
    assert content["output"].endswith("/output")
    content["output"] = (
        f"file:{tmp_path}/output" if "file:" in content["output"] else str(tmp_path / "output")
    )
    query.write_text(json.dumps(content))
    return tmp_path


def stored(folder, kind):
    found = (folder / "checkpoint" / "gate" / kind).glob("[0-9]*.json")
    return {int(file.stem): json.loads(file.read_text()) for file in found}


def rows(folder, table):
    return deltalake.DeltaTable(folder / "output" / table).to_pyarrow_table().to_pylist()


def test_the_archive_is_of_a_run_that_was_killed_between_a_plan_and_its_state(folder):
    states, plans = stored(folder, "states"), stored(folder, "plans")
    assert {one["format"] for one in (*states.values(), *plans.values())} == {STATE_FORMAT - 1}
    assert (max(states) + 1, max(plans)) == (BATCHES - 1, BATCHES - 1)
    assert states[max(states)]["segments"]
    begun = plans[max(plans)]["releases"]
    files = LocalFolder(folder / "output")
    published = [read_manifest(files, one["number"]) is not None for one in begun]
    assert published[:2] == [True, False]
    changelog = rows(folder, "changelog/accounts") + rows(folder, "changelog/ledger")
    assert max(row["release"] for row in changelog) == begun[1]["number"]


def test_the_current_version_goes_on_from_it(folder):
    from tidegate.spark_consumer.spark.query import build_query

    ids = Ids()
    stream = HandStream(PREFIX, ids.register)
    for batch in range(BATCHES):
        write_batch(stream, batch)
    with LocalStack(load_config(data_dir=folder / "stack"), with_simulator=False) as stack:
        stream.create(stack.bootstrap_servers)
        stream.send(stack.bootstrap_servers)
        spark = local_spark(folder / "spark", {})
        settings = ConsumerConfig.load(
            None,
            **SETTINGS,
            output=str(folder / "output"),
            checkpoint=str(folder / "checkpoint"),
            bootstrap_servers=stack.bootstrap_servers,
            registry_url="http://127.0.0.1:1",
        )
        running = build_query(spark, settings, registry=ids)
        try:
            write_batch(stream, BATCHES)
            # The marker proves the changes of all batches together, over both versions.
            stream.finish(end_us=900)
            stream.beat(950, token="u")
            stream.send(stack.bootstrap_servers)
            give_up_at = time.monotonic() + PATIENCE_S
            while max(one["watermark_us"] for one in stored(folder, "states").values()) < 950:
                assert running.query.isActive, running.failure()
                assert time.monotonic() < give_up_at
                time.sleep(0.2)
        finally:
            running.stop()
            spark.stop()
    last = stored(folder, "states")[max(stored(folder, "states"))]
    assert (last["format"], last["segments"], last["late_rows"]) == (STATE_FORMAT, [], 0)
    assert last["mismatches"] == 0

    changelog = rows(folder, "changelog/accounts") + rows(folder, "changelog/ledger")
    changelog.sort(key=lambda row: (row["release"], row["ordinal"]))
    assert [row["order_key"] for row in changelog] == sorted(key for _, key, _ in stream.changes)

    for table in ("accounts", "ledger"):
        expected = {}
        for row in changelog:
            if table in row_table(stream, row):
                key = row["key"]["id"]
                if row["mod_type"] == "DELETE":
                    expected.pop(key, None)
                else:
                    expected[key] = row["new_values"]["t"]
        assert {row["id"]: row["t"] for row in rows(folder, f"mirror/{table}")} == expected
    files = LocalFolder(folder / "output")
    numbers = sorted({row["release"] for row in changelog})
    assert numbers == list(range(len(numbers)))
    assert sum(read_manifest(files, number).rows for number in numbers) == len(changelog)


def row_table(stream, row):
    return [table for table, key, _ in stream.changes if key == row["order_key"]]

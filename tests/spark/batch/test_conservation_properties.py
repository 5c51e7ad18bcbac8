"""Damage to the changes that wait: the batch ends before anything of its release is published."""

from __future__ import annotations

import copy
import json
import shutil

import pytest

from tests.spark.batch.gate_world import SUBSCRIPTION, GateWorld
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.json_files import LocalFolder
from tidegate.spark_consumer.core.batch_state import STATE_FORMAT
from tidegate.spark_consumer.errors import SegmentDamaged

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(scope="module")
def three_batches(spark, tmp_path_factory):
    """Three batches whose changes wait, each in a segment."""
    world = GateWorld(spark, tmp_path_factory.mktemp("three-batches"))
    batch = world.start()
    for begin_us in (100, 200, 300):
        for commit_us in range(begin_us, begin_us + 40):
            world.log.change(commit_us)
        state = world.run(batch)
    return world, [one.name for one in state.segments]


@pytest.fixture
def waiting(three_batches, spark, tmp_path):
    """A copy of them for one test: its world, and the folders of the segments."""
    first, names = three_batches

    def waiting(**limits):
        world = GateWorld(spark, tmp_path / "world", **limits)
        shutil.copytree(first.folder, world.folder)
        world.cuts, world.log = list(first.cuts), copy.deepcopy(first.log)
        return world, [world.folder / "gate" / "segments" / name for name in names]

    return waiting


def delete(world, folders):
    shutil.rmtree(folders[1])


def truncate(world, folders):
    for path in folders[1].glob("*.parquet"):
        path.write_bytes(b"")
    for path in folders[1].glob(".*.crc"):
        path.unlink()


def empty(world, folders):
    rewrite(world, folders[1], lambda frame: frame.limit(0))


def halve(world, folders):
    rewrite(world, folders[1], lambda frame: frame.limit(20))


def swap(world, folders):
    shutil.move(folders[1], world.folder / "kept")
    shutil.move(folders[2], folders[1])
    shutil.move(world.folder / "kept", folders[2])


def replace_with_another(world, folders):
    shutil.rmtree(folders[1])
    shutil.copytree(folders[0], folders[1])


def write_twice(world, folders):
    rewrite(world, folders[1], lambda frame: frame.union(frame))


def change_a_value(world, folders):
    from pyspark.sql import functions as F  # noqa: N812 - with Spark only

    changed = F.when(F.col("offset") == 45, F.col("order_key")).otherwise(F.col("value"))
    rewrite(world, folders[1], lambda frame: frame.withColumn("value", changed))


def rewrite(world, folder, change):
    rows = change(world.spark.read.parquet(str(folder))).collect()
    schema = world.spark.read.parquet(str(folder)).schema
    shutil.rmtree(folder)
    world.spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(folder))


DAMAGES = (
    delete, truncate, empty, halve, swap, replace_with_another, write_twice, change_a_value
)  # fmt: skip


def test_a_segment_that_is_restored_is_released_as_it_was(waiting):
    world, folders = waiting()
    kept = shutil.copytree(folders[1], world.folder / "kept")
    delete(world, folders)
    world.log.beat(220)
    with pytest.raises(SegmentDamaged):
        world.run(world.start())
    kept.rename(folders[1])
    world.ask(world.start(), 3)
    assert world.order_us(0) == [*range(100, 140), *range(200, 221)]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda one: one.__name__)
def test_a_damaged_segment_is_named_before_its_changes_are_published(waiting, damage):
    world, folders = waiting()
    damage(world, folders)
    # Through the middle of the second segment: its end and the third one are not due yet.
    world.log.beat(220)
    batch = world.start()
    with pytest.raises(SegmentDamaged, match=f"segment='{folders[1].parent.name}/") as caught:
        world.run(batch)
    assert caught.value.hint
    assert (world.released, world.manifest(0)) == ({}, None)
    assert "3.json" not in world.files("states")
    if damage is delete:  # a restart changes nothing
        with pytest.raises(SegmentDamaged):
            world.ask(world.start(), 3)
        assert world.released == {}


@pytest.mark.parametrize("damage", [delete, halve], ids=lambda one: one.__name__)
def test_a_damaged_segment_is_not_joined(waiting, damage):
    world, folders = waiting(segments_max=2)
    damage(world, folders)
    world.log.change(400)
    with pytest.raises(SegmentDamaged, match="segment="):
        world.run(world.start())
    assert "3.json" not in world.files("states")


def test_what_is_not_read_is_not_opened_and_damage_is_found_when_it_is_due(waiting):
    world, folders = waiting()
    delete(world, folders[1:])
    world.log.beat(220)
    assert world.run(world.start()).next_release == 1
    world.log.beat(320)
    with pytest.raises(SegmentDamaged, match=folders[2].parent.name):
        world.run(world.start())
    assert sorted(world.released) == [0]


def test_changes_are_accounted_for_in_every_batch(world):
    batch = world.start()
    for commit_us in (10, 20, 20, 30, 40):
        world.log.change(commit_us)
    assert world.run(batch).waiting_rows == 5
    world.log.change(15)
    world.log.beat(20)
    # Two copies at 20 are one change; three changes of the segment are released.
    assert world.run(batch).waiting_rows == 2
    world.log.beat(100)
    assert world.run(batch).waiting_rows == 0


def with_frontier_in_one_file(world, name):
    """Store a frontier as the program before did; return its name there."""
    folder = world.folder / "gate" / "frontiers"
    files = GateFiles(LocalFolder(world.folder / "gate"))
    found = files.frontier(name, SUBSCRIPTION).frontier
    view = found.view(0)
    # Nothing has moved the watermark yet.
    assert (view.current, view.snapshots_waiting) == (None, 0)
    slot = {
        "slot": 0, "folded_through": view.folded_through, "finished_tokens": 0, "waiting": [],
        "announced": [["t", "", 1, -1]], "open": None, "current": None,
    }  # fmt: skip
    stream = {"name": "s", "slots": 1, "end_ns": None, "key_schema_ids": {}}
    stored = {"epoch": found.epoch, "stream": stream, "slots": [slot]}
    shutil.rmtree(folder)
    folder.mkdir()
    (folder / "000000000002.json").write_text(json.dumps(stored))
    return "000000000002"


def test_a_checkpoint_of_the_program_before_continues(waiting):
    """Its states have no format number, its segments no counts and no writer in their names.

    Its frontier is one file.
    """
    world, folders = waiting()
    path = world.folder / "gate" / "states" / "2.json"
    state = json.loads(path.read_text())
    for name in ("format", "code", "waiting_rows", "dropped_frontiers", "change_bytes"):
        del state[name]
    state["frontier"] = with_frontier_in_one_file(world, state["frontier"])
    for segment, folder in zip(state["segments"], folders, strict=True):
        del segment["parts"]
        segment["name"] = folder.parent.name
        for file in list(folder.iterdir()):
            shutil.move(file, folder.parent / file.name)
        folder.rmdir()
    path.write_text(json.dumps(state))
    batch = world.start()
    world.log.change(250)
    world.log.beat(220)
    state = world.run(batch)
    assert world.order_us(0) == [*range(100, 140), *range(200, 221)]
    assert (state.format, state.waiting_rows) == (STATE_FORMAT, None)
    world.log.beat(320)
    state = world.run(batch)
    assert world.order_us(1) == [*range(221, 240), 250, *range(300, 321)]
    world.log.beat(500)
    state = world.run(batch)
    assert world.order_us(2) == list(range(321, 340))
    world.run(batch)
    assert world.files("segments") == []
    assert "000000000002.json" not in world.files("frontiers")

"""Waiting changes as files, releases made from them, and damage to them.

A batch ends before anything of a release is published whose changes are not those that were stored.
"""

import copy
import shutil

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.batch.gate_world import GateWorld
from tests.spark.gate_rows import change, commit_times_us
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.core.batch_state import Segment
from tidegate.spark_consumer.core.conservation import reads_of
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.sums import SegmentRead
from tidegate.spark_consumer.errors import SegmentDamaged

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def files(spark, storage):
    return SegmentFiles(spark, storage.path("segments"))


@pytest.fixture
def store(files, rows):
    """Write a segment of changes at these times; return it as it was written."""

    def store(name, *times_us, quantiles_us=()):
        low, high = min(times_us), max(times_us)
        planned = Segment(name, low, high, len(times_us), (*quantiles_us, high))
        return planned.written(files.store(rows(*(change(us, us) for us in times_us)), planned))

    return store


def released(files, rows, segments, *, after_us=-1, through_us=50):
    reads = reads_of(segments, after_us=after_us, through_us=through_us)
    bounds = ReleaseBounds(0, after_us, through_us, tuple(s.name for s in segments))
    return files.release(rows, bounds, reads=reads)


def test_segments_give_back_what_is_released_in_order_and_once(files, store, rows):
    segments = store("a/1", 30, 12, 45), store("b/1", 20)
    fresh = rows(change(15, 1), change(12, 500), change(44, 2), (True, *change(13)[1:]))
    found = released(files, fresh, segments, after_us=11, through_us=30)
    kept = found.frame.collect()
    assert [(int.from_bytes(row.order_key[:8], "big"), row.offset) for row in kept] == [
        (12, 12),
        (15, 1),
        (20, 20),
        (30, 30),
    ]
    assert [row.place for row in kept] == [0, 1, 2, 3]
    assert [row.copies for row in kept] == [2, 1, 1, 1]
    # The part that ends at 45 was read, and is not due.
    waiting, due = found.waiting
    assert (waiting.rows, due) == (4, 3)


def test_a_batch_in_a_session_of_its_own_is_counted_too(files, store, rows):
    """As every micro-batch of a stream is: Spark gives it a copy of the query's session."""
    segments = (store("a/1", 30, 12),)
    fresh = rows(change(15, 1))
    other = fresh.sparkSession.newSession()
    copied = other.createDataFrame(fresh.collect(), fresh.schema)
    found = released(files, copied, segments)
    assert len(found.frame.collect()) == 3
    waiting, due = found.waiting
    assert (waiting.rows, due) == (2, 2)


def test_records_with_one_order_key_and_other_content_are_no_copies(files, store, rows):
    segments = (store("a/1", 12),)
    copy, other_topic = change(12, 500), change(13, 2, topic="bank.b")
    other_value = (*change(14, 9)[:5], bytearray(b"x"), *change(14, 9)[6:])
    fresh = rows(copy, change(13, 1), other_topic, change(14, 8), other_value, change(15, 3))
    found = released(files, fresh, segments).frame.collect()
    assert [(row.copies, row.is_conflict) for row in found] == [
        (2, False), (2, True), (2, True), (1, False)
    ]  # fmt: skip
    assert [tuple(row.last) for row in found][1:3] == [("bank.b", 0, 2), ("bank.a", 0, 9)]


def test_each_part_is_counted_as_it_is_written_and_found_as_it_is_read(files, store, rows):
    segment = store("a/1", *range(10, 50), quantiles_us=range(12, 50, 4))
    assert [part.rows for part in segment.parts] == [3, *[4] * 9, 1]
    assert sum(part.rows for part in segment.parts) == 40
    (read,) = reads_of([segment], after_us=15, through_us=22)
    assert (read.after_us, read.through_us, read.expected.rows) == (12, 24, 12)
    assert files.inspect([read]) == (read.expected,)
    found = released(files, rows(), [segment], after_us=15, through_us=22)
    assert commit_times_us(found.frame) == list(range(16, 23))
    assert found.waiting == (read.expected, 7)


def test_joined_segments_leave_behind_what_is_released(files, store, rows):
    segments = store("a/1", 12, 30), store("b/1", 20)
    reads = reads_of(segments, after_us=12, through_us=30)
    planned = Segment("c/1", 12, 30, 3, (20, 30))
    sums, read = files.join(planned, reads=reads, after_us=12)
    assert [one.rows for one in sums] == [1, 1]
    assert read.rows == 3
    found = released(files, rows(), [planned.written(sums)])
    assert commit_times_us(found.frame) == [20, 30]
    assert found.waiting[0] == sums[0] + sums[1]


def test_a_paused_run_overwrites_nothing_of_its_successor(files, store, rows, tmp_path):
    """It may repeat the batch of its successor, which may be reading the segment."""
    planned = Segment("a/2", 12, 30, 2, (30,))
    whole = planned.written(files.store(rows(change(12), change(30)), planned))
    folder = tmp_path / "gate" / "segments" / "a"
    before = {path: path.read_bytes() for path in folder.glob("2/*.parquet")}
    store("a/1", 12)
    assert {path: path.read_bytes() for path in folder.glob("2/*.parquet")} == before
    assert commit_times_us(released(files, rows(), [whole]).frame) == [12, 30]


def test_a_segment_that_cannot_be_read_is_named_and_other_failures_are_not_hidden(
    files, store, rows, tmp_path
):
    segments = store("a/1", 12), store("b/1", 20)
    reads = reads_of(segments, after_us=-1, through_us=50)
    with pytest.raises(ValueError, match="another"), files.readable(reads):
        raise ValueError("another")
    shutil.rmtree(tmp_path / "gate" / "segments" / "b")
    with pytest.raises(SegmentDamaged, match="segment='b/1'"), files.readable(reads):
        released(files, rows(), segments).frame.collect()
    assert files.inspect(reads)[1] is None
    assert files.inspect([SegmentRead("a/1", -1, 50, None)])[0].rows == 1


# ---------------------------------------------------------------- damage


@pytest.fixture(scope="module")
def three_batches(spark, tmp_path_factory):
    """Three batches whose changes wait, each in a segment."""
    world = GateWorld(spark, tmp_path_factory.mktemp("three-batches"))
    batch = world.start()
    for begin_us in (100, 200, 300):
        for commit_us in range(begin_us, begin_us + 40):
            world.log.change(commit_us)
        state = world.run(batch)
    return world, [segment.name for segment in state.segments]


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
    changed = F.when(F.col("offset") == 45, F.col("order_key")).otherwise(F.col("value"))
    rewrite(world, folders[1], lambda frame: frame.withColumn("value", changed))


def rewrite(world, folder, change):
    rows = change(world.spark.read.parquet(str(folder))).collect()
    schema = world.spark.read.parquet(str(folder)).schema
    shutil.rmtree(folder)
    world.spark.createDataFrame(rows, schema).coalesce(1).write.parquet(str(folder))


PER_MERGE = (delete, halve, change_a_value)
DAMAGES = [
    *PER_MERGE,
    *(
        pytest.param(one, marks=pytest.mark.deep)
        for one in (truncate, empty, swap, replace_with_another, write_twice)
    ),
]


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


@pytest.mark.parametrize(
    "damage", [halve, pytest.param(delete, marks=pytest.mark.deep)], ids=lambda one: one.__name__
)
def test_a_damaged_segment_is_not_joined(waiting, damage):
    world, folders = waiting(segments_max=2)
    damage(world, folders)
    world.log.change(400)
    with pytest.raises(SegmentDamaged, match="segment="):
        world.run(world.start())
    assert "3.json" not in world.files("states")


@pytest.mark.deep
def test_what_is_not_read_is_not_opened_and_damage_is_found_when_it_is_due(waiting):
    world, folders = waiting()
    delete(world, folders[1:])
    world.log.beat(220)
    assert world.run(world.start()).next_release == 1
    world.log.beat(320)
    with pytest.raises(SegmentDamaged, match=folders[2].parent.name):
        world.run(world.start())
    assert sorted(world.released) == [0]

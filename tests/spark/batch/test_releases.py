"""A release in commit order, by one task or one for each slice, decoded and counted."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.batch.gate_world import ACCOUNTS, LEDGER, GateWorld, RecordingSink
from tests.spark.conftest import spark_jars
from tests.spark.gate_rows import change
from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.batch.release_order import (
    edges_of,
    find_inner_cuts,
    in_order,
    numbered,
    slice_keys,
)
from tidegate.spark_consumer.batch.releases import decoded_release
from tidegate.spark_consumer.batch.rows import CHANGE_SCHEMA
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.release import first_ordinals

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAN = SimpleNamespace(query_id="q", batch=7, sinks=("a", "b"))
ROOT = Path(__file__).resolve().parents[3]
PROGRAM = "tests.spark.programs"
TOPIC = Topic("a", {2: {"id": "INT64"}}, ["id"], key_id=1)


def bounds_of(*cuts_us):
    return ReleaseBounds(3, 0, 100, (), cuts_us=cuts_us)


def drawn_rows(seed):
    """Changes with copies, at few commit timestamps, in any order."""
    chance = random.Random(seed)
    rows = []
    for n in range(200):
        us, transaction = chance.randint(1, 100), f"t{chance.randrange(3)}"
        one = change(us, n, topic=f"bank.{chance.choice('ab')}", transaction=transaction)
        rows += [one] * chance.choice((1, 1, 1, 2))
    chance.shuffle(rows)
    return rows


def made(frame, bounds, inner_cuts=()):
    """The release as the sinks get it: every column of every row, by its ordinal."""
    kept = in_order(frame, bounds, inner_cuts).drop("mod").cache()
    counts = {row["slice"]: row["count"] for row in kept.groupBy("slice").count().collect()}
    slices = len(edges_of(bounds, inner_cuts)) - 1
    firsts = first_ordinals(counts.get(n, 0) for n in range(slices))
    rows = (
        numbered(kept, firsts, release=bounds.number).drop("slice", "place", "slice_key").collect()
    )
    kept.unpersist()
    return sorted(rows, key=lambda row: row["ordinal"])


@pytest.mark.parametrize("seed", range(3))
def test_a_release_is_the_same_whatever_its_cuts_are(rows, seed):
    """A replay may find a plan with other cuts, or none."""
    chance = random.Random(seed)
    fresh = rows(*drawn_rows(seed)).repartition(3)
    whole = made(fresh, bounds_of())
    assert [row["ordinal"] for row in whole] == list(range(len(whole)))
    keys = [bytes(row["order_key"]) for row in whole]
    assert keys == sorted(set(keys))
    # Some slices are empty: commit timestamps repeat, and two cuts may lie side by side.
    for cuts in ((1,), (99,), (49, 50, 51), sorted(chance.sample(range(1, 100), 30))):
        assert made(fresh, bounds_of(*cuts)) == whole
    inner_cuts = [one[:-20] for one in chance.sample(keys, 9)]
    for cuts in ((), (49, 50)):
        assert made(fresh, bounds_of(*cuts), inner_cuts) == whole


@pytest.mark.parametrize("slices", [1, 2, 3, 8, 61])
def test_each_slice_has_a_task_of_its_own_and_tasks_are_in_order(rows, slices):
    changes = [change(us) for us in range(1, 101)]
    cuts = [n * 100 // slices for n in range(1, slices)]
    found = in_order(rows(*changes), bounds_of(*cuts))
    tasks = found.select("slice", "order_key", F.spark_partition_id().alias("task")).collect()
    assert [row["task"] for row in tasks] == [row["slice"] for row in tasks]
    assert [int.from_bytes(row["order_key"][:8], "big") for row in tasks] == list(range(1, 101))
    assert len({row["task"] for row in tasks}) == slices


def test_the_keys_of_slices_are_hashed_as_spark_does(spark):
    keys = slice_keys(100)
    frame = spark.createDataFrame([(key,) for key in keys], "key int")
    places = frame.select(F.pmod(F.hash("key"), F.lit(100)).alias("place")).collect()
    assert [row["place"] for row in places] == list(range(100))


@pytest.mark.parametrize(("cuts", "shuffles"), [((), 0), ((30, 60), 1)])
def test_one_sort_makes_a_slice(rows, cuts, shuffles):
    """Cost decides: one shuffle at most, and the aggregation's sort is the release's order."""
    found = in_order(rows(change(15)).coalesce(2), bounds_of(*cuts))
    plan = found._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange") == shuffles
    assert plan.count("Sort [") == 1
    assert plan.count("Sort [order_key") == 1  # its first bytes are compared without the row


def opened(frame, bounds, inner_cuts=()):
    known = dict.fromkeys((TOPIC.topic, "bank.b"), TOPIC.topic_schemas())
    rows = ReleaseRows(frame, None, inner_cuts)
    return decoded_release(rows, bounds, plan=PLAN, topics=known)


def test_a_change_in_the_slice_of_others_is_refused(rows):
    """As it would be if a version of Spark hashed in another way."""
    bounds = bounds_of(20, 50)
    found = in_order(rows(change(10), change(30)), bounds)
    moved = found.withColumn("slice", (F.col("slice") + 1) % 3)
    with pytest.raises(InvariantViolation, match="bounds"), opened(moved, bounds):
        pass


def test_a_change_beyond_an_inner_cut_is_refused(rows):
    """Both are of one commit time, and only their order keys say that they are not in order."""
    bounds, cut = bounds_of(), bytes(change(10, transaction="b")[6])[:-20]
    found = in_order(rows(*(change(10, transaction=one) for one in "ab")), bounds, [cut])
    with opened(found, bounds, [cut]) as (_, count):
        assert count.rows == 2
    moved = found.withColumn("slice", 1 - F.col("slice"))
    with pytest.raises(InvariantViolation, match="bounds"), opened(moved, bounds, [cut]):
        pass


def test_a_slice_that_lacks_a_place_is_refused(rows):
    bounds = bounds_of(20)
    found = in_order(rows(change(10), change(30), change(31)), bounds).where("place = 1")
    with pytest.raises(InvariantViolation, match="dense"), opened(found, bounds):
        pass


def test_counting_is_one_job_and_a_table_that_is_read_twice_is_decoded_once(spark):
    record = TOPIC.row(Change("INSERT", {"id": 1}, {}, us=10), ordinal=0)
    place = F.struct("topic", "topic_partition", "offset")
    known = {"copies": F.lit(1), "is_conflict": F.lit(False), "last": place, "slice": F.lit(0)}
    frame = spark.createDataFrame([record], ROWS_SCHEMA).coalesce(1).withColumns(known)
    ordered = frame.withColumnRenamed("ordinal", "place")
    context = spark.sparkContext
    context.setJobGroup("release", "jobs of one release")
    try:
        with opened(ordered, bounds_of()) as (release, _):
            assert len(context.statusTracker().getJobIdsForGroup("release")) == 1
            frame = release.tables[TOPIC.topic].frame
            frame.collect()
            plan = frame._jdf.queryExecution().executedPlan().toString()
            assert "InMemoryTableScan" in plan.splitlines()[0] + plan.splitlines()[1]
            assert frame.is_cached
        assert not frame.is_cached
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_source_records_are_read_slice_by_slice_and_only_for_those_who_ask(spark):
    """The driver holds one slice at a time: a job for each, when the reader has come to it."""
    topics = [Topic(name, {n: {"id": "INT64"}}, ["id"]) for n, name in enumerate("ab", 1)]
    times = random.Random(1).sample(range(1, 91), k=90)
    records = [
        topics[us % 2].row(Change("UPDATE", {"id": us}, {}, us=us), ordinal=0)[:-1] for us in times
    ]
    frame = spark.createDataFrame([*records, records[0]], CHANGE_SCHEMA).repartition(4)
    bounds = ReleaseBounds(3, 0, 2_000, (), cuts_us=(30, 60))
    made = ReleaseRows(in_order(frame, bounds), None)
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    context = spark.sparkContext
    context.setJobGroup("records", "source records")

    def jobs():
        context._jsc.sc().listenerBus().waitUntilEmpty()
        return len(context.statusTracker().getJobIdsForGroup("records"))

    try:
        with decoded_release(made, bounds, plan=PLAN, topics=known) as (release, _):
            assert jobs() == 1
            found = release.source_records()
            first = [next(found) for _ in range(30)]
            assert jobs() == 2
            rest = list(found)
            assert jobs() == 4
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert [one.ordinal for one in first + rest] == list(range(90))
    given = {bytes(row[5]): (row[0], bytes(row[3]), bytes(row[4]), "U") for row in records}
    assert sorted(given) == [one.order_key for one in first + rest]
    assert [given[one.order_key] for one in first + rest] == [
        (one.topic, one.key, one.value, one.mod) for one in first + rest
    ]


@pytest.mark.parametrize("us", [0, 101])
def test_rows_outside_of_the_bounds_are_refused(rows, us):
    ordered = in_order(rows(change(us)), bounds_of())
    with pytest.raises(InvariantViolation, match="bounds"), opened(ordered, bounds_of()):
        pass


# ---------------------------------------------------------------- cuts inside one commit time

T = 7
BOUNDS = ReleaseBounds(3, 0, 10, ())


def test_a_release_that_fits_takes_no_job(rows):
    class NotRead:
        def select(self, *_):
            raise AssertionError("the rows were read")

    class IsRead(Exception):
        pass

    class Read:
        def select(self, *_):
            raise IsRead

    # By the times at which its slices end, how many changes a release may have without a look.
    several = ReleaseBounds(3, 0, 10, (), cuts_us=(3, 5, T))
    for bounds, rows_max in (
        (BOUNDS, 200),
        (replace(BOUNDS, cuts_us=(T,)), 200),  # all at one time, before the end
        (several, 400),
    ):
        assert find_inner_cuts(NotRead(), bounds, rows_max=rows_max, slice_rows=100) == ()
        with pytest.raises(IsRead):
            find_inner_cuts(Read(), bounds, rows_max=rows_max + 1, slice_rows=100)
    found = rows(*(change(T, n, transaction=f"t{n:03d}") for n in range(201)))
    for bounds in (BOUNDS, replace(BOUNDS, cuts_us=(T,))):
        cuts = find_inner_cuts(found, bounds, rows_max=201, slice_rows=100)
        assert cuts == (T.to_bytes(8, "big") + b"t100\0",)


class CountingSink(RecordingSink):
    """Notes how many changes of each transaction stand in each task."""

    tasks: ClassVar[list[tuple[int, str, int]]] = []

    def write(self, release):
        self.tasks.clear()
        for table in release.tables.values():
            task = F.spark_partition_id().alias("task")
            counted = table.frame.groupBy(task, "server_transaction_id").count()
            self.tasks.extend(tuple(row) for row in counted.collect())
        ordinals = [record.ordinal for record in release.source_records()]
        assert ordinals == list(range(release.rows))
        return super().write(release)


def test_all_rows_of_a_backfill_are_one_release_of_many_slices(spark, tmp_path):
    """They wait as segments, have one commit time, and come with copies and a change after them."""
    world = GateWorld(spark, tmp_path, slice_rows=20)
    world.collects = False
    world.make_sink = lambda: CountingSink(world.released)
    log, sequences = world.log, (0, 1, 2, 3)
    batch = world.start()
    for part in range(2):
        for number in range(part, 50, 2):
            for sequence in sequences:
                log.change(
                    T, topic=(ACCOUNTS, LEDGER)[sequence % 2], transaction=f"r{number}",
                    sequence=sequence, records=len(sequences), copies=1 + (number == 9),
                )  # fmt: skip
        world.run(batch)
    log.change(9, transaction="later")
    log.beat(9)
    state = world.run(batch)

    assert (state.next_release, state.segments) == (1, ())
    assert [(row[1], row[0]) for row in world.released[0]] == list(
        enumerate(sorted(row[0] for row in world.released[0]))
    )
    assert len(world.released[0]) == 50 * 4 + 1
    tasks: dict[str, set[int]] = {}
    changes: dict[int, int] = {}
    for task, transaction, count in CountingSink.tasks:
        tasks.setdefault(transaction, set()).add(task)
        changes[task] = changes.get(task, 0) + count
    assert all(len(of) == 1 for of in tasks.values())
    assert len(changes) >= 8
    assert max(changes.values()) <= 40


@pytest.mark.deep
@pytest.mark.timeout(600)
def test_slices_on_two_executors_give_the_release_of_one_task(tmp_path):
    jars = spark_jars()
    if not jars:
        pytest.skip("Spark's jars are not fetched: ./dev setup, or TIDEGATE_SPARK_JARS=<folder>")
    found = {}
    for master in ("local[1]", "local-cluster[2,1,1024]"):
        folder = tmp_path / master.partition("[")[0]
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, "cluster", master, str(folder), ",".join(jars)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        found[master] = json.loads(done.stdout.splitlines()[-1])
    one, cluster = found.values()
    assert (one["executors"], cluster["executors"]) == (1, 2)
    assert (one["files"], cluster["files"]) == (1, 4)
    assert one["rows"] == cluster["rows"]
    assert [ordinal for ordinal, *_ in one["rows"]] == list(range(4_000))

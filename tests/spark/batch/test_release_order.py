"""A release's changes in commit order, by one task or by one for each slice."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.spark.gate_rows import change
from tests.topics import Topic
from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.batch.decoded_release import decoded_release
from tidegate.spark_consumer.batch.release_order import (
    edges_of,
    in_order,
    numbered,
    slice_keys,
)
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.release import first_ordinals

pytestmark = pytest.mark.spark

PLAN = SimpleNamespace(query_id="q", batch=7, sinks=("a",))
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


def test_a_sliced_release_is_counted_over_all_slices(rows):
    fresh = rows(*(change(us) for us in (10, 20, 20, 30)), change(90, topic="bank.b"))
    bounds = bounds_of(20, 50)
    with opened(in_order(fresh, bounds), bounds) as (release, count):
        assert (count.rows, count.copies, count.conflict) == (4, 5, None)
        assert release.tables[TOPIC.topic].rows == 3


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

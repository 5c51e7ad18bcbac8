"""Records of transactions: Spark and the driver count the same, over tables and changes."""

import random
from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.batch.release_order import in_order
from tidegate.spark_consumer.batch.transaction_sums import count_collected, count_ordered
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.transactions import ALL_WHOLE, LISTED_MAX
from tidegate.spark_consumer.sinks.port import CollectedTable
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

pytestmark = [pytest.mark.spark, pytest.mark.slow]

A = Topic("a", {1: {"id": "INT64"}}, ["id"])
B = Topic("b", {2: {"id": "INT64"}}, ["id"], key_id=101)
NAMES = ROWS_SCHEMA.replace(",", "").split()[::2]


def both_ways(spark, changes, *cuts_us, complete_from_us=-1, gaps=()):
    """What the driver finds in the release of (topic, change), and what Spark finds."""
    rows = [topic.row(change, ordinal=n) for n, (topic, change) in enumerate(changes)]
    collected = {}
    for topic in (A, B):
        schemas = topic.topic_schemas()
        records = [dict(zip(NAMES, row, strict=True)) for row in rows if row[0] == topic.topic]
        found = decode_rows(records, schemas, release=0)
        collected[topic.topic] = CollectedTable(spark, lambda: None, found, schemas)
    after = {"complete_from_us": complete_from_us, "gaps": gaps}
    here = count_collected(SimpleNamespace(tables=collected), **after)
    return here, by_spark(spark, rows, *cuts_us, **after)


def by_spark(spark, rows, *cuts_us, complete_from_us=-1, gaps=(), inner_cuts=()):
    bounds = ReleaseBounds(3, 0, 100, (), cuts_us=cuts_us)
    frame = spark.createDataFrame(rows, ROWS_SCHEMA).drop("ordinal")
    ordered = in_order(frame, bounds, inner_cuts)
    known = {topic.topic: topic.topic_schemas() for topic in (A, B)}
    return count_ordered(
        ordered, bounds, topics=known, complete_from_us=complete_from_us, gaps=gaps,
        inner_cuts=inner_cuts,
    )  # fmt: skip


def change(us, sequence=0, *, mod=0, records=1, transaction="t"):
    return Change(
        "INSERT", {"id": us}, {}, us=us, sequence=sequence, mod_number=mod, records=records,
        transaction=transaction,
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_spark_finds_what_the_driver_finds(spark, seed):
    chance = random.Random(seed)
    changes = []
    for us in range(1, 30):
        records = chance.randint(1, 3)
        found = records + chance.choice((-1, 0, 0, 0, 1))
        changes += [
            (chance.choice((A, B)), change(us, n, mod=mod, records=records, transaction=f"t{us}"))
            for n in range(found)
            for mod in range(chance.randint(1, 2))
        ]
    chance.shuffle(changes)
    cuts_us = sorted(chance.sample(range(1, 30), seed))
    gaps = (PartitionGap("p", 6, 9, "ops", 0), PartitionGap("q", 8, 12, "ops", 0))
    here, by_spark = both_ways(spark, changes, *cuts_us, complete_from_us=3, gaps=gaps)
    assert here == by_spark
    assert here.lacking
    assert here.others
    assert all(one.commit_us > 3 for one in here.listed)
    lacking = {one.commit_us for one in here.listed if one.lacks_records}
    assert not lacking & set(range(6, 12))


def test_records_of_one_commit_time_are_counted_by_transaction(spark):
    """Together, two halves have as many records as each states; two changes may be one record."""
    whole = [(A, change(1, n, records=2, transaction="t")) for n in range(2)]
    halves = [(A, change(2, n, records=2, transaction=name)) for n, name in enumerate("uv")]
    one_record = [(B, change(3, mod=mod, records=2, transaction="w")) for mod in range(2)]
    many = [(A, change(us, records=2)) for us in range(4, LISTED_MAX + 4)]
    for both_way in both_ways(spark, [*whole, *halves, *one_record, *many], 2, 7):
        names = [one.server_transaction_id for one in both_way.listed[:3]]
        assert (names, both_way.listed[2].found, both_way.listed[2].most) == (["u", "v", "w"], 1, 2)
        assert (both_way.lacking, len(both_way.listed)) == (LISTED_MAX + 3, LISTED_MAX)
        assert both_way.listed[3].topics == ("bank.a",)


@pytest.mark.parametrize("fault", ["lacks", "has more", "repeats", "contradicts"])
def test_one_transaction_among_whole_ones_is_found(spark, fault):
    """The job that proves all of them whole must not overlook it."""
    whole = [
        (topic, change(us, n, mod=mod, records=2, transaction=f"t{us}"))
        for us in range(1, 21)
        for n, topic in enumerate((A, B))
        for mod in range(us % 3 + 1)
    ]
    of_one = {
        "lacks": [(A, change(7, records=2, transaction="u"))],
        "has more": [(A, change(7, n, transaction="u")) for n in range(2)],
        "repeats": [(A, change(7, mod=mod, records=2, transaction="u")) for mod in range(2)],
        "contradicts": [(A, change(7, n, records=1 + n, transaction="u")) for n in range(2)],
    }
    here, by_spark = both_ways(spark, [*whole, *of_one[fault]], 5, 10)
    assert here == by_spark
    assert [one.server_transaction_id for one in by_spark.listed] == ["u"]


def test_whole_transactions_of_several_slices_take_one_job(spark):
    changes = [(A, change(1, 0, records=2)), (B, change(1, 1, records=2)), (B, change(9))]
    context = spark.sparkContext
    context.setJobGroup("transactions", "jobs of one release")
    try:
        assert both_ways(spark, changes, 5) == (ALL_WHOLE, ALL_WHOLE)
        assert len(context.statusTracker().getJobIdsForGroup("transactions")) == 1
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@pytest.mark.parametrize(("cuts_us", "shuffles"), [((), 0), ((10, 20), 2)])
def test_transactions_are_counted_where_their_slice_is(spark, monkeypatch, cuts_us, shuffles):
    """Cost decides: the release's own shuffle, and one row of each task to the driver."""
    plans = []
    frame_class = type(spark.range(1))
    collect = frame_class.collect

    def noted(frame):
        plans.append(frame._jdf.queryExecution().executedPlan().toString())
        return collect(frame)

    monkeypatch.setattr(frame_class, "collect", noted)
    assert by_spark(spark, [A.row(change(15), ordinal=0)], *cuts_us) == ALL_WHOLE
    assert [plan.count("Exchange ") for plan in plans] == [shuffles]


def test_a_commit_time_that_is_not_one_of_its_slice_is_refused(spark):
    """Else a transaction might be in two slices, and whole in each."""
    *place, key, mod, origin, ordinal = A.row(change(15), ordinal=0)
    moved = (*place, bytearray(change(5).order_key), mod, origin, ordinal)
    assert len(key) == len(moved[5])
    with pytest.raises(InvariantViolation, match="bounds"):
        by_spark(spark, [A.row(change(15), ordinal=0), moved], 10)


@pytest.mark.parametrize("lacks", [False, True])
def test_transactions_of_one_commit_time_are_counted_in_their_slices(spark, lacks):
    changes = [
        change(15, n, records=3, transaction=f"t{number}") for number in range(9) for n in range(3)
    ]
    cuts = [changes[place].order_key[:-20] for place in (6, 15)]
    kept = changes[:-1] if lacks else changes
    rows = [A.row(one, ordinal=n) for n, one in enumerate(kept)]
    found = by_spark(spark, rows, inner_cuts=cuts)
    assert [one.server_transaction_id for one in found.listed] == ["t8"] * lacks
    # Of another time than those at the slice's edges.
    late = list(A.row(change(16, records=1), ordinal=0))
    late[5] = bytearray(changes[0].order_key)
    with pytest.raises(InvariantViolation, match="bounds"):
        by_spark(spark, [*rows[1:], tuple(late)], inner_cuts=cuts)


def test_a_value_of_an_unknown_schema_fails_the_count(spark):
    row = list(A.row(change(15), ordinal=0))
    row[4][4] = 99
    with pytest.raises(PySparkException, match="schema id that the plan does not name"):
        by_spark(spark, [tuple(row)])


def test_a_change_without_a_value_states_nothing(spark):
    row = list(A.row(change(15, records=2), ordinal=0))
    row[4] = None
    assert by_spark(spark, [tuple(row)]) == ALL_WHOLE

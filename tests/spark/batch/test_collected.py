"""Small batches and releases: made in the driver, and the same as those that Spark makes."""

import random
from dataclasses import replace
from types import SimpleNamespace

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tests.simulation.object_store import ObjectStore, StoreClient
from tests.spark.gate_rows import change
from tests.topics import Change, Topic
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import InvariantViolation, SchemaError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch.change_counts import (
    collect_batch,
    count_changes,
    part_sums_of,
    read_part_sums,
    read_sum,
    sum_of,
    with_hash,
)
from tidegate.spark_consumer.batch.release_order import in_order
from tidegate.spark_consumer.batch.releases import collected_release, decoded_release
from tidegate.spark_consumer.batch.rows import CHANGE_SCHEMA
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.release import QUANTILES
from tidegate.spark_consumer.core.sums import NO_ROWS, RowSum

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PLAN = SimpleNamespace(query_id="q", batch=7, sinks=("a",))
BOUNDS = ReleaseBounds(3, 0, 2_000, (), is_small=True)


@pytest.fixture
def topics():
    return [
        Topic("a", {1: {"id": "INT64"}}, ["id"]),
        Topic("b", {2: {"id": "INT64"}}, ["id"], key_id=101),
        Topic("c", {3: {"id": "INT64"}}, ["id"], key_id=102),
    ]


def records_of(*changes):
    names = CHANGE_SCHEMA.fieldNames()
    return [
        dict(zip(names, topic.row(Change("INSERT", {"id": n}, {}, us=us), ordinal=0), strict=False))
        for n, (topic, us) in enumerate(changes)
    ]


def frame_of(spark, records):
    return spark.createDataFrame([tuple(record.values()) for record in records], CHANGE_SCHEMA)


def collected(spark, records, topics):
    return collected_release(
        records,
        BOUNDS,
        plan=PLAN,
        topics={topic.topic: topic.topic_schemas() for topic in topics},
        spark=spark,
        in_order=lambda: in_order(frame_of(spark, records), BOUNDS),
    )


@pytest.mark.parametrize("seed", range(4))
def test_it_is_the_release_that_spark_makes(spark, topics, seed):
    """Copies, conflicts (in every other seed), tombstones, and the first of several copies."""
    conflicts = seed % 2
    chance = random.Random(seed)
    times = chance.choices(range(1, 41), k=60) if conflicts else chance.sample(range(1, 100), k=60)
    changes = [(chance.choice(topics), us) for us in times]
    records = []
    for record in records_of(*changes):
        copies = chance.choice((1, 1, 3))
        for copy in range(copies):
            other = {
                "topic_partition": chance.randrange(3),
                "offset": record["offset"] + 100 * copy,
            }
            if conflicts and chance.random() < 0.1:
                other["mod"] = "X"
            if conflicts and chance.random() < 0.1:
                other["value"] = None
            records.append(record | other)
        if not conflicts and chance.random() < 0.1:
            records[-copies:] = [one | {"value": None} for one in records[-copies:]]
    chance.shuffle(records)
    release, count = collected(spark, records, topics)
    known = {topic.topic: topic.topic_schemas() for topic in topics}
    made = ReleaseRows(in_order(frame_of(spark, records), BOUNDS), None)
    with decoded_release(made, BOUNDS, plan=PLAN, topics=known) as (by_spark, counted):
        assert count == counted
        assert (release.rows, release.copies) == (by_spark.rows, by_spark.copies)
        assert release.value_bytes == by_spark.value_bytes
        assert (count.conflict is not None) == bool(conflicts)
        if not conflicts:
            released = list(release.source_records())
            assert released == list(by_spark.source_records())
            assert release.value_bytes == sum(len(record.value) for record in released)
        for topic, one in release.tables.items() if not conflicts else ():
            other = by_spark.tables[topic]
            assert one.rows == other.rows
            columns = ("ordinal", "topic_partition", "offset", "origin", "mod_type", "order_key")
            mine = [tuple(change[name] for name in columns) for change in one.changes]
            assert mine == [tuple(row) for row in other.frame.select(*columns).collect()]


def joined(own, beside):
    """The schemas of a table that has records in two topics, as the checkpoint makes them."""
    storage = StoreClient(ObjectStore(), "gate", None)
    storage.take()
    schemas = {**own.schemas, own.key_id: own.key_schema}
    schemas |= {**beside.schemas, beside.key_id: beside.key_schema}
    store = SchemaStore(storage, SimpleNamespace(schema=schemas.get))
    known = [TopicIds(one.topic, (one.key_id,), tuple(one.schemas)) for one in (own, beside)]
    return store.topics(known, Subscription(TopicNames("bank")))


def test_rows_that_were_read_on_demand_stand_among_the_changes_of_their_table(spark):
    """By both ways; values and keys name another topic's types."""
    own = Topic("a", {1: {"id": "INT64", "x": "INT64"}}, ["id"])
    beside = Topic(
        "a__backfill", {2: {"id": "INT64", "x": "INT64", "y": "STRING(9)"}}, ["id"], key_id=101
    )
    changes = [
        (own, Change("INSERT", {"id": 1}, {"x": 1}, us=1_000)),
        (beside, Change("INSERT", {"id": 1}, {"x": 1, "y": "z"}, us=1_001)),
        (own, Change("DELETE", {"id": 1}, old={"x": 1}, us=1_002)),
        (beside, Change("INSERT", {"id": 2}, {"x": 3, "y": None}, us=1_003)),
    ]
    names = CHANGE_SCHEMA.fieldNames()
    records = [dict(zip(names, topic.row(one, ordinal=0), strict=False)) for topic, one in changes]
    known = joined(own, beside)
    made = ReleaseRows(in_order(frame_of(spark, records), BOUNDS), None)
    release, count = collected_release(
        records, BOUNDS, plan=PLAN, topics=known, spark=spark,
        in_order=lambda: in_order(frame_of(spark, records), BOUNDS),
    )  # fmt: skip

    assert list(release.tables) == ["bank.a"]
    one = release.tables["bank.a"]
    assert [change["ordinal"] for change in one.changes] == [0, 1, 2, 3]
    assert [change["mod_type"] for change in one.changes] == [
        "INSERT",
        "INSERT",
        "DELETE",
        "INSERT",
    ]
    assert [(c["new_values"] or {}).get("y") for c in one.changes] == [None, "z", None, None]
    sums = {topic: found.mods for (_, topic), found in count.origins.items()}
    assert sums == {"bank.a": 2, "bank.a__backfill": 2}
    columns = ("ordinal", "mod_type", "key", "new_values", "new_columns")
    mine = one.frame.select(*columns).orderBy("ordinal").collect()
    assert [row["key"]["id"] for row in mine] == [1, 1, 1, 2]
    with decoded_release(made, BOUNDS, plan=PLAN, topics=known) as (by_spark, counted):
        assert counted == count
        other = by_spark.tables["bank.a"]
        assert (list(by_spark.tables), other.rows) == (["bank.a"], 4)
        assert other.frame.select(*columns).orderBy("ordinal").collect() == mine


def test_the_first_of_the_conflicts_is_named(spark, topics):
    a, b, _ = topics
    records = records_of((a, 1_000), (b, 1_001), (a, 1_002))
    altered = [record | {"offset": 9, "mod": "X"} for record in records[1:]]
    _, count = collected(spark, [*altered, *records], topics)
    conflict = count.conflict
    assert (conflict.changes, conflict.commit_timestamp_us) == (2, 1_001)
    assert (conflict.first, conflict.last) == ("bank.b/0/1", "bank.b/0/9")


@pytest.mark.parametrize("us", [0, 2_001])
def test_records_outside_of_the_bounds_are_refused(spark, topics, us):
    with pytest.raises(InvariantViolation, match="bounds"):
        collected(spark, records_of((topics[0], us)), topics)


# ---------------------------------------------------------------- batches

PROGRESS = (True, "bank-progress", 3, 5, bytearray(b"k"), bytearray(b"v" * 99), None, None, None)


def drawn_rows(seed):
    chance = random.Random(seed)
    rows = [PROGRESS]
    for n in range(chance.choice((1, 40, 300))):
        one = change(
            chance.randint(0, 50), n, topic=f"bank.{chance.choice('ab')}",
            key_id=chance.choice((1, 7)), value_id=chance.choice((2, 4, None)),
        )  # fmt: skip
        if chance.random() < 0.02:
            one = (*one[:6], chance.choice((None, b"\x00" * 28)), *one[7:])
        rows.append(one)
    return rows


@pytest.mark.parametrize(
    ("seed", "after_us", "through_us"),
    [(0, -1, -1), (1, 10, 10), (2, 10, 30), (3, -1, 60), (4, 10, 30), (5, 10, 30)],
)
def test_the_figures_are_those_that_spark_counts(rows, seed, after_us, through_us):
    frame = rows(*drawn_rows(seed))
    by_spark = count_changes(frame, after_us=after_us, through_us=through_us)
    collected = collect_batch(frame, change_bytes_max=100)
    found = collected.count(after_us=after_us, through_us=through_us)
    for name in ("due", "early"):
        mine, sparks = getattr(found, name), getattr(by_spark, name)
        assert (mine.rows, mine.size_bytes) == (sparks.rows, sparks.size_bytes)
        assert len(mine.quantiles_us) == len(sparks.quantiles_us)
        assert list(mine.quantiles_us) == sorted(mine.quantiles_us)
        if mine.rows >= QUANTILES:
            assert mine.quantiles_us == sparks.quantiles_us
        assert mine.quantiles_us[-1:] == sparks.quantiles_us[-1:]
    assert replace(found, due=by_spark.due, early=by_spark.early) == by_spark


def test_a_batch_with_one_large_change_is_left_to_spark(rows):
    size = len(change(5)[4]) + len(change(5)[5])
    assert collect_batch(rows(change(5)), change_bytes_max=size) is not None
    assert collect_batch(rows(change(5), change(6)), change_bytes_max=size - 1) is None


def test_one_job_collects_a_batch(spark, rows):
    context = spark.sparkContext
    context.setJobGroup("collect", "a batch")
    try:
        collect_batch(rows(change(5)), change_bytes_max=100)
        assert len(context.statusTracker().getJobIdsForGroup("collect")) == 1
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


def test_the_stats_counts_against_both_watermarks(rows):
    progress = (True, "bank-progress", 0, 0, b"k", b"v", None, None, None)
    found = count_changes(
        rows(
            progress,
            *(change(us) for us in (5, 10)),
            *(change(us, value_id=4) for us in (11, 15, 20)),
            *(change(us, topic="bank.b", key_id=7, value_id=None) for us in (21, 40)),
        ),
        after_us=10,
        through_us=20,
    )
    assert (found.late_rows, found.due.rows, found.early.rows) == (2, 3, 2)
    # Keys and values of six bytes each, and two changes without a value.
    assert (found.due.size_bytes, found.early.size_bytes) == (36, 12)
    assert set(found.due.quantiles_us) == {11, 15, 20}
    assert found.due.quantiles_us[-1] == 20
    assert (found.early_min_us, found.early_max_us) == (21, 40)
    assert found.topics == (TopicIds("bank.a", (1,), (2, 4)), TopicIds("bank.b", (7,), ()))
    assert (found.unordered_rows, found.unordered_at) == (0, "")


@pytest.mark.parametrize("order_key", [None, b"", b"\x00" * 28])
def test_a_row_without_a_whole_order_key_is_found(rows, order_key):
    bad = (*change(5, 77)[:6], order_key, "I", 7)
    found = count_changes(rows(change(11), bad), after_us=10, through_us=20)
    assert (found.unordered_rows, found.unordered_at) == (1, "bank.a/0/77")
    assert (found.late_rows, found.due.rows) == (0, 1)


def test_a_value_without_confluents_header_is_refused(rows):
    bad = (*change(5)[:5], b"\x01\x00", *change(5)[6:])
    with pytest.raises(SchemaError, match="header"):
        count_changes(rows(bad), after_us=-1, through_us=20)
    collected = collect_batch(rows(bad), change_bytes_max=100)
    with pytest.raises(SchemaError, match="header"):
        collected.count(after_us=-1, through_us=20)


def sums_of(frame):
    found = with_hash(frame.drop("is_progress")).agg(*sum_of(F.lit(True), "all")).collect()[0]
    return read_sum(found.asDict(), "all")


def test_sums_do_not_overflow_under_ansi_and_copies_do_not_cancel_out(spark, rows):
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    one = sums_of(rows(change(10, 7)))
    assert one.checksum != 0
    assert sums_of(rows(*(change(10, 7) for _ in range(64)))) == RowSum(
        64, one.checksum * 64 % 2**64
    )
    assert sums_of(rows()) == NO_ROWS


def test_every_column_counts(rows):
    row, sums = change(10, 7), set()
    others = {0: row[0], 1: "x", 2: 9, 3: 9, 4: b"x", 5: None, 6: b"x", 7: "D", 8: None}
    for place, other in others.items():
        sums.add(sums_of(rows((*row[:place], other, *row[place + 1 :]))))
    assert len(sums) == len(others)


def test_parts_end_at_their_cuts_and_together_are_the_whole(rows):
    frame = rows(*(change(us) for us in (1, 5, 6, 6, 9)))
    cuts_us = (5, 6, 9)
    found = with_hash(frame.drop("is_progress")).agg(*part_sums_of(cuts_us)).collect()[0]
    parts = read_part_sums(found.asDict(), cuts_us)
    assert [part.rows for part in parts] == [2, 2, 1]
    assert sum(parts, NO_ROWS) == sums_of(frame)

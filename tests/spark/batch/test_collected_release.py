"""A small release: made in the driver, and the same as the one that Spark makes."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tests.simulation.object_store import ObjectStore, StoreClient
from tests.topics import Change, Topic
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch.collected_release import collected_release
from tidegate.spark_consumer.batch.decoded_release import decoded_release
from tidegate.spark_consumer.batch.release_order import in_order
from tidegate.spark_consumer.batch.rows import CHANGE_SCHEMA
from tidegate.spark_consumer.batch.segments import ReleaseRows
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.batch_state import TopicIds
from tidegate.spark_consumer.core.plan import ReleaseBounds
from tidegate.spark_consumer.core.row_sums import ReleaseCount
from tidegate.spark_consumer.sinks.port import SourceRecord

pytestmark = pytest.mark.spark

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
    return spark.createDataFrame([tuple(one.values()) for one in records], CHANGE_SCHEMA)


def collected(spark, records, topics):
    return collected_release(
        records,
        BOUNDS,
        plan=PLAN,
        topics={topic.topic: topic.topic_schemas() for topic in topics},
        spark=spark,
        in_order=lambda: in_order(frame_of(spark, records), BOUNDS),
    )


def test_every_known_table_is_there_and_as_a_frame_too(spark, topics):
    a, b, _ = topics
    release, count = collected(spark, records_of((a, 1_000), (b, 1_001), (a, 1_002)), topics)
    assert count == ReleaseCount(3, 3, origins=count.origins)
    sums = {topic: one.mods for (_, topic), one in count.origins.items()}
    assert sums == {"bank.a": 2, "bank.b": 1}
    assert (release.number, release.batch, release.rows) == (3, 7, 3)
    found = {
        topic: (one.rows, [change["ordinal"] for change in one.changes])
        for topic, one in release.tables.items()
    }
    assert found == {"bank.a": (2, [0, 2]), "bank.b": (1, [1]), "bank.c": (0, [])}
    for one in release.tables.values():
        assert one.frame.schema.fieldNames() == one.schema.fieldNames()
        assert one.frame.count() == one.rows
        assert one.frame is one.frame


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
        assert (count.conflict is not None) == bool(conflicts)
        if not conflicts:
            assert list(release.source_records()) == list(by_spark.source_records())
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


def test_the_source_records_are_those_of_kafka_in_commit_order(spark, topics):
    a, b, _ = topics
    records = records_of((a, 1_002), (b, 1_003), (a, 1_000))
    older = Change("DELETE", {"id": 9}, old={}, us=1_001, is_older=True)
    records[1] = dict(zip(records[0], b.row(older, ordinal=0), strict=False))
    records[2]["value"] = None
    release, _ = collected(spark, [*records, records[0] | {"offset": 99}], topics)
    found = list(release.source_records())
    assert found == [
        SourceRecord(1, "bank.b", *_content(records[1])),
        SourceRecord(2, "bank.a", *_content(records[0])),
    ]
    assert {type(content) for one in found for content in (one.key, one.value)} == {bytes}
    assert list(release.source_records()) == found


def _content(record):
    content = (bytes(record[name]) for name in ("key", "value", "order_key"))
    return *content, record["mod"], record["origin"]


def test_the_first_of_the_conflicts_is_named(spark, topics):
    a, b, _ = topics
    records = records_of((a, 1_000), (b, 1_001), (a, 1_002))
    altered = [one | {"offset": 9, "mod": "X"} for one in records[1:]]
    _, count = collected(spark, [*altered, *records], topics)
    conflict = count.conflict
    assert (conflict.changes, conflict.commit_timestamp_us) == (2, 1_001)
    assert (conflict.first, conflict.last) == ("bank.b/0/1", "bank.b/0/9")


def test_a_conflict_is_named_though_a_record_of_it_cannot_be_decoded(spark, topics):
    a, _, _ = topics
    (record,) = records_of((a, 1_000))
    foreign = record | {"offset": 0, "value": record["value"][:-1], "origin": None}
    _, count = collected(spark, [record, foreign], topics)
    assert (count.conflict.first, count.conflict.last) == ("bank.a/0/0", "bank.a/0/1")


def test_a_topic_of_tombstones_only_counts_and_has_no_table(spark, topics):
    a, b, _ = topics
    records = records_of((a, 1_000), (b, 1_001))
    records[1]["value"] = None
    release, count = collected(spark, records, [a])
    assert count == ReleaseCount(2, 2, origins=count.origins)
    assert (release.rows, list(release.tables)) == (2, ["bank.a"])


@pytest.mark.parametrize("us", [0, 2_001])
def test_records_outside_of_the_bounds_are_refused(spark, topics, us):
    with pytest.raises(InvariantViolation, match="bounds"):
        collected(spark, records_of((topics[0], us)), topics)

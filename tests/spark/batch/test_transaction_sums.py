"""Records of transactions: Spark and the driver count the same, over tables and changes."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tests.topics import ROWS_SCHEMA, Change, Topic
from tidegate.spark_consumer.batch.transaction_sums import count_collected, count_decoded
from tidegate.spark_consumer.core.transactions import ALL_WHOLE, LISTED_MAX
from tidegate.spark_consumer.sinks.collected_table import CollectedTable
from tidegate.spark_consumer.sinks.decoding import decode_changes
from tidegate.spark_consumer.sinks.port import DecodedTable
from tidegate.spark_consumer.sinks.row_decoding import decode_rows

pytestmark = pytest.mark.spark

A = Topic("a", {1: {"id": "INT64"}}, ["id"])
B = Topic("b", {2: {"id": "INT64"}}, ["id"], key_id=101)
NAMES = ROWS_SCHEMA.replace(",", "").split()[::2]


def both_ways(spark, changes):
    """The release of (topic, change) as the driver has it, and as Spark has it."""
    rows = [topic.row(change, ordinal=n) for n, (topic, change) in enumerate(changes)]
    frame = spark.createDataFrame(rows, ROWS_SCHEMA).selectExpr("0L AS release", "*")
    collected, decoded = {}, {}
    for topic in (A, B):
        schemas = topic.topic_schemas()
        records = [dict(zip(NAMES, row, strict=True)) for row in rows if row[0] == topic.topic]
        found = decode_rows(records, schemas, release=0)
        collected[topic.topic] = CollectedTable(spark, lambda: None, found, schemas)
        decoded[topic.topic] = DecodedTable(
            spark,
            lambda topic=topic, schemas=schemas: decode_changes(frame, schemas, topic=topic.topic),
            len(found),
            schemas,
        )
    return SimpleNamespace(tables=collected), SimpleNamespace(tables=decoded)


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
    collected, decoded = both_ways(spark, changes)
    here = count_collected(collected, complete_from_us=3)
    assert here == count_decoded(decoded, complete_from_us=3)
    assert here.lacking
    assert here.others
    assert all(one.commit_us > 3 for one in here.listed)


def test_more_than_are_listed_are_counted(spark):
    changes = [(A, change(us, records=2)) for us in range(1, LISTED_MAX + 6)]
    for way, count in zip(both_ways(spark, changes), (count_collected, count_decoded), strict=True):
        found = count(way, complete_from_us=-1)
        assert (found.lacking, len(found.listed)) == (LISTED_MAX + 5, LISTED_MAX)
        assert found.listed[0].topics == ("bank.a",)


def test_whole_transactions_take_one_job_and_none_takes_none(spark):
    _, decoded = both_ways(spark, [(A, change(1, 0, records=2)), (B, change(1, 1, records=2))])
    _, empty = both_ways(spark, [(A, change(1))])
    empty.tables.clear()
    context = spark.sparkContext
    context.setJobGroup("transactions", "jobs of one release")
    try:
        assert count_decoded(empty, complete_from_us=-1) == ALL_WHOLE
        assert not context.statusTracker().getJobIdsForGroup("transactions")
        assert count_decoded(decoded, complete_from_us=-1) == ALL_WHOLE
        assert len(context.statusTracker().getJobIdsForGroup("transactions")) == 1
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)

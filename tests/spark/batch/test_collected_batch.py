"""A small batch in the driver: collected in one job, counted as Spark counts it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.spark.gate_rows import change
from tidegate.schemas.errors import SchemaError
from tidegate.spark_consumer.batch.batch_stats import count_changes
from tidegate.spark_consumer.batch.collected_batch import collect_batch
from tidegate.spark_consumer.core.release import QUANTILES

pytestmark = pytest.mark.spark

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


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("after_us", "through_us"), [(-1, -1), (10, 10), (10, 30), (-1, 60)])
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


def test_progress_rows_come_whole_whatever_their_size(rows):
    found = collect_batch(rows(PROGRESS, change(5)), change_bytes_max=20)
    assert found.progress == [(3, 5, b"v" * 99)]
    assert [one["offset"] for one in found.changes] == [0]


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


def test_a_value_without_confluents_header_is_refused(rows):
    bad = (*change(5)[:5], b"\x01\x00", *change(5)[6:])
    collected = collect_batch(rows(bad), change_bytes_max=100)
    with pytest.raises(SchemaError, match="header"):
        collected.count(after_us=-1, through_us=20)

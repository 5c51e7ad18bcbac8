"""One frame over all tables: sorted over all of its tasks, however many rows there are."""

import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own custom

from tidegate.spark_consumer.errors import TransactionTooLarge
from tidegate.spark_consumer.sinks import released_frame
from tidegate.spark_consumer.sinks.released_frame import (
    changes_of,
    json_transactions_of,
    transactions_of,
    wide_rows,
)

pytestmark = pytest.mark.spark


@pytest.fixture
def release(kit):
    topics = [
        kit.Topic(name, {n: {"id": "INT64", name: "INT64"}}, ["id"], key_id=10 + n)
        for n, name in enumerate("ab", 1)
    ]
    changes = [
        (
            topics[us % 2],
            kit.Change("UPDATE", {"id": us}, {"id": us}, us=us, transaction=f"t{us // 3}"),
        )
        for us in range(12, 40)
    ]
    return kit.release(0, changes)


@pytest.mark.parametrize("one_task_max", [1, 1_000])
def test_rows_come_in_commit_order(kit, release, monkeypatch, one_task_max):
    monkeypatch.setattr(released_frame, "_ONE_TASK_MAX", one_task_max)
    frame = changes_of(release, kit.spark)
    assert [row.ordinal for row in frame.collect()] == list(range(28))
    assert (frame.rdd.getNumPartitions() == 1) == (one_task_max > 28)
    rows = transactions_of(release, kit.spark).collect()
    assert [one.ordinal for row in rows for one in row.changes] == list(range(28))


def test_a_release_without_changes_has_the_same_columns(kit, release):
    empty = kit.release(0, [])
    for make in (changes_of, transactions_of):
        of_nothing, of_some = make(empty, kit.spark), make(release, kit.spark)
        assert of_nothing.count() == 0
        assert of_nothing.schema.simpleString() == of_some.schema.simpleString()


def test_a_task_has_so_many_changes_however_large_the_release(kit, release, monkeypatch):
    """The driver reads one task at a time, and a task sorts what it has."""
    monkeypatch.setattr(released_frame, "_ONE_TASK_MAX", 4)
    changes = changes_of(release, kit.spark)
    counted = changes.groupBy(F.spark_partition_id().alias("task")).count().collect()
    assert max(row["count"] for row in counted) <= 8
    transactions = json_transactions_of(release, kit.spark)
    sizes = transactions.select(F.spark_partition_id().alias("task"), F.size("changes").alias("n"))
    found = sizes.groupBy("task").agg(F.sum("n").alias("n")).collect()
    assert max(row["n"] for row in found) <= 12


def test_a_transaction_that_no_row_can_hold_is_refused(kit, release, monkeypatch):
    """Of a backfill; Spanner's own are smaller."""
    monkeypatch.setattr(released_frame, "TRANSACTION_BYTES_MAX", 10)
    for make in (transactions_of, json_transactions_of):
        make(release, kit.spark)  # so few changes are not looked at
    monkeypatch.setattr(released_frame, "_ONE_TASK_MAX", 4)
    for make in (transactions_of, json_transactions_of):
        with pytest.raises(TransactionTooLarge, match="ordered_topic_order") as error:
            make(release, kit.spark)
        assert (error.value.fields["changes"], error.value.fields["bytes_max"]) == (1, 10)
    # With a row for each change nothing is too large.
    assert changes_of(release, kit.spark).count() == release.rows


def test_the_session_is_as_before_when_wide_rows_are_made(kit):
    before = {name: kit.spark.conf.get(name, None) for name in released_frame._WIDE_ROWS}
    with wide_rows(kit.spark):
        assert all(kit.spark.conf.get(name) == "1" for name in before)
    assert {name: kit.spark.conf.get(name, None) for name in before} == before

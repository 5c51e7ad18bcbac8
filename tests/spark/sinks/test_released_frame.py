"""One frame over all tables: sorted over all of its tasks, however many rows there are."""

import pytest

from tidegate.spark_consumer.sinks import released_frame
from tidegate.spark_consumer.sinks.released_frame import changes_of, transactions_of

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


@pytest.mark.parametrize("one_task_max", [0, 1_000])
def test_rows_come_in_commit_order(kit, release, monkeypatch, one_task_max):
    monkeypatch.setattr(released_frame, "_ONE_TASK_MAX", one_task_max)
    frame = changes_of(release, kit.spark)
    assert [row.ordinal for row in frame.collect()] == list(range(28))
    assert (frame.rdd.getNumPartitions() == 1) == bool(one_task_max)
    rows = transactions_of(release, kit.spark).collect()
    assert [one.ordinal for row in rows for one in row.changes] == list(range(28))


def test_a_release_without_changes_has_the_same_columns(kit, release):
    empty = kit.release(0, [])
    for make in (changes_of, transactions_of):
        of_nothing, of_some = make(empty, kit.spark), make(release, kit.spark)
        assert of_nothing.count() == 0
        assert of_nothing.schema.simpleString() == of_some.schema.simpleString()

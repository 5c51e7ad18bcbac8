"""The changelog by key: each change once, in Kafka's order over the versions of a table."""

from __future__ import annotations

import pytest

from tidegate.spark_consumer.sinks.delta.changelog_by_key import DeltaChangelogByKeySink

pytestmark = pytest.mark.spark


def opened(kit):
    sink = DeltaChangelogByKeySink(kit.spark, kit.output)
    sink.open(query_id="query-1", release_max=99)
    return sink


@pytest.fixture
def topics(kit):
    return [
        kit.Topic(name, {n: {"id": "INT64", "v": "INT64"}}, ["id"], key_id=10 + n)
        for n, name in enumerate("ab", 1)
    ]


def batches(kit, topics):
    """Three batches of both tables; times ascend for each key only."""
    a, b = topics

    def change(topic, key, us):
        return topic, kit.Change("UPDATE", {"id": key}, {"v": us}, us=us)

    return [
        kit.handed(0, [change(a, 1, 50), change(a, 2, 10), change(a, 1, 60)], topics=topics),
        kit.handed(2, [change(a, 2, 20), change(b, 1, 5), change(a, 2, 70)], topics=topics),
        kit.handed(3, [change(b, 1, 6), change(a, 1, 61)], topics=topics),
    ]


@pytest.mark.rule("sink-changelog-by-key")
def test_rows_of_a_key_are_in_order_over_appended_versions(kit, topics):
    sink = opened(kit)
    for batch in batches(kit, topics):
        sink.take(batch)
    found = []
    history = kit.spark.sql(f"DESCRIBE HISTORY delta.`{kit.output}/changelog_by_key/a`")
    for version in range(history.count()):
        rows = kit.read("changelog_by_key/a", version).to_pylist()
        known = {row["offset"] for row in found}
        assert known <= {row["offset"] for row in rows}
        found += [row for row in rows if row["offset"] not in known]  # of the one new file
    assert [row["batch"] for row in found] == [0, 0, 0, 2, 2, 3]
    times = {key: [row["new_values"]["v"] for row in found if row["key"]["id"] == key]
             for key in (1, 2)}  # fmt: skip
    assert times == {1: [50, 60, 61], 2: [10, 20, 70]}
    assert "release" not in found[0]
    assert [row["new_values"]["v"] for row in kit.read("changelog_by_key/b").to_pylist()] in (
        [5, 6], [6, 5],
    )  # fmt: skip


@pytest.mark.rule("sink-changelog-by-key")
def test_a_batch_taken_twice_is_there_once_also_by_a_new_process(kit, topics):
    handed = batches(kit, topics)
    sink = opened(kit)
    for batch in (handed[0], handed[0], handed[1]):
        sink.take(batch)
    for batch in (*handed[1:], handed[2]):
        opened(kit).take(batch)
    assert len(kit.read("changelog_by_key/a")) == 6
    assert len(kit.read("changelog_by_key/b")) == 2


def test_a_release_has_the_version_that_its_batch_left(kit, topics):
    sink = opened(kit)
    assert sink.write(kit.release(0, [], topics=topics)) == {}
    handed = batches(kit, topics)
    sink.take(handed[0])
    at_first = sink.write(kit.release(0, [], topics=topics))["a"]
    assert len(kit.read(at_first.path, at_first.version)) == 3
    sink.take(handed[1])
    assert sink.write(kit.release(0, [], topics=topics))["a"] == at_first
    later = sink.write(kit.release(2, [], topics=topics))["a"]
    assert len(kit.read(later.path, later.version)) == 5

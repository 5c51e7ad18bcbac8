"""A release's changes over all tables, read without Spark."""

import pytest

from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.release_rows import release_rows
from tidegate.spark_consumer.sinks.manifest import Manifest

pytestmark = pytest.mark.spark


@pytest.fixture
def manifests(kit):
    """Two releases with changes of two tables that alternate."""
    topics = [
        kit.Topic(name, {n: {"id": "INT64"}}, ["id"], key_id=10 + n)
        for n, name in enumerate("ab", 1)
    ]
    sink = DeltaChangelogSink(kit.spark, kit.output, direct=DirectWay(DirectPlace(kit.output)))
    sink.open(query_id="query-1", release_max=-1)
    found = []
    for number in range(2):
        changes = [
            (topics[us % 2], kit.Change("INSERT", {"id": us}, {"id": us}, us=us))
            for us in range(10 * number, 10 * number + 6)
        ]
        versions = sink.write(kit.release(number, changes, small=True))
        tables = {table: {"changelog": version} for table, version in versions.items()}
        found.append(Manifest(number, "query-1", number, 0, 1, 6, tables))
    return found


def test_they_come_in_commit_order_with_their_tables(kit, manifests):
    direct = DirectWay(DirectPlace(kit.output))
    for number, manifest in enumerate(manifests):
        rows = list(release_rows(direct, manifest))
        assert [row["ordinal"] for row in rows] == list(range(6))
        assert [row["key"]["id"] for row in rows] == list(range(10 * number, 10 * number + 6))
        assert [row["table"] for row in rows] == ["a", "b"] * 3
    assert [row["table"] for row in release_rows(direct, manifests[0], ["b"])] == ["b"] * 3


def test_what_may_be_too_large_is_left_to_spark(kit, manifests):
    assert release_rows(DirectWay(DirectPlace(kit.output), bytes_max=1), manifests[0]) is None

"""Mirrors of tables of which the change stream leaves something out."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from tidegate.schemas.errors import ExitCode
from tidegate.spark_consumer.errors import FilteredMirror
from tidegate.spark_consumer.sinks.delta.direct_way import find_direct_way
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


@pytest.fixture(params=["spark", "delta-rs"])
def small(request):
    """Both ways of writing a release."""
    return request.param == "delta-rs"


def opened(kit, *, accepted=()):
    direct = find_direct_way(kit.output, rows_max=100)
    sink = DeltaMirrorSink(kit.spark, kit.output, direct=direct, accepted=accepted)
    sink.open(query_id="query-1", release_max=100)
    return sink


def release(kit, number, topic, history, *, small):
    changes = [
        (topic, kit.Change(mod, key, new, us=number * 1_000 + n, every=False))
        for n, (mod, key, new) in enumerate(history)
    ]
    return kit.release(number, changes, topics=[topic], small=small)


def test_a_column_that_is_not_watched_is_left_out_by_name(kit, small):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"], unwatched={1: {"b"}})
    sink = opened(kit)
    with capture_logs() as lines:
        version = sink.write(
            release(
                kit,
                0,
                topic,
                [("INSERT", {"id": 1}, {"a": "x"}), ("INSERT", {"id": 2}, {"a": "y"})],
                small=small,
            )
        )["t"]
        sink.write(release(kit, 1, topic, [("UPDATE", {"id": 1}, {"a": "z"})], small=small))
    assert sorted(kit.read("mirror/t").to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "a": "z"},
        {"id": 2, "a": "y"},
    ]
    assert version.left_out == ("column b",)
    (line,) = [line for line in lines if line["event"] == "the mirror leaves out"]
    assert line["left_out"] == ["column b"]


def test_a_column_that_was_not_watched_at_first_stays_left_out(kit, small):
    topic = kit.Topic("t", {1: COLUMNS, 2: COLUMNS}, ["id"], unwatched={1: {"b"}})
    sink = opened(kit)
    sink.write(release(kit, 0, topic, [("INSERT", {"id": 1}, {"a": "x", "b": 7})], small=small))
    assert kit.read("mirror/t").to_pylist() == [{"id": 1, "a": "x"}]


def test_a_column_of_the_mirror_that_is_no_longer_watched_is_refused(kit, small):
    before = kit.Topic("t", {1: COLUMNS}, ["id"])
    after = kit.Topic("t", {1: COLUMNS, 2: COLUMNS}, ["id"], unwatched={2: {"b"}})
    change = [("INSERT", {"id": 1}, {"a": "x", "b": 1})]
    sink = opened(kit)
    sink.write(release(kit, 0, before, change, small=small))
    refused = release(kit, 1, after, [("UPDATE", {"id": 1}, {"a": "y"})], small=small)
    for again in (sink, opened(kit)):
        with pytest.raises(FilteredMirror, match="no longer watches") as raised:
            again.write(refused)
        assert raised.value.fields["columns"] == ["b"]
    assert kit.read("mirror/t").to_pylist() == [{"id": 1, "a": "x", "b": 1}]
    version = opened(kit, accepted=["unwatched_columns"]).write(refused)["t"]
    assert version.left_out == ("column b",)
    assert kit.read("mirror/t").to_pylist() == [{"id": 1, "a": "y", "b": 1}]


def test_a_stream_that_leaves_changes_out_has_no_mirror_unless_that_is_accepted(kit, small):
    excludes = ("exclude_delete", "exclude_ttl_deletes")
    topic = kit.Topic("t", {1: COLUMNS}, ["id"], excludes=excludes)
    first = release(kit, 0, topic, [("INSERT", {"id": 1}, {"a": "x", "b": 1})], small=small)
    with pytest.raises(FilteredMirror) as raised:
        opened(kit, accepted=("exclude_delete",)).write(first)
    assert raised.value.exit_code == ExitCode.USAGE
    assert raised.value.fields["options"] == ["exclude_ttl_deletes"]
    assert 'mirror_accepts = "exclude_delete,exclude_ttl_deletes"' in str(raised.value)
    version = opened(kit, accepted=excludes).write(first)["t"]
    assert version.left_out == excludes
    assert kit.read("mirror/t").to_pylist() == [{"id": 1, "a": "x", "b": 1}]

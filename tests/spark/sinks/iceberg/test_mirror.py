"""The Iceberg mirror: the table as it was at W, whatever the history, as in the Delta mirror."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.any_schema.release import release_of
from tests.spark.sinks.plain_mirror import HISTORIES, PlainMirror
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.spark_consumer.sinks.delta.as_of import as_of
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.iceberg.java_table import JavaTable
from tidegate.spark_consumer.sinks.iceberg.mirror import IcebergMirrorSink
from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest
from tidegate.spark_consumer.sinks.port import Merge, MergingSink
from tidegate.spark_consumer.sinks.session_settings import session_settings
from tidegate.spark_consumer.spark.query_session import QuerySession

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


def opened(kit, lake, *, query_id="query-1", release_max=100):
    sink = IcebergMirrorSink(kit.spark, lake.output, lake.place)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def rows(lake, version=None, table="t"):
    return sorted(lake.rows("mirror", table, version), key=lambda row: str(row["id"]))


def aside(lake, table="t"):
    found = lake.rows("incomplete", table)
    return sorted((row["key"]["id"], row["new_values"]["b"]) for row in found)


def release(kit, number, topic, history, **options):
    """`history` is [(mod, key, new)] in commit order."""
    changes = [
        (topic, kit.Change(mod, key, new, us=number * 1_000 + n))
        for n, (mod, key, new) in enumerate(history)
    ]
    return kit.release(number, changes, topics=[topic], **options)


@pytest.fixture
def topic(kit):
    return kit.Topic("t", {1: COLUMNS}, ["id"])


@pytest.mark.parametrize("small", [False, True])
def test_insert_update_delete_over_releases_and_again(kit, lake, topic, small):
    history = [
        [("INSERT", {"id": n}, {"a": f"a{n}", "b": n}) for n in range(4)],
        [("UPDATE", {"id": 1}, {"a": None}), ("DELETE", {"id": 2}, None)],
        [("DELETE", {"id": 3}, None), ("INSERT", {"id": 3}, {"a": "new", "b": None})],
        [],
    ]
    releases = [release(kit, n, topic, part, small=small) for n, part in enumerate(history)]
    sink = opened(kit, lake)
    assert isinstance(sink, MergingSink)
    versions = [sink.write(part)["t"] for part in releases]
    expected = [
        {"id": 0, "a": "a0", "b": 0},
        {"id": 1, "a": None, "b": 1},
        {"id": 3, "a": "new", "b": None},
    ]
    assert rows(lake, versions[2].version) == expected
    assert versions[3] == versions[2]
    assert len(rows(lake, versions[0].version)) == 4
    assert [sink.write(part)["t"] for part in releases] == versions
    restarted = opened(kit, lake)
    assert [restarted.write(part)["t"] for part in releases] == versions
    assert rows(lake) == expected
    assert restarted.versions(1, [topic.topic_schemas()]) == {"t": versions[1]}
    assert restarted.incomplete_changes == 0


@pytest.mark.slow
def test_an_update_of_an_unknown_row_goes_to_the_side_table_once(kit, lake, topic):
    sink = opened(kit, lake)
    sink.write(release(kit, 0, topic, [("INSERT", {"id": 1}, {"a": "x", "b": 1})]))
    mixed = release(
        kit,
        1,
        topic,
        [
            ("UPDATE", {"id": 1}, {"b": 2}),
            ("UPDATE", {"id": 7}, {"b": 3}),
            ("UPDATE", {"id": 7}, {"b": 4}),
            ("UPDATE", {"id": 8}, {"b": 5}),
            ("DELETE", {"id": 8}, None),
            ("DELETE", {"id": 9}, None),
            ("UPDATE", {"id": 9}, {"b": 6}),
        ],
    )
    for _ in range(2):
        sink.write(mixed)
    assert rows(lake) == [{"id": 1, "a": "x", "b": 2}]
    assert aside(lake) == [(7, 3), (7, 4), (9, 6)]
    assert sink.incomplete_changes == 3
    restarted = opened(kit, lake)
    restarted.write(mixed)
    assert restarted.incomplete_changes == 0
    assert len(aside(lake)) == 3


class Killed(BaseException):
    """As a kill: nothing catches it."""


CALLS_BEFORE_THE_KILL = {
    "side table created": 2,
    "its rows staged": 5,
    "their snapshot found": 6,
    "side table published": 7,
    "mirror staged": 10,
    "its snapshot found": 11,
    "mirror published": 12,
}
"""How many calls of Iceberg's that read or publish a table have ended by then."""


@pytest.mark.rule("sink-iceberg-mirror")
@pytest.mark.slow
@pytest.mark.parametrize(
    "calls",
    [
        # Two of them before each merge, all in the deep lane.
        pytest.param(calls, marks=() if "published" in moment else pytest.mark.deep)
        for moment, calls in CALLS_BEFORE_THE_KILL.items()
    ],
    ids=CALLS_BEFORE_THE_KILL,
)
def test_a_kill_between_any_two_commits_is_made_good(kit, lake, topic, monkeypatch, calls):
    first = release(kit, 0, topic, [("INSERT", {"id": n}, {"a": "x", "b": n}) for n in range(3)])
    second = release(
        kit,
        1,
        topic,
        [
            ("UPDATE", {"id": 7}, {"b": 3}),
            ("UPDATE", {"id": 1}, {"b": 9}),
            ("DELETE", {"id": 2}, None),
            ("INSERT", {"id": 4}, {"a": "y", "b": 4}),
        ],
    )
    sink = opened(kit, lake)
    sink.write(first)
    left = [calls]

    def counted(real):
        def call(*known, **named):
            if left[0] == 0:
                raise Killed
            left[0] -= 1
            return real(*known, **named)

        return call

    with monkeypatch.context() as patch:
        for name in ("load", "staged", "publish"):
            patch.setattr(JavaTable, name, counted(getattr(JavaTable, name)))
        with pytest.raises(Killed):
            sink.write(second)
    restarted = opened(kit, lake)
    restarted.write(second)
    assert rows(lake) == [
        {"id": 0, "a": "x", "b": 0},
        {"id": 1, "a": "x", "b": 9},
        {"id": 4, "a": "y", "b": 4},
    ]
    assert aside(lake) == [(7, 3)]


@pytest.mark.rule("sink-iceberg-mirror")
@pytest.mark.slow
@pytest.mark.parametrize("by", ["maintenance", pytest.param("another run", marks=pytest.mark.deep)])
def test_a_merge_that_another_commit_overtakes_is_repeated_or_left(
    kit, lake, topic, monkeypatch, by
):
    sink, other = opened(kit, lake), opened(kit, lake)
    sink.write(
        release(kit, 0, topic, [("INSERT", {"id": n}, {"a": "x", "b": n}) for n in range(3)])
    )
    second = release(kit, 1, topic, [("UPDATE", {"id": 1}, {"b": 9}), ("DELETE", {"id": 2}, None)])
    publish, is_inside = JavaTable.publish, []

    def overtaken(self, *known, **named):
        if not is_inside:
            is_inside.append(True)
            if by == "maintenance":
                lake.compact("mirror", "t")
            else:
                other.write(second)
        return publish(self, *known, **named)

    monkeypatch.setattr(JavaTable, "publish", overtaken)
    version = sink.write(second)["t"].version
    assert is_inside == [True]
    assert rows(lake) == rows(lake, version)
    assert rows(lake) == [{"id": 0, "a": "x", "b": 0}, {"id": 1, "a": "x", "b": 9}]


@pytest.mark.rule("sink-iceberg-mirror")
@pytest.mark.slow
def test_maintenance_by_others_leaves_the_mirror_exact(kit, lake, topic):
    sink = opened(kit, lake)
    parts = [[("INSERT", {"id": 1}, {"a": "x", "b": 1})], [("UPDATE", {"id": 1}, {"b": 2})]]
    releases = [release(kit, n, topic, part) for n, part in enumerate(parts)]
    for one in releases:
        sink.write(one)
    lake.compact("mirror", "t")
    lake.expire("mirror", "t")
    restarted = opened(kit, lake)
    restarted.write(releases[1])
    restarted.write(release(kit, 2, topic, [("UPDATE", {"id": 1}, {"a": "z"})]))
    assert rows(lake) == [{"id": 1, "a": "z", "b": 2}]


@pytest.mark.slow
def test_keys_of_several_columns_and_types_and_nulls(kit, lake):
    columns = {"id": "STRING(MAX)", "n": "NUMERIC", "d": "DATE", "v": "INT64"}
    topic = kit.Topic("t", {1: columns}, ["n", "id", "d"])
    keys = [
        {"n": None, "id": None, "d": None},
        {"n": None, "id": "x", "d": None},
        {"n": Decimal("1.000000001"), "id": "x", "d": None},
    ]
    sink = opened(kit, lake)
    sink.write(release(kit, 0, topic, [("INSERT", key, {"v": n}) for n, key in enumerate(keys)]))
    patched = [("UPDATE", keys[0], {"v": 10}), ("DELETE", keys[1], None)]
    sink.write(release(kit, 1, topic, [*patched, ("UPDATE", keys[2], {"v": None})]))
    expected = [keys[0] | {"v": 10}, keys[2] | {"v": None}]
    assert sorted(lake.rows("mirror", "t"), key=str) == sorted(
        ({name: row[name] for name in columns} for row in expected), key=str
    )
    assert sink.incomplete_changes == 0


@pytest.mark.slow
def test_a_programs_rule_for_assignments_does_not_reach_the_merge(kit, lake, topic):
    """Iceberg's MERGE refuses LEGACY."""
    with session_settings(kit.spark, {"spark.sql.storeAssignmentPolicy": "LEGACY"}):
        own = QuerySession(kit.spark).spark
    sink = IcebergMirrorSink(own, lake.output, lake.place)
    sink.open(query_id="query-1", release_max=100)
    history = (("INSERT", {"a": "x", "b": 1}), ("UPDATE", {"b": 2}))
    for number, (mod, new) in enumerate(history):
        change = kit.Change(mod, {"id": 1}, new, us=number * 1_000)
        one, schemas = topic.row(change, ordinal=0), {topic.topic: topic.topic_schemas()}
        sink.write(release_of(own, [one], schemas, number=number, small=False))
    assert rows(lake) == [{"id": 1, "a": "x", "b": 2}]


@pytest.mark.slow
def test_a_table_of_key_columns_only(kit, lake):
    topic = kit.Topic("t", {1: {"id": "INT64", "k": "STRING(MAX)"}}, ["id", "k"])
    sink = opened(kit, lake)
    sink.write(release(kit, 0, topic, [("INSERT", {"id": n, "k": "k"}, {}) for n in range(3)]))
    changes = [("DELETE", {"id": 1, "k": "k"}, None), ("UPDATE", {"id": 2, "k": "k"}, {})]
    sink.write(release(kit, 1, topic, changes))
    assert rows(lake) == [{"id": 0, "k": "k"}, {"id": 2, "k": "k"}]


@pytest.mark.slow
def test_an_added_column_is_filled_and_what_was_not_captured_stays(kit, lake, topic):
    wider = COLUMNS | {"c": "ARRAY<INT64>"}
    after = kit.Topic("t", {1: COLUMNS, 2: wider}, ["id"])
    sink = opened(kit, lake)
    sink.write(release(kit, 0, topic, [("INSERT", {"id": 1}, {"a": "x", "b": 1})]))
    sink.write(release(kit, 1, after, [("UPDATE", {"id": 1}, {"c": [1, None]})]))
    old_writer = kit.Change("UPDATE", {"id": 1}, {"a": "z", "b": 2}, us=2_000, value_id=1)
    written = sink.write(kit.release(2, [(after, old_writer)]))
    assert rows(lake, written["t"].version) == [{"id": 1, "a": "z", "b": 2, "c": [1, None]}]
    # One who knows less inserts on: what it does not know is null.
    restarted = opened(kit, lake)
    restarted.write(release(kit, 3, topic, [("INSERT", {"id": 2}, {"a": "n", "b": 3})]))
    assert rows(lake)[1] == {"id": 2, "a": "n", "b": 3, "c": None}
    changed = kit.Topic("t", {1: COLUMNS | {"b": "FLOAT64"}}, ["id"])
    with pytest.raises(SchemaError, match=r"column='b'"):
        sink.write(release(kit, 4, changed, [("INSERT", {"id": 9}, {"a": "x", "b": 1.0})]))


@pytest.mark.slow
def test_another_query_and_a_checkpoint_behind_are_refused(kit, lake, topic):
    sink = opened(kit, lake)
    for number in range(2):
        sink.write(release(kit, number, topic, [("UPDATE", {"id": 1}, {"b": number})]))
    with pytest.raises(ConfigError, match=r"another writer.*bank_mirror"):
        opened(kit, lake, query_id="query-2")
    with pytest.raises(ConfigError, match=r"later release.*bank_mirror"):
        opened(kit, lake, release_max=0)
    assert rows(lake) == []
    assert aside(lake) == [(1, 0), (1, 1)]


@pytest.mark.rule("sink-iceberg-mirror")
@pytest.mark.slow
def test_a_mirror_that_joins_takes_all_releases_from_the_delta_changelog(kit, lake, topic):
    changelog = DeltaChangelogSink(kit.spark, kit.output)
    changelog.open(query_id="query-1", release_max=-1)
    parts = [
        [("INSERT", {"id": n}, {"a": "x", "b": n}) for n in range(3)],
        [("UPDATE", {"id": 1}, {"b": 9}), ("DELETE", {"id": 2}, None)],
        [("UPDATE", {"id": 1}, {"a": None}), ("UPDATE", {"id": 8}, {"b": 1})],
    ]
    for number, part in enumerate(parts):
        changelog.write(release(kit, number, topic, part))
    sink = opened(kit, lake, release_max=-1)
    tables = {topic.topic: topic.topic_schemas()}
    for after in (-1, 1):
        merged = sink.merge(Merge("query-1", 5, after, 2, 3_000_000, tables))
        assert rows(lake, merged["t"].version) == [
            {"id": 0, "a": "x", "b": 0},
            {"id": 1, "a": None, "b": 9},
        ]
    assert [(row["release"], row["ordinal"]) for row in lake.rows("incomplete", "t")] == [(2, 1)]


@pytest.mark.rule("sink-iceberg-mirror")
@pytest.mark.slow
def test_as_of_reads_the_mirror_at_a_release(kit, lake, topic):
    sink = opened(kit, lake)
    for number, balance in enumerate((5, 6, 7)):
        mod = "UPDATE" if number else "INSERT"
        part = release(kit, number, topic, [(mod, {"id": 1}, {"a": "x", "b": balance})])
        tables = {name: {sink.name: version} for name, version in sink.write(part).items()}
        bounds = (part.after_us, part.through_us)
        write_manifest(lake.manifests, Manifest(number, "query-1", number, *bounds, 1, tables))
    for time_us, balance in ((1_000_000, 5), (2_500_000, 6), (9_000_000, 7)):
        found = as_of(kit.spark, kit.output, time_us, sink="iceberg_mirror")
        assert [row["b"] for row in found.table("t").collect()] == [balance]
    assert as_of(kit.spark, kit.output, 9_000_000) == {}
    with pytest.raises(ConfigError, match=r"changelog.*mirror or iceberg_mirror|mirror or"):
        as_of(kit.spark, kit.output, 9_000_000, sink="changelog")


@pytest.mark.rule("sink-iceberg-mirror")
@pytest.mark.slow
@pytest.mark.deep
@settings(
    max_examples=1,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
    ],
)
@given(histories=HISTORIES, number=st.integers(0, 10**9))
def test_the_mirror_is_what_a_plain_model_says(kit, lake, histories, number):
    table = f"t{number}"
    topic = kit.Topic(table, {1: COLUMNS}, ["id"])
    sink, model = opened(kit, lake), PlainMirror()
    for n in range(3):
        history = [(mod, key, new) for key, parts in enumerate(histories) for mod, new in parts[n]]
        written = sink.write(
            release(kit, n, topic, [(mod, {"id": key}, new) for mod, key, new in history])
        )
        model.apply_release(history)
        found = {row["id"]: row for row in rows(lake, written[table].version, table)}
        assert found == {key: {"id": key} | row for key, row in model.rows.items()}
    assert sink.incomplete_changes == len(model.incomplete)
    if model.incomplete:
        aside_keys = sorted(row["key"]["id"] for row in lake.rows("incomplete", table))
        assert aside_keys == sorted(model.incomplete)

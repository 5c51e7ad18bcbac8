"""The mirror: the table as it was at W, whatever the history."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.spark.sinks.plain_mirror import HISTORIES, PlainMirror
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.spark_consumer.sinks.delta import mirror
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.partitions import refuse_lost_texts, refuse_lost_values
from tidegate.spark_consumer.sinks.session_settings import session_settings

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


def opened(kit, *, query_id="query-1", release_max=100):
    sink = DeltaMirrorSink(kit.spark, kit.output)
    sink.open(query_id=query_id, release_max=release_max)
    return sink


def rows(kit, version=None, table="t"):
    found = kit.read(f"mirror/{table}", version).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def release(kit, number, topic, history, **options):
    """`history` is [(mod, key, new)] in commit order."""
    changes = [
        (topic, kit.Change(mod, key, new, us=number * 1_000 + n))
        for n, (mod, key, new) in enumerate(history)
    ]
    return kit.release(number, changes, topics=[topic], **options)


def test_insert_update_delete_over_releases_and_again(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    history = [
        [("INSERT", {"id": n}, {"a": f"a{n}", "b": n}) for n in range(4)],
        [("UPDATE", {"id": 1}, {"a": None}), ("DELETE", {"id": 2}, None)],
        [("DELETE", {"id": 3}, None), ("INSERT", {"id": 3}, {"a": "new", "b": None})],
        [],
    ]
    releases = [release(kit, number, topic, part) for number, part in enumerate(history)]
    sink = opened(kit)
    versions = [sink.write(part)["t"] for part in releases]
    expected = [
        {"id": 0, "a": "a0", "b": 0},
        {"id": 1, "a": None, "b": 1},
        {"id": 3, "a": "new", "b": None},
    ]
    assert rows(kit, versions[2].version) == expected
    assert versions[3] == versions[2]
    assert len(rows(kit, versions[0].version)) == 4
    assert [sink.write(part)["t"] for part in releases] == versions
    restarted = opened(kit)
    assert [restarted.write(part)["t"] for part in releases] == versions
    assert rows(kit) == expected
    assert kit.read("mirror/t").column_names == ["id", "a", "b"]
    assert not Path(kit.output, "incomplete").exists()
    assert restarted.incomplete_changes == 0


@pytest.mark.slow
def test_an_update_of_an_unknown_row_goes_to_the_side_table_once(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    sink = opened(kit)
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
    assert rows(kit) == [{"id": 1, "a": "x", "b": 2}]
    aside = kit.read("incomplete/t").to_pylist()
    found = sorted((row["key"]["id"], row["new_values"]["b"]) for row in aside)
    assert found == [(7, 3), (7, 4), (9, 6)]
    assert sink.incomplete_changes == 3
    restarted = opened(kit)
    restarted.write(mixed)
    assert kit.read("incomplete/t").num_rows == 3


@pytest.mark.rule("sink-mirror")
def test_a_kill_between_merge_and_side_table_is_made_good(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    part = release(kit, 0, topic, [("UPDATE", {"id": 7}, {"b": 3})])

    class Killed(Exception):
        pass

    def kill(*_, **__):
        raise Killed

    sink = opened(kit)
    sink._set_aside = kill
    with pytest.raises(Killed):
        sink.write(part)
    restarted = opened(kit)
    restarted.write(part)
    assert rows(kit) == []
    assert [row["key"]["id"] for row in kit.read("incomplete/t").to_pylist()] == [7]


def test_keys_of_several_columns_and_types_and_nulls(kit):
    columns = {"id": "STRING(MAX)", "n": "NUMERIC", "d": "DATE", "v": "INT64"}
    topic = kit.Topic("t", {1: columns}, ["n", "id", "d"])
    keys = [
        {"n": None, "id": None, "d": None},
        {"n": None, "id": "x", "d": None},
        {"n": Decimal("1.000000001"), "id": "x", "d": None},
    ]
    sink = opened(kit)
    sink.write(release(kit, 0, topic, [("INSERT", key, {"v": n}) for n, key in enumerate(keys)]))
    sink.write(
        release(
            kit,
            1,
            topic,
            [
                ("UPDATE", keys[0], {"v": 10}),
                ("DELETE", keys[1], None),
                ("UPDATE", keys[2], {"v": None}),
            ],
        )
    )
    found = kit.read("mirror/t").to_pylist()
    expected = [keys[0] | {"v": 10}, keys[2] | {"v": None}]
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert sink.incomplete_changes == 0


def test_a_table_of_key_columns_only(kit):
    topic = kit.Topic("t", {1: {"id": "INT64", "k": "STRING(MAX)"}}, ["id", "k"])
    sink = opened(kit)
    sink.write(release(kit, 0, topic, [("INSERT", {"id": n, "k": "k"}, {}) for n in range(3)]))
    sink.write(
        release(
            kit,
            1,
            topic,
            [("DELETE", {"id": 1, "k": "k"}, None), ("UPDATE", {"id": 2, "k": "k"}, {})],
        )
    )
    assert rows(kit) == [{"id": 0, "k": "k"}, {"id": 2, "k": "k"}]


def test_an_added_column_is_filled_and_what_was_not_captured_stays(kit):
    before = kit.Topic("t", {1: COLUMNS}, ["id"])
    wider = COLUMNS | {"c": "ARRAY<INT64>"}
    after = kit.Topic("t", {1: COLUMNS, 2: wider}, ["id"])
    sink = opened(kit)
    sink.write(release(kit, 0, before, [("INSERT", {"id": 1}, {"a": "x", "b": 1})]))
    sink.write(release(kit, 1, after, [("UPDATE", {"id": 1}, {"c": [1, None]})]))
    old_writer = kit.Change("UPDATE", {"id": 1}, {"a": "z", "b": 2}, us=2_000, value_id=1)
    written = sink.write(kit.release(2, [(after, old_writer)]))
    assert rows(kit, written["t"].version) == [{"id": 1, "a": "z", "b": 2, "c": [1, None]}]
    assert kit.read("mirror/t").column_names == ["id", "a", "b", "c"]


@pytest.mark.slow
def test_a_changed_type_another_query_and_a_checkpoint_behind_are_refused(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    sink = opened(kit)
    for number in range(2):
        history = [("INSERT", {"id": number}, {"a": "x", "b": 1})]
        sink.write(release(kit, number, topic, history))
    changed = kit.Topic("t", {1: COLUMNS | {"b": "FLOAT64"}}, ["id"])
    with pytest.raises(SchemaError, match=r"column='b'"):
        sink.write(release(kit, 2, changed, [("INSERT", {"id": 9}, {"a": "x", "b": 1.0})]))
    with pytest.raises(ConfigError, match=r"another writer.*mirror/t"):
        opened(kit, query_id="query-2")
    with pytest.raises(ConfigError, match=r"later release.*mirror/t"):
        opened(kit, release_max=0)


def session_settings_of(spark):
    """Return all settings but Delta's own note of the session's last commit."""
    found = {row["key"]: row["value"] for row in spark.sql("SET").collect()}
    found.pop("spark.databricks.delta.lastCommitVersionInSession", None)
    return found


@pytest.mark.slow
def test_settings_of_the_merge_do_not_stay_in_the_session(kit):
    before = session_settings_of(kit.spark)
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    opened(kit).write(release(kit, 0, topic, [("UPDATE", {"id": 1}, {"b": 1})]))
    assert session_settings_of(kit.spark) == before


@pytest.mark.rule("sink-mirror")
@pytest.mark.slow
@settings(
    max_examples=2,
    deadline=None,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.large_base_example,
        HealthCheck.data_too_large,
    ],
)
@given(histories=HISTORIES, number=st.integers(0, 10**9))
def test_the_mirror_is_what_a_plain_model_says(kit, histories, number):
    table = f"t{number}_{len(list(Path(kit.output, 'mirror').glob('*')))}"
    topic = kit.Topic(table, {1: COLUMNS}, ["id"])
    sink, model = opened(kit), PlainMirror()
    for n in range(3):
        history = [(mod, key, new) for key, parts in enumerate(histories) for mod, new in parts[n]]
        written = sink.write(
            release(kit, n, topic, [(mod, {"id": key}, new) for mod, key, new in history])
        )
        model.apply_release(history)
        found = {row["id"]: row for row in rows(kit, written[table].version, table)}
        assert found == {key: {"id": key} | row for key, row in model.rows.items()}
    assert sink.incomplete_changes == len(model.incomplete)
    if model.incomplete:
        aside = kit.read(f"incomplete/{table}").to_pylist()
        found_aside = sorted(row["key"]["id"] for row in aside)
        assert found_aside == sorted(model.incomplete)


def test_a_text_that_would_be_null_as_a_partition_is_refused_by_both_ways(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    layout = TableLayout(partition_by={"t": ("a",)})
    direct = DirectWay(DirectPlace(kit.output))
    sink = DeltaMirrorSink(kit.spark, kit.output, direct=direct, layout=layout)
    sink.open(query_id="query-1", release_max=100)
    values = [
        {"a": "x", "b": 1},
        {"a": None, "b": 2},
        {"a": "é/ ", "b": 3},
        {"a": "x" * 253, "b": 4},
        {"a": "é" * 42, "b": 5},
    ]
    inserts = [("INSERT", {"id": n}, new) for n, new in enumerate(values)]
    sink.write(release(kit, 0, topic, inserts, small=True))
    expected = [{"id": n, **new} for n, new in enumerate(values)]
    assert rows(kit) == expected
    # Where the row is gone afterwards, its text is in no partition.
    gone = [("INSERT", {"id": 9}, {"a": "", "b": 0}), ("DELETE", {"id": 9}, None)]
    for small in (True, False):
        for text in ("", "\x00", "__HIVE_DEFAULT_PARTITION__", "x" * 254, "é" * 43, " " * 85):
            update = [("UPDATE", {"id": 0}, {"a": text}), *gone]
            with pytest.raises(ConfigError, match=r"mirror_partition_by: an empty.*column='a'"):
                sink.write(release(kit, 1, topic, update, small=small))
    assert rows(kit) == expected
    sink.write(release(kit, 1, topic, [*gone, ("UPDATE", {"id": 0}, {"a": "z"})]))
    assert rows(kit) == [{"id": 0, "a": "z", "b": 1}, *expected[1:]]


def verdict(refuse, *arguments, **named):
    try:
        refuse("t", *arguments, **named)
    except ConfigError as error:
        return str(error)
    return ""


def test_both_ways_refuse_the_same_texts_wherever_a_table_is(kit):
    texts = ["", "x", "é" * 42, "é" * 43, " *~" * 28, "x" * 700, "x" * 870, "x" * 1_000, None]
    addresses = ("/lake/t", "s3a://bucket/lake/t", "gs://bucket/lake/t", "hdfs://host/lake/t")
    pairs = [*((text, None) for text in texts), ("x" * 400, "é" * 80), ("x" * 400, "y" * 300)]
    verdicts = {address: [] for address in addresses}
    for a, b in pairs:
        rows = kit.spark.createDataFrame([(a, b, 1)], "a STRING, b STRING, n LONG")
        for address in addresses:
            where = {"address": address, "partitions": list("abn")}
            of_spark = verdict(refuse_lost_texts, rows, {"a": "a", "b": "b"}, **where)
            found = verdict(refuse_lost_values, {"a": [a], "b": [b], "n": [1]}, address=address)
            assert found == of_spark, (a, b, address)
            verdicts[address].append(not found)
    taken = [text in {"x", "é" * 42, " *~" * 28, None} for text in texts]
    assert verdicts["/lake/t"] == verdicts["hdfs://host/lake/t"] == [*taken, False, False]
    short = [text in {"x", "é" * 42, "é" * 43, " *~" * 28, "x" * 700, None} for text in texts]
    assert verdicts["s3a://bucket/lake/t"] == [*short, False, True]
    assert verdicts["gs://bucket/lake/t"] == verdicts["s3a://bucket/lake/t"]


def test_what_an_owner_has_set_that_refuses_a_release_is_named_and_passes_when_it_is_gone(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    direct = DirectWay(DirectPlace(kit.output))
    sink = DeltaMirrorSink(kit.spark, kit.output, direct=direct)
    sink.open(query_id="query-1", release_max=100)
    first = [("INSERT", {"id": 0}, {"a": "x", "b": 0})]
    sink.write(release(kit, 0, topic, first, small=True))
    table = f"ALTER TABLE delta.`{kit.output}/mirror/t`"
    cases = [
        (
            "SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
            "SET TBLPROPERTIES ('delta.appendOnly' = 'false')",
            "for appends only",
        ),
        ("ADD CONSTRAINT few CHECK (b < 10)", "DROP CONSTRAINT few", r"'few \(.*b.* < 10\)'"),
    ]
    for number, (is_set, is_gone, text) in enumerate(cases, start=1):
        update = [("UPDATE", {"id": 0}, {"a": None, "b": 98 + number})]
        kit.spark.sql(f"{table} {is_set}")
        for small in (True, False):
            with pytest.raises(ConfigError, match=text):
                sink.write(release(kit, 2 * number, topic, update, small=small))
        kit.spark.sql(f"{table} {is_gone}")
        sink.write(release(kit, 2 * number, topic, update, small=True))
        assert rows(kit) == [{"id": 0, "a": None, "b": 98 + number}]
        again = [("UPDATE", {"id": 0}, {"a": "x", "b": 0})]
        sink.write(release(kit, 2 * number + 1, topic, again))


def test_a_fold_of_few_changes_is_not_compiled_and_its_merge_is(kit, monkeypatch):
    compiles, found = "spark.sql.codegen.factoryMode", []

    def noting(module, name):
        action = getattr(module, name)

        def call(*arguments, **named):
            found.append((name, kit.spark.conf.get(compiles)))
            return action(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    noting(mirror, "_folded")
    noting(mirror, "_merge")
    monkeypatch.setattr("tidegate.spark_consumer.sinks.session_settings._FEW_ROWS", 2)
    tables = [kit.Topic(name, {1: COLUMNS}, ["id"]) for name in ("t", "u")]
    with session_settings(kit.spark, {compiles: "FALLBACK"}):
        sink = opened(kit)
        for number, rows in enumerate(((2, 1), (3, 1))):
            changes = [
                (topic, kit.Change("INSERT", {"id": n}, {"a": "x", "b": n}))
                for topic, count in zip(tables, rows, strict=True)
                for n in range(count)
            ]
            sink.write(kit.release(number, changes, topics=tables))
        assert kit.spark.conf.get(compiles) == "FALLBACK"
    merges = [("_merge", "FALLBACK")] * 2
    folds = [[("_folded", mode)] * 2 for mode in ("NO_CODEGEN", "FALLBACK")]
    assert found == [*folds[0], *merges, *folds[1], *merges]

"""The mirror: the table as it was at W, whatever the history was, in tables laid out by users."""

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.spark.sinks.outputs import HISTORIES, PlainMirror, examples
from tidegate.schemas.errors import ConfigError, ExitCode
from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.errors import FilteredMirror
from tidegate.spark_consumer.sinks.delta.direct.way import DirectWay, find_direct_way
from tidegate.spark_consumer.sinks.delta.layout import (
    TableLayout,
    refuse_lost_texts,
    refuse_lost_values,
)
from tidegate.spark_consumer.sinks.merge import folded, mirror
from tidegate.spark_consumer.sinks.merge.history import DeltaHistorySink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.sql import session_settings

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}
SMALL = pytest.mark.parametrize(
    "small",
    [pytest.param(False, marks=pytest.mark.deep, id="spark"), pytest.param(True, id="delta-rs")],
)


def opened(kit, *, small=False, make=DeltaMirrorSink, **options):
    direct = find_direct_way(kit.output, rows_max=100) if small else None
    sink = make(kit.spark, kit.output, direct=direct, **options)
    sink.open(query_id="query-1", release_max=100)
    return sink


def rows(kit, version=None, table="t"):
    found = kit.read(f"mirror/{table}", version).to_pylist()
    return sorted(found, key=lambda row: str(row["id"]))


def release(kit, number, topic, history, *, every=True, **options):
    """`history` is [(mod, key, new)] in commit order."""
    changes = [
        (topic, kit.Change(mod, key, new, us=number * 1_000 + n, every=every))
        for n, (mod, key, new) in enumerate(history)
    ]
    return kit.release(number, changes, topics=[topic], **options)


@pytest.mark.parametrize("make", [DeltaMirrorSink, DeltaHistorySink])
def test_settings_of_the_merge_do_not_stay_in_the_session(kit, make):
    def current():
        found = {row["key"]: row["value"] for row in kit.spark.sql("SET").collect()}
        # Delta's own note of the session's last commit.
        found.pop("spark.databricks.delta.lastCommitVersionInSession", None)
        return found

    before, topic = current(), kit.Topic("t", {1: COLUMNS}, ["id"])
    changes = [("INSERT", {"id": 0}, {"a": "x", "b": 1}), ("UPDATE", {"id": 1}, {"b": 1})]
    opened(kit, make=make).write(release(kit, 0, topic, changes))
    assert current() == before


@pytest.mark.rule("sink-mirror")
@examples(1)
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
    assert Path(kit.output, f"incomplete/{table}").exists() == bool(model.incomplete)
    if model.incomplete:
        aside = kit.read(f"incomplete/{table}").to_pylist()
        found_aside = sorted(row["key"]["id"] for row in aside)
        assert found_aside == sorted(model.incomplete)


def test_a_text_that_would_be_null_as_a_partition_is_refused_by_both_ways(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    layout = TableLayout(partition_by={"t": ("a",)})
    sink = opened(kit, small=True, layout=layout)
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
    sink = opened(kit, small=True)
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


@pytest.mark.deep
def test_a_fold_of_few_changes_is_not_compiled_and_its_merge_is(kit, monkeypatch):
    compiles, found = "spark.sql.codegen.factoryMode", []

    def noting(module, name):
        action = getattr(module, name)

        def call(*arguments, **named):
            found.append((name, kit.spark.conf.get(compiles)))
            return action(*arguments, **named)

        monkeypatch.setattr(module, name, call)

    noting(mirror, "folded_table")
    noting(mirror, "_merge")
    monkeypatch.setattr("tidegate.spark_consumer.sinks.sql._FEW_ROWS", 2)
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
    folds = [[("folded_table", mode)] * 2 for mode in ("NO_CODEGEN", "FALLBACK")]
    assert found == [*folds[0], *merges, *folds[1], *merges]


ORDERED = {"id": "INT64", "note": "STRING(MAX)", SOURCE_ORDER: "STRING(MAX)"}


def test_updates_of_missing_rows_are_set_aside_by_spark_where_only_it_may_read_the_mirror(
    kit, monkeypatch
):
    """As after an owner's ALTER TABLE in between; the fold of the merge serves for it too."""
    opens = DirectWay.mirror

    def only_now(self, *known, version=None, **named):
        return opens(self, *known, **named) if version is None else None

    monkeypatch.setattr(DirectWay, "mirror", only_now)
    monkeypatch.delattr(folded, "fold_rows")
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    changes = [
        ("INSERT", {"id": 1}, {"a": "x", "b": 1}),
        ("UPDATE", {"id": 2}, {"b": 2}),
        ("DELETE", {"id": 3}, None),
        ("UPDATE", {"id": 3}, {"b": 3}),
    ]
    opened(kit, small=True).write(release(kit, 0, topic, changes, small=True))
    assert [row["id"] for row in rows(kit)] == [1]
    assert kit.read("incomplete/t")["ordinal"].to_pylist() == [1, 3]


def test_in_any_releases_the_mirror_ends_with_the_highest_order(kit):
    rng = random.Random(4)
    topic = kit.Topic("t", {1: ORDERED}, ["id"])
    changes, expected = [], {}
    for number in range(24):
        key = {"id": rng.randrange(3)}
        row = {"note": f"n{number}", SOURCE_ORDER: f"{number:04d}"}
        mod, new, old = rng.choice((("INSERT", row, None), ("DELETE", None, row)))
        changes.append((mod, key, new, old))
        expected[key["id"]] = {**key, **row}
    rng.shuffle(changes)
    sink = opened(kit)
    for release in range(3):
        some = [
            (topic, kit.Change(mod, key, new, old, us=1_000 * release + n))
            for n, (mod, key, new, old) in enumerate(changes[8 * release : 8 * release + 8])
        ]
        sink.write(kit.release(release, some))
    found = kit.read("mirror/t").to_pylist()
    assert {row["id"]: row for row in found} == expected


# Mirrors of tables of which the change stream leaves something out.


@SMALL
def test_a_column_that_is_not_watched_is_left_out_by_name(kit, small):
    """In `u` it was not watched at first, and stays left out."""
    topics = [
        kit.Topic("t", {1: COLUMNS}, ["id"], unwatched={1: {"b"}}),
        kit.Topic("u", {1: COLUMNS, 2: COLUMNS}, ["id"], unwatched={1: {"b"}}, key_id=101),
    ]
    sink, values = opened(kit, small=small), ({"a": "x"}, {"a": "x", "b": 7})
    with capture_logs() as lines:
        for number, mod in enumerate(("INSERT", "UPDATE")):
            changes = [
                (topic, kit.Change(mod, {"id": 1}, {**new, "a": mod}, us=number, every=False))
                for topic, new in zip(topics, values, strict=True)
            ]
            versions = sink.write(kit.release(number, changes, small=small))
    assert rows(kit) == rows(kit, table="u") == [{"id": 1, "a": "UPDATE"}]
    assert [versions[name].left_out for name in "tu"] == [("column b",)] * 2
    left = [line["left_out"] for line in lines if line["event"] == "the mirror leaves out"]
    assert left == [["column b"]] * 2


@SMALL
def test_a_column_of_the_mirror_that_is_no_longer_watched_is_refused(kit, small):
    before = kit.Topic("t", {1: COLUMNS}, ["id"])
    after = kit.Topic("t", {1: COLUMNS, 2: COLUMNS}, ["id"], unwatched={2: {"b"}})
    change = [("INSERT", {"id": 1}, {"a": "x", "b": 1})]
    sink = opened(kit, small=small)
    sink.write(release(kit, 0, before, change, every=False, small=small))
    refused = release(kit, 1, after, [("UPDATE", {"id": 1}, {"a": "y"})], every=False, small=small)
    for again in (sink, opened(kit, small=small)):
        with pytest.raises(FilteredMirror, match="no longer watches") as raised:
            again.write(refused)
        assert raised.value.fields["columns"] == ["b"]
    assert kit.read("mirror/t").to_pylist() == [{"id": 1, "a": "x", "b": 1}]
    version = opened(kit, small=small, accepted=["unwatched_columns"]).write(refused)["t"]
    assert version.left_out == ("column b",)
    assert kit.read("mirror/t").to_pylist() == [{"id": 1, "a": "y", "b": 1}]


@SMALL
def test_a_stream_that_leaves_changes_out_has_no_mirror_unless_that_is_accepted(kit, small):
    excludes = ("exclude_delete", "exclude_ttl_deletes")
    topic = kit.Topic("t", {1: COLUMNS}, ["id"], excludes=excludes)
    first = release(
        kit, 0, topic, [("INSERT", {"id": 1}, {"a": "x", "b": 1})], every=False, small=small
    )
    with pytest.raises(FilteredMirror) as raised:
        opened(kit, small=small, accepted=("exclude_delete",)).write(first)
    assert raised.value.exit_code == ExitCode.USAGE
    assert raised.value.fields["options"] == ["exclude_ttl_deletes"]
    assert 'mirror_accepts = "exclude_delete,exclude_ttl_deletes"' in str(raised.value)
    version = opened(kit, small=small, accepted=excludes).write(first)["t"]
    assert version.left_out == excludes
    assert kit.read("mirror/t").to_pylist() == [{"id": 1, "a": "x", "b": 1}]

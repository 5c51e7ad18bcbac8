"""The fold of a release to a row for each key, and what the sinks that merge have in common."""

import deltalake
import pyarrow
import pytest

from tidegate.spark_consumer.sinks.merge import mirror
from tidegate.spark_consumer.sinks.merge.fold import (
    captured_flag,
    fold,
    fold_each,
    fold_each_row,
    folded_value,
)
from tidegate.spark_consumer.sinks.merge.mirror import merge_clauses
from tidegate.spark_consumer.sinks.merge.scope import key_struct
from tidegate.spark_consumer.sinks.spark_types import as_type
from tidegate.spark_consumer.sinks.sql import double_quoted, quoted

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


def insert(a, b):
    return ("INSERT", {"a": a, "b": b})


def update(**new):
    return ("UPDATE", new)


DELETE = ("DELETE", None)

# history of one key -> (action, captured columns' values, updated after base)
CASES = {
    "insert": ([insert("x", 1)], ("replace", {"a": "x", "b": 1}, False)),
    "insert of nulls": ([insert(None, None)], ("replace", {"a": None, "b": None}, False)),
    "insert, update": ([insert("x", 1), update(b=2)], ("replace", {"a": "x", "b": 2}, True)),
    "insert, update to NULL": (
        [insert("x", 1), update(a=None)],
        ("replace", {"a": None, "b": 1}, True),
    ),
    "update only": ([update(b=2)], ("patch", {"b": 2}, False)),
    "update to NULL only": ([update(a=None)], ("patch", {"a": None}, False)),
    "two updates of one column": ([update(b=2), update(b=3)], ("patch", {"b": 3}, False)),
    "disjoint updates": ([update(a="y"), update(b=3)], ("patch", {"a": "y", "b": 3}, False)),
    "delete": ([DELETE], ("delete", {}, False)),
    "update, delete": ([update(b=2), DELETE], ("delete", {}, False)),
    "insert, delete": ([insert("x", 1), DELETE], ("delete", {}, False)),
    "delete, insert": ([DELETE, insert("z", None)], ("replace", {"a": "z", "b": None}, False)),
    "update, delete, insert": (
        [update(b=2), DELETE, insert("z", None)],
        ("replace", {"a": "z", "b": None}, False),
    ),
    "insert, delete, insert, update": (
        [insert("x", 1), DELETE, insert("y", 2), update(a="w")],
        ("replace", {"a": "w", "b": 2}, True),
    ),
    "delete, update": ([DELETE, update(b=5)], ("delete", {"b": 5}, True)),
}


def test_every_case_of_the_table_at_once(kit):
    """One release holds all cases as keys of their own, as Spark is slow to start a job."""
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    changes = []
    for key, (history, _) in enumerate(CASES.values()):
        for step, (mod, new) in enumerate(history):
            # All of one commit timestamp: only transaction and sequence tell the order.
            place = {"us": 7, "transaction": f"t{step}", "sequence": key}
            changes.append((topic, kit.Change(mod, {"id": key}, new, **place)))
    frame = fold(kit.release(0, changes).tables["bank.t"].frame, list(COLUMNS))
    folded = {row["key"]["id"]: row for row in frame.collect()}
    for key, (name, (_, (action, values, updated))) in enumerate(CASES.items()):
        row = folded[key]
        found = {
            column: row[folded_value(n)]
            for n, column in enumerate(COLUMNS)
            if row[captured_flag(n)] and column != "id"
        }
        assert (name, row["action"], found) == (name, action, values)
        assert (name, row["updated_after_base"]) == (name, updated)


def test_the_insert_replaces_what_it_did_not_capture(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    changes = [
        kit.Change("UPDATE", {"id": 1}, {"a": "before"}, us=1),
        kit.Change("DELETE", {"id": 1}, us=2),
        kit.Change("INSERT", {"id": 1}, {"b": 4}, us=3, every=False),
    ]
    release = kit.release(0, [(topic, change) for change in changes])
    (row,) = fold(release.tables["bank.t"].frame, list(COLUMNS)).collect()
    assert (row["action"], row[captured_flag(1)], row[folded_value(1)]) == ("replace", True, None)
    assert row[folded_value(2)] == 4


def test_after_each_change_the_state_is_that_of_the_fold_in_the_driver(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"])
    changes = []
    for key, (history, _) in enumerate(CASES.values()):
        for step, (mod, new) in enumerate(history):
            # Two changes of each commit timestamp.
            place = {"us": 1 + step // 2, "sequence": step, "mod_number": key}
            changes.append((topic, kit.Change(mod, {"id": key}, new, **place)))
    frame = kit.release(0, changes).tables["bank.t"].frame
    times = ("starts_at", "ends_at")
    each = fold_each(frame, list(COLUMNS)).selectExpr(
        "*", *(f"unix_micros({name}) as {name}_us" for name in times)
    )
    rows = {row["ordinal"]: row for row in each.collect()}
    small = kit.release(0, changes, small=True).tables["bank.t"].changes
    folded = fold_each_row(small, list(COLUMNS))
    assert len(rows) == len(folded) == len(changes)
    for one in folded:
        row, state = rows[one.ordinal], one.state
        assert (row["mod_type"], row["is_first"]) == (one.mod_type, one.is_first)
        assert (row["starts_at_us"], row["ends_at_us"]) == (one.starts_at, one.ends_at)
        assert (row["action"], row["base_ordinal"]) == (state.action, state.base_ordinal)
        assert row["updated_after_base"] == state.updated_after_base
        for n, column in enumerate(COLUMNS):
            assert row[captured_flag(n)] == state.captures(column)
            assert row[folded_value(n)] == state.values.get(column)


def test_a_wide_table_needs_few_calls_of_java(kit, monkeypatch):
    """PySpark's operators need twenty calls for each: 130,000 for a table of 300 columns."""
    wide = {"id": "INT64", **{f"c{n}": "INT64" for n in range(60)}}
    topic = kit.Topic("t", {1: wide}, ["id"])
    change = topic, kit.Change("UPDATE", {"id": 1}, {"c7": 7}, every=False)
    frame = kit.release(0, [change]).tables["bank.t"].frame
    client, calls = kit.spark.sparkContext._gateway._gateway_client, []
    send = client.send_command

    def counted(command, *args, **options):
        calls.append(command)
        return send(command, *args, **options)

    monkeypatch.setattr(client, "send_command", counted)
    for folding in (fold, fold_each):
        calls.clear()
        folded = folding(frame, list(wide))
        assert len(calls) < 60 * len(wide)
        assert folded.columns[-1] == folded_value(len(wide) - 1)


def test_marks_in_names_are_parts_of_them(kit):
    """No source has such columns today; each statement quotes its names all the same."""
    key, a, b = "i`d", 'a`"b', "c'.d"
    path, types = f"{kit.output}/odd`folder", f'`i``d` INT, `a``"b` STRING, `{b}` STRING'
    table = kit.spark.createDataFrame([(1, "old", "kept"), (2, "gone", "")], types)
    assert as_type(table, table.schema).columns == [key, a, b]
    table.write.format("delta").save(path)
    known = kit.spark.read.format("delta").load(path).select(key_struct([key]))
    assert sorted(row["key"][key] for row in known.collect()) == [1, 2]
    folded = [(1, "patch", "new"), (2, "delete", None), (3, "replace", "three")]
    rows = kit.spark.createDataFrame(
        [((k,), action, k, False, text, True, None, k == 3) for k, action, text in folded],
        "key struct<`i``d`: INT>, action STRING, value_0 INT, captured_0 BOOLEAN, value_1 STRING, "
        "captured_1 BOOLEAN, value_2 STRING, captured_2 BOOLEAN",
    )
    rows.createOrReplaceTempView("folded")
    clauses = merge_clauses(columns=[key, a, b], keys=[key])
    kit.spark.sql(clauses.sql(quoted("delta", path), "folded"))
    found = kit.spark.read.format("delta").load(path).collect()
    assert sorted(map(tuple, found)) == [(1, "new", "kept"), (3, "three", None)]

    table = deltalake.DeltaTable(path)
    source = pyarrow.table({"key_0": pyarrow.array([1], pyarrow.int32()), "text": ["newer"]})
    merger = table.merge(source, mirror.same_key(source, [key]), source_alias="s", target_alias="t")
    value = f"CASE WHEN t.{double_quoted(a)} = 'new' THEN s.text ELSE t.{double_quoted(a)} END"
    merger.when_matched_update({double_quoted(a): value}).execute()
    assert {row[key]: row[a] for row in table.to_pyarrow_table().to_pylist()} == {
        1: "newer", 3: "three",
    }  # fmt: skip

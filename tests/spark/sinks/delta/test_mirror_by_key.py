"""The mirror by key: the newest of each row and column, whatever the batches are, however often."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql.types import StructType
from structlog.testing import capture_logs

from tests.spark.sinks.plain_mirror import HISTORIES
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.source_order import SOURCE_ORDER
from tidegate.spark_consumer.errors import FilteredMirror
from tidegate.spark_consumer.sinks.delta import mirror_by_key
from tidegate.spark_consumer.sinks.delta.key_merge import COLUMN_UPDATES, key_merge, keyed_schema
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.delta.mirror_by_key import DeltaMirrorByKeySink
from tidegate.spark_consumer.sinks.handed_batch import BatchSink

pytestmark = pytest.mark.spark

COLUMNS = {"id": "INT64", "a": "STRING(MAX)", "b": "INT64"}


def opened(kit, **known):
    sink = DeltaMirrorByKeySink(kit.spark, kit.output)
    sink.open(**({"query_id": "query-1", "release_max": 99} | known))
    return sink


def rows(kit, table="t"):
    found = kit.read(f"mirror_by_key/{table}").to_pylist()
    return {row["id"]: (row["row_state"], row["a"], row["b"]) for row in found}


def present(kit, table):
    found = rows(kit, table).items()
    return {key: (a, b) for key, (state, a, b) in found if state == "present"}


def taker(kit, table="t"):
    """Return a function that hands a batch of (mod, key, new, time) to a sink."""
    topic = kit.Topic(table, {1: COLUMNS}, ["id"])

    def take(sink, number, *changes):
        made = [(topic, kit.Change(mod, {"id": key}, new, us=us)) for mod, key, new, us in changes]
        sink.take(kit.handed(number, made, topics=[topic]))

    return take


def test_the_newest_change_wins_and_only_what_was_captured_changes(kit):
    take, sink = taker(kit), opened(kit)
    assert isinstance(sink, BatchSink)
    take(sink, 0, ("INSERT", 1, {"a": "x", "b": 1}, 10), ("INSERT", 2, {"a": "y", "b": 2}, 11))
    take(sink, 3, ("UPDATE", 1, {"a": None}, 20), ("UPDATE", 2, {"b": None}, 21),
         ("UPDATE", 2, {"a": "z"}, 22))  # fmt: skip
    assert rows(kit) == {1: ("present", None, 1), 2: ("present", "z", None)}


@pytest.mark.rule("sink-mirror-by-key")
def test_an_older_change_neither_brings_a_deleted_row_back_nor_changes_a_newer_one(kit):
    take, sink = taker(kit), opened(kit)
    take(sink, 0, ("INSERT", 1, {"a": "x", "b": 1}, 10), ("INSERT", 2, {"a": "x", "b": 1}, 10))
    take(sink, 1, ("DELETE", 1, None, 20), ("UPDATE", 2, {"a": "new"}, 20))
    after = {1: ("deleted", None, None), 2: ("present", "new", 1)}
    assert rows(kit) == after
    with capture_logs() as lines:
        take(sink, 2, ("INSERT", 1, {"a": "x", "b": 1}, 10), ("UPDATE", 1, {"a": "y"}, 15),
             ("DELETE", 2, None, 5), ("UPDATE", 2, {"a": "new"}, 20))  # fmt: skip
    assert rows(kit) == after
    assert [(line["event"], line["table"], line["batch"], line["rows"]) for line in lines] == [
        ("changes older than their rows", "t", 2, 2)
    ]
    take(sink, 3, ("INSERT", 1, {"a": "again", "b": None}, 30))
    assert rows(kit)[1] == ("present", "again", None)


def test_of_events_of_files_the_highest_order_wins_however_late_it_comes(kit):
    columns = {**COLUMNS, SOURCE_ORDER: "STRING(MAX)"}
    topic, sink = kit.Topic("t", {1: columns}, ["id"]), opened(kit)

    def take(number, *events):
        changes = []
        for place, (mod, key, order) in enumerate(events):
            row = {"a": f"n{order}", "b": order, SOURCE_ORDER: f"01{order:04d}"}
            new, old = (None, row) if mod == "DELETE" else (row, None)
            # A late event has a later time than those before which it belongs.
            at = {"us": 1_000 * number + place, "transaction": row[SOURCE_ORDER]}
            changes.append((topic, kit.Change(mod, {"id": key}, new, old, **at)))
        sink.take(kit.handed(number, changes, topics=[topic]))

    take(0, ("INSERT", 1, 5), ("INSERT", 1, 4), ("DELETE", 2, 7), ("INSERT", 3, 1))
    assert rows(kit) == {
        1: ("present", "n5", 5), 2: ("deleted", None, None), 3: ("present", "n1", 1),
    }  # fmt: skip
    take(1, ("INSERT", 1, 3), ("INSERT", 2, 6), ("DELETE", 3, 2), ("INSERT", 3, 0))
    after = {1: ("present", "n5", 5), 2: ("deleted", None, None), 3: ("deleted", None, None)}
    assert rows(kit) == after
    take(2, ("INSERT", 2, 8), ("DELETE", 1, 2), ("INSERT", 3, 9), ("DELETE", 3, 8))
    assert rows(kit) == {**after, 2: ("present", "n8", 8), 3: ("present", "n9", 9)}


def test_an_update_without_a_row_is_incomplete_until_its_insert(kit):
    take, sink = taker(kit), opened(kit)
    take(sink, 0, ("UPDATE", 1, {"a": "x"}, 10), ("DELETE", 2, None, 10))
    take(sink, 1, ("UPDATE", 1, {"b": 5}, 20), ("UPDATE", 2, {"b": 6}, 20))
    assert rows(kit) == {1: ("incomplete", "x", 5), 2: ("incomplete", None, 6)}
    take(sink, 2, ("INSERT", 1, {"a": None, "b": 7}, 30))
    assert rows(kit)[1] == ("present", None, 7)


def test_a_row_that_was_read_on_demand_fills_what_newer_updates_did_not_capture(kit):
    take, sink = taker(kit), opened(kit)
    take(sink, 0, ("UPDATE", 1, {"b": 150}, 20), ("UPDATE", 2, {"b": 5}, 20),
         ("DELETE", 2, None, 30), ("UPDATE", 3, {"b": 1}, 5), ("UPDATE", 4, {}, 20))  # fmt: skip
    take(sink, 1, ("UPDATE", 1, {"b": 160}, 30), ("UPDATE", 3, {"a": "new"}, 20))
    assert rows(kit) == {
        1: ("incomplete", None, 160), 2: ("deleted", None, None), 3: ("incomplete", "new", 1),
        4: ("incomplete", None, None),
    }  # fmt: skip
    of_chunk = [("INSERT", key, {"a": f"a{key}", "b": 100 + key}, 10) for key in (1, 2, 3, 4)]
    take(sink, 2, *of_chunk)
    after = {
        1: ("present", "a1", 160), 2: ("deleted", None, None), 3: ("present", "new", 103),
        4: ("present", "a4", 104),
    }  # fmt: skip
    assert rows(kit) == after
    take(sink, 3, *of_chunk, ("UPDATE", 1, {"b": 150}, 20))
    assert rows(kit) == after
    take(sink, 4, ("INSERT", 1, {"a": "again", "b": None}, 25))
    assert rows(kit)[1] == ("present", "again", 160)


def test_a_table_of_an_earlier_version_gets_the_column_and_its_rows_stay(kit, monkeypatch):
    take = taker(kit)

    def schema_then(one):
        return StructType([field for field in keyed_schema(one) if field.name != COLUMN_UPDATES])

    def merge_then(**known):
        inserted = {**key_merge(**known).inserted}
        del inserted[f"`{COLUMN_UPDATES}`"]
        return replace(key_merge(**known), is_newer="false", changed=inserted, inserted=inserted)

    with monkeypatch.context() as patch:
        patch.setattr(mirror_by_key, "keyed_schema", schema_then)
        patch.setattr(mirror_by_key, "key_merge", merge_then)
        take(opened(kit), 0, ("UPDATE", 1, {"b": 150}, 20), ("INSERT", 2, {"a": "x", "b": 1}, 20),
             ("DELETE", 3, None, 20))  # fmt: skip
    assert COLUMN_UPDATES not in kit.read("mirror_by_key/t").column_names
    before = rows(kit)
    sink = opened(kit)
    take(sink, 1, *(("INSERT", key, {"a": "old", "b": 0}, 10) for key in (1, 2, 3)))
    assert rows(kit) == before
    take(sink, 2, ("UPDATE", 1, {"a": "new"}, 30), ("UPDATE", 2, {"b": 2}, 30),
         ("INSERT", 1, {"a": "chunk", "b": 151}, 25))  # fmt: skip
    assert rows(kit) == {**before, 1: ("present", "new", 151), 2: ("present", "x", 2)}


@pytest.mark.rule("sink-mirror-by-key")
@settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[
        HealthCheck.function_scoped_fixture,
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
    ],
)
@given(histories=HISTORIES, seed=st.integers(0, 10**9))
def test_it_equals_the_gates_mirror_in_whatever_batch_a_row_is_read_and_copies_change_nothing(
    kit, histories, seed
):
    table = f"t{len(list(Path(kit.output, 'mirror').glob('*')))}"
    topic, rng = kit.Topic(table, {1: COLUMNS}, ["id"]), Random(seed)
    gates, by_key = DeltaMirrorSink(kit.spark, kit.output), opened(kit)
    gates.open(query_id="query-1", release_max=99)
    batches, everything = [[] for _ in range(3)], []
    for number in range(3):
        changes = [
            (topic, kit.Change(mod, {"id": key}, new, us=number * 1_000 + n, transaction=f"t{key}"))
            for key, parts in enumerate(histories)
            for n, (mod, new) in enumerate(parts[number])
        ]
        gates.write(kit.release(number, changes, topics=[topic]))
        everything += changes
    for key in range(len(histories)):
        of_key = [pair for pair in everything if pair[1].key["id"] == key]
        places = sorted(rng.randrange(3) for _ in of_key)
        for place, pair in zip(places, of_key, strict=True):
            # A row as of a time T stands in a topic of its own: changes behind T may come first.
            # And what an operator puts back comes at any time.
            is_late = pair[1].mod == "INSERT" or key % 4 == 0
            batches[rng.randrange(place, 3) if is_late else place].append(pair)
    for number, batch in enumerate(batches):
        by_key.take(kit.handed(number, batch, topics=[topic]))
    expected = {row["id"]: (row["a"], row["b"]) for row in kit.read(f"mirror/{table}").to_pylist()}
    assert present(kit, table) == expected
    whole = rows(kit, table)
    at_once = kit.Topic(f"{table}_at_once", {1: COLUMNS}, ["id"], key_id=9)
    by_key.take(kit.handed(3, [(at_once, change) for _, change in everything], topics=[at_once]))
    assert rows(kit, at_once.table) == whole
    copies = rng.sample(everything, len(everything) // 2)
    by_key.take(kit.handed(4, copies, topics=[topic]))
    assert rows(kit, table) == whole


@pytest.mark.rule("sink-mirror-by-key")
def test_a_kill_between_two_tables_is_made_good_and_a_batch_is_merged_once(kit, monkeypatch):
    topics = [kit.Topic(name, {1: COLUMNS}, ["id"], key_id=9) for name in ("t", "u")]
    inserts = [(one, kit.Change("INSERT", {"id": 1}, {"a": "x", "b": 1}, us=9)) for one in topics]
    batch = kit.handed(0, inserts, topics=topics)

    def one_only(_spark, tables, write):
        is_merge = write.__name__ == "merge"
        for table in tables[:1] if is_merge else tables:
            write(table)
        if is_merge:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(mirror_by_key, "for_each_table", one_only)
        with pytest.raises(KeyboardInterrupt):
            opened(kit).take(batch)
    assert [len(rows(kit, name)) for name in ("t", "u")] == [1, 0]
    opened(kit).take(batch)
    versions = [
        written.version for written in opened(kit).write(kit.release(0, [], topics=topics)).values()
    ]
    assert [rows(kit, name) for name in ("t", "u")] == [{1: ("present", "x", 1)}] * 2
    opened(kit).take(batch)
    again = opened(kit).write(kit.release(0, [], topics=topics))
    assert [written.version for written in again.values()] == versions


def test_a_column_that_comes_later_is_null_in_older_rows(kit):
    sink, old = opened(kit), kit.Topic("t", {1: {"id": "INT64", "a": "STRING(MAX)"}}, ["id"])
    new = kit.Topic("t", {1: {"id": "INT64", "a": "STRING(MAX)"}, 2: COLUMNS}, ["id"])
    sink.take(kit.handed(0, [(old, kit.Change("INSERT", {"id": 1}, {"a": "x"}, us=1))]))
    sink.take(kit.handed(1, [(new, kit.Change("INSERT", {"id": 2}, {"a": "y", "b": 2}, us=2))]))
    assert rows(kit) == {1: ("present", "x", None), 2: ("present", "y", 2)}


def test_a_stream_that_leaves_changes_out_is_refused_unless_that_is_accepted(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"], excludes=("exclude_ttl_deletes",))
    batch = kit.handed(0, [(topic, kit.Change("INSERT", {"id": 1}, {"a": "x", "b": 1}))])
    with pytest.raises(FilteredMirror, match="exclude_ttl_deletes"):
        opened(kit).take(batch)


def test_a_table_of_another_query_is_refused(kit):
    taker(kit)(opened(kit), 0, ("INSERT", 1, {"a": "x", "b": 1}, 10))
    with pytest.raises(ConfigError, match="another writer"):
        opened(kit, query_id="query-2")


def test_a_text_that_would_be_null_as_a_partition_is_refused(kit):
    """A DELETE too keeps its row, with the key."""
    layout = TableLayout(partition_by={"t": ("a", "k")})
    sink = DeltaMirrorByKeySink(kit.spark, kit.output, layout=layout)
    sink.open(query_id="query-1", release_max=99)
    topic = kit.Topic("t", {1: {"k": "STRING(MAX)", "a": "STRING(MAX)"}}, ["k"])
    for column, mod, key, new in (("a", "INSERT", "x", {"a": ""}), ("k", "DELETE", "", None)):
        change = kit.Change(mod, {"k": key}, new, us=1)
        with pytest.raises(ConfigError, match=rf"mirror_partition_by: an empty.*column='{column}'"):
            sink.take(kit.handed(0, [(topic, change)], topics=[topic]))
    assert kit.read("mirror_by_key/t").num_rows == 0

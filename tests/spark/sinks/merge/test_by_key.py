"""What is merged by key: the newest of each row and column, whatever the batches are."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from tests.spark.sinks.outputs import HISTORIES, examples
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.errors import FilteredMirror, ForeignChange
from tidegate.spark_consumer.sinks.delta.adoption import adopt_changes
from tidegate.spark_consumer.sinks.delta.layout import TableLayout
from tidegate.spark_consumer.sinks.kinds import changelog_by_key_sink
from tidegate.spark_consumer.sinks.merge.by_key import DeltaMirrorByKeySink
from tidegate.spark_consumer.sinks.merge.mirror import DeltaMirrorSink

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


# By case: the changes of one key in each batch, and what the row is after a batch.
CASES = {
    "only what was captured changes": (
        [[("INSERT", {"a": "x", "b": 1}, 10)], [("UPDATE", {"a": None}, 20)]],
        {4: ("present", None, 1)},
    ),
    "several updates of a batch": (
        [[("INSERT", {"a": "y", "b": 2}, 11)],
         [("UPDATE", {"b": None}, 21), ("UPDATE", {"a": "z"}, 22)]],
        {4: ("present", "z", None)},
    ),
    "an older change brings no deleted row back": (
        [[("INSERT", {"a": "x", "b": 1}, 10)], [("DELETE", None, 20)],
         [("INSERT", {"a": "x", "b": 1}, 10), ("UPDATE", {"a": "y"}, 15)],
         [("INSERT", {"a": "again", "b": None}, 30)]],
        {1: ("deleted", None, None), 2: ("deleted", None, None), 4: ("present", "again", None)},
    ),
    "nor changes a newer one": (
        [[("INSERT", {"a": "x", "b": 1}, 10)], [("UPDATE", {"a": "new"}, 20)],
         [("DELETE", None, 5), ("UPDATE", {"a": "new"}, 20)]],
        {1: ("present", "new", 1), 4: ("present", "new", 1)},
    ),
    "an update without a row is incomplete until its INSERT": (
        [[("UPDATE", {"a": "x"}, 10)], [("UPDATE", {"b": 5}, 20)],
         [("INSERT", {"a": None, "b": 7}, 30)]],
        {0: ("incomplete", "x", None), 1: ("incomplete", "x", 5), 4: ("present", None, 7)},
    ),
    "also of a row that was deleted": (
        [[("DELETE", None, 10)], [("UPDATE", {"b": 6}, 20)]], {4: ("incomplete", None, 6)},
    ),
    "a row that was read on demand fills what newer updates did not capture": (
        [[("UPDATE", {"b": 150}, 20)], [("UPDATE", {"b": 160}, 30)],
         [("INSERT", {"a": "a1", "b": 101}, 10)],
         [("INSERT", {"a": "a1", "b": 101}, 10), ("UPDATE", {"b": 150}, 20)],
         [("INSERT", {"a": "again", "b": None}, 25)]],
        {1: ("incomplete", None, 160), 2: ("present", "a1", 160), 3: ("present", "a1", 160),
         4: ("present", "again", 160)},
    ),
    "one that was deleted since stays so": (
        [[("UPDATE", {"b": 5}, 20), ("DELETE", None, 30)], [],
         [("INSERT", {"a": "a2", "b": 102}, 10)]],
        {4: ("deleted", None, None)},
    ),
    "of updates before and after it": (
        [[("UPDATE", {"b": 1}, 5)], [("UPDATE", {"a": "new"}, 20)],
         [("INSERT", {"a": "a3", "b": 103}, 10)]],
        {1: ("incomplete", "new", 1), 4: ("present", "new", 103)},
    ),
    "an update that captured nothing": (
        [[("UPDATE", {}, 20)], [], [("INSERT", {"a": "a4", "b": 104}, 10)]],
        {1: ("incomplete", None, None), 4: ("present", "a4", 104)},
    ),
}  # fmt: skip


@pytest.mark.rule("sink-mirror-by-key")
def test_after_each_batch_a_row_is_that_of_its_newest_changes(kit):
    take, sink = taker(kit), opened(kit)
    for number in range(5):
        changes = [
            (mod, key, new, us)
            for key, (batches, _) in enumerate(CASES.values())
            for mod, new, us in (batches[number] if number < len(batches) else ())
        ]
        with capture_logs() as lines:
            take(sink, number, *changes)
        found = rows(kit)
        for key, (name, (_, expected)) in enumerate(CASES.items()):
            assert (name, found[key]) == (name, expected.get(number, found[key]))
        if number == 2:
            (line,) = lines
            assert (line["event"], line["table"]) == ("changes older than their rows", "t")
            assert (line["batch"], line["rows"]) == (2, 3)


@pytest.mark.rule("sink-mirror-by-key")
@examples(1)
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


def test_a_stream_that_leaves_changes_out_is_refused_unless_that_is_accepted(kit):
    topic = kit.Topic("t", {1: COLUMNS}, ["id"], excludes=("exclude_ttl_deletes",))
    batch = kit.handed(0, [(topic, kit.Change("INSERT", {"id": 1}, {"a": "x", "b": 1}))])
    with pytest.raises(FilteredMirror, match="exclude_ttl_deletes"):
        opened(kit).take(batch)


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


def test_rows_that_others_deleted_are_adopted_like_those_of_a_release(kit):
    def of_batch(release_max):
        one = changelog_by_key_sink(kit.spark, kit.output)
        one.open(query_id="query-1", release_max=release_max)
        return one

    topic, sink = kit.Topic("t", {1: {"id": "INT64"}}, ["id"]), of_batch(6)
    sink.take(kit.handed(7, [(topic, kit.Change("INSERT", {"id": 1}, {}))]))
    kit.spark.sql(f"DELETE FROM delta.`{kit.output}/{sink.name}/t`")
    with pytest.raises(ForeignChange, match="adopt"):
        of_batch(7)
    known = {"query_id": "query-1", "release_max": 0}
    with pytest.raises(ConfigError, match="later release"):
        adopt_changes(kit.spark, kit.output, **known, batch_max=6)
    (adopted,) = adopt_changes(kit.spark, kit.output, **known, batch_max=7)
    assert adopted.table == f"{sink.name}/t"
    of_batch(7)

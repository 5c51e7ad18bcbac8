"""Functions and sinks of a program: what they are called with, in which order, and when not."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

import tidegate
from tests.tidy.printed_commands import blocks
from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US
from tidegate.spark_consumer.library.builder import StreamBuilder
from tidegate.spark_consumer.sinks.function import BatchFunctionSink, FunctionSink
from tidegate.spark_consumer.sinks.handed_batch import BatchSink

pytestmark = pytest.mark.spark

A = {2: {"id": "INT64", "a": "STRING"}}
B = {4: {"id": "INT64", "n": "NUMERIC", "at": "TIMESTAMP", "raw": "BYTES(MAX)"}}
AT = datetime(2026, 1, 1, tzinfo=UTC)


class Calls:
    """A function that keeps what it was called with."""

    def __init__(self, kit, **options):
        self.seen = []
        self.sink = FunctionSink(self._call, spark=kit.spark, **options)

    def _call(self, frame, release):
        typed = {name: release.table(name).collect() for name in release.tables}
        self.seen.append((frame.collect(), typed, release))


@pytest.fixture
def tables(kit):
    return kit.Topic("accounts", A, ["id"], key_id=1), kit.Topic("items", B, ["id"], key_id=3)


def released(kit, tables, number=0, **options):
    first, second = tables
    row = {"id": 1, "n": Decimal("1.5"), "at": AT, "raw": b"\x00"}
    changes = [
        (second, kit.Change("INSERT", {"id": 1}, row, us=3, transaction="t2")),
        (first, kit.Change("INSERT", {"id": 7}, {"id": 7, "a": "x"}, us=2)),
        (first, kit.Change("DELETE", {"id": 7}, None, us=3, transaction="t2", sequence=1)),
    ]
    return kit.release(number, changes, topics=tables, **options)


@pytest.mark.rule("sink-function-commit")
@pytest.mark.parametrize("small", [False, True])
def test_a_release_is_one_frame_in_commit_order_and_a_typed_one_for_each_table(kit, tables, small):
    calls = Calls(kit)
    assert calls.sink.write(released(kit, tables, number=4, small=small)) == {}
    ((rows, typed, release),) = calls.seen
    assert [(row.release, row.ordinal, row.table, row.mod_type) for row in rows] == [
        (4, 0, "accounts", "INSERT"), (4, 1, "items", "INSERT"), (4, 2, "accounts", "DELETE"),
    ]  # fmt: skip
    assert [row.key.toPython() for row in rows] == [{"id": 7}, {"id": 1}, {"id": 7}]
    values = rows[1].new_values.toPython()
    assert (values["n"], values["at"], values["raw"]) == (Decimal("1.5"), AT, b"\x00")
    assert rows[2].new_values is None
    assert (release.number, release.rows, release.tables) == (4, 3, ("accounts", "items"))
    assert release.after == datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)
    assert release.through == datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
    assert [row.new_values.n for row in typed["items"]] == [Decimal("1.500000000")]
    assert [row.mod_type for row in typed["accounts"]] == ["INSERT", "DELETE"]


@pytest.mark.rule("sink-function-transaction")
def test_a_transaction_is_one_row_with_its_changes_in_order_over_all_tables(kit, tables):
    calls = Calls(kit, mode="transaction")
    calls.sink.write(released(kit, tables))
    ((rows, _, _),) = calls.seen
    assert [(row.server_transaction_id, row.first_ordinal) for row in rows] == [
        ("t1", 0), ("t2", 1),
    ]  # fmt: skip
    found = [
        [(change.ordinal, change.table, change.mod_type) for change in row.changes] for row in rows
    ]
    assert found == [
        [(0, "accounts", "INSERT")], [(1, "items", "INSERT"), (2, "accounts", "DELETE")],
    ]  # fmt: skip


def test_a_release_without_changes_is_handed_over_where_that_is_wanted(kit, tables):
    for with_empty, topics in ((False, tables), (True, tables), (True, ())):
        calls = Calls(kit, with_empty=with_empty)
        calls.sink.write(kit.release(0, [], topics=topics))
        assert [(rows, typed) for rows, typed, _ in calls.seen] == [([], {})] * with_empty


def test_what_a_function_raises_ends_the_write(kit, tables):
    def fails(frame, release):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        FunctionSink(fails, spark=kit.spark).write(released(kit, tables))


def test_a_table_or_mode_that_is_not_known_is_refused_by_name(kit, tables):
    calls = Calls(kit)
    calls.sink.write(released(kit, tables))
    release = calls.seen[0][2]
    with pytest.raises(ConfigError, match=r"no such table.*Known tables: accounts, items"):
        release.table("account")
    with pytest.raises(ConfigError, match="order mode"):
        FunctionSink(print, spark=kit.spark, mode="key")


# ---------------------------------------------------------------- a function with each batch


def calls_of(batch):
    calls = []

    def keep(changes, batch):
        typed = {name: batch.table(name).collect() for name in batch.tables}
        calls.append((changes.collect(), typed, batch))

    BatchFunctionSink(keep).take(batch)
    return calls


@pytest.mark.rule("sink-function-key")
def test_changes_come_in_kafkas_order_for_each_key_not_in_commit_order(kit):
    a, b = (
        kit.Topic(name, {n: {"id": "INT64", name: "STRING"}}, ["id"], key_id=10 + n)
        for n, name in enumerate("ab", 1)
    )
    changes = [
        (a, kit.Change("INSERT", {"id": 1}, {"a": "x"}, us=30)),
        (b, kit.Change("INSERT", {"id": 9}, {"b": "y"}, us=10)),
        (a, kit.Change("INSERT", {"id": 2}, {"a": "z"}, us=20)),
        (a, kit.Change("DELETE", {"id": 1}, None, us=40)),
    ]
    ((rows, typed, found),) = calls_of(kit.handed(7, changes))
    assert [(row.batch, row.table, row.offset, row.mod_type) for row in rows] == [
        (7, "a", 1, "INSERT"), (7, "a", 2, "INSERT"), (7, "a", 3, "DELETE"), (7, "b", 1, "INSERT"),
    ]  # fmt: skip
    assert [row.key.toPython() for row in rows] == [{"id": n} for n in (1, 2, 1, 9)]
    assert [one.new_values.a for one in typed["a"][:2]] == ["x", "z"]
    assert (found.number, found.query_id, found.rows, found.tables) == (7, "query-1", 4, ("a", "b"))
    assert found.watermark == datetime(1970, 1, 1, microsecond=5, tzinfo=UTC)

    # A known table without a change is empty, and nothing is called without any.
    batch = kit.handed(8, changes[:1], topics=[b], through_us=BEFORE_EVERYTHING_US)
    ((_, typed, found),) = calls_of(batch)
    assert (list(typed), found.table("b").count(), found.watermark) == (["a"], 0, None)
    with pytest.raises(ConfigError, match=r"no such table.*Known tables: a, b"):
        found.table("c")
    assert calls_of(kit.handed(9, [], topics=[a, b])) == []

    def fails(_changes, _batch):
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        BatchFunctionSink(fails).take(batch)
    sink = BatchFunctionSink(print, name="mine")
    assert isinstance(sink, BatchSink)
    assert (sink.name, sink.write(kit.release(0, [], topics=[a]))) == ("mine", {})


# ---------------------------------------------------------------- the programs of docs/library.md


def sink_of_the_page(word, spark, folder):
    """Run the program of the page that has a word; return the sink that it gives to the builder."""
    (program,) = [
        block.content
        for block in blocks("python")
        if block.page == "docs/library.md" and word in block.content
    ]
    for printed in ("/feed/lines", "/lake/feed"):
        program = program.replace(printed, str(folder))
    building = StreamBuilder(spark, prefix="bank")
    exec(compile(program, "docs/library.md", "exec"), {
        "tg": tidegate, "spark": spark, "building": building,
    })  # fmt: skip
    (sink,) = building._own.values()
    return sink


@pytest.fixture
def inserted(kit):
    """Makes changes of a table with the columns of the page."""
    topic = kit.Topic("accounts", {2: {"id": "INT64", "n": "NUMERIC"}}, ["id"], key_id=1)
    return lambda *keys: [(topic, kit.Change("INSERT", {"id": key}, {}, us=key)) for key in keys]


@pytest.mark.rule("sink-own")
def test_the_sink_of_the_page_writes_each_release_once(kit, inserted, tmp_path):
    sink = sink_of_the_page("class JsonLines", kit.spark, tmp_path / "lines")
    sink.open(query_id="q", release_max=-1)
    for number, keys in ((0, (1, 2)), (1, (3,)), (1, (3,))):
        sink.write(kit.release(number, inserted(*keys)))
    found = {
        folder.name: [
            (change["ordinal"], change["key"]["id"])
            for file in sorted(folder.glob("*.json"))
            for change in map(json.loads, file.read_text().splitlines())
        ]
        for folder in Path(tmp_path, "lines").iterdir()
    }
    assert found == {"000000000000": [(0, 1), (1, 2)], "000000000001": [(0, 3)]}


def test_the_function_without_waiting_of_the_page_appends_each_batch_once(kit, inserted, tmp_path):
    sink = sink_of_the_page("def forward", kit.spark, tmp_path / "feed")
    for number, keys in ((4, (1, 2)), (4, (1, 2)), (6, (3,))):
        sink.take(kit.handed(number, inserted(*keys)))
    found = kit.spark.read.format("delta").load(str(tmp_path / "feed")).select("batch", "key")
    appended = sorted((row.batch, row.key.toPython()["id"]) for row in found.collect())
    assert appended == [(4, 1), (4, 2), (6, 3)]

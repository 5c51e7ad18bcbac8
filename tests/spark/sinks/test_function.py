"""A function as a sink: what it is called with, in which order, and when not at all."""

from datetime import UTC, datetime
from decimal import Decimal

import pytest

from tidegate.schemas.errors import ConfigError
from tidegate.spark_consumer.sinks.function import FunctionSink

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
    found = [[(one.ordinal, one.table, one.mod_type) for one in row.changes] for row in rows]
    assert found == [
        [(0, "accounts", "INSERT")], [(1, "items", "INSERT"), (2, "accounts", "DELETE")],
    ]  # fmt: skip


@pytest.mark.parametrize(("with_empty", "calls_made"), [(False, 0), (True, 1)])
def test_a_release_without_changes_is_handed_over_where_that_is_wanted(
    kit, tables, with_empty, calls_made
):
    for topics in (tables, ()):
        calls = Calls(kit, with_empty=with_empty)
        calls.sink.write(kit.release(0, [], topics=topics))
        assert len(calls.seen) == calls_made
        assert all((rows, typed) == ([], {}) for rows, typed, _ in calls.seen)


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

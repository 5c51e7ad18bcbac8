from __future__ import annotations

import pytest

from spanner_simulator.core.rows.expressions import NoExpressions
from spanner_simulator.core.rows.key_sets import KeyBound, KeySet, KeySpan, key_range, whole_key
from spanner_simulator.core.rows.mutations import COMMIT_TIMESTAMP
from spanner_simulator.core.rows.secondary_indexes import hidden_index
from spanner_simulator.core.schema.schema_objects import Table
from spanner_simulator.core.schema.statements import RowDeletionPolicy
from spanner_simulator.core.values import ValueType
from spanner_simulator.errors import Code, SpannerError
from unit.core.rows.conftest import column, delete, write

ALL = KeySet(everything=True)


@pytest.fixture
def filled(shop):
    shop.table("T", ["K INT64", "A INT64", "S STRING"], "K")
    shop.index("TA", "T", "-A", storing=("S",))
    shop.follow()
    shop.commit(write("insert", "T", "K A S", ["1", "5", "x"], ["2", "7", "y"], ["3", "5", "z"]))
    return shop


def read(shop, keys: KeySet, *, index: str = "", **extra) -> list[list[object]]:
    table = shop.catalogue.table("T")
    hidden = shop.store.index(table, index) if index else None
    arguments = {"transaction": None, "read_us": None, **extra}
    return [list(row.values()) for row in shop.store.read(table, keys, index=hidden, **arguments)]


def test_reads_by_index_are_in_its_order_and_have_its_columns(filled) -> None:
    assert read(filled, ALL, index="ta") == [[7, 2, "y"], [5, 1, "x"], [5, 3, "z"]]
    assert read(filled, ALL, index="TA", limit=2) == [[7, 2, "y"], [5, 1, "x"]]
    assert read(filled, KeySet(keys=(["5"], ["7"], ["5"])), index="TA") == [
        [7, 2, "y"],
        [5, 1, "x"],
        [5, 3, "z"],
    ]


def test_an_index_key_has_only_the_indexs_own_parts(filled) -> None:
    with pytest.raises(SpannerError, match="Expected 1 key parts, found 2"):
        read(filled, KeySet(keys=(["5", "1"],)), index="TA")


def test_a_transaction_reads_its_own_rows_by_key_by_range_and_by_index(filled) -> None:
    filled.apply(write("update", "T", "K A", ["1", "9"]), delete("T", ["2"]))
    filled.transaction.writes = filled.writes
    inside = {"transaction": filled.transaction}
    assert read(filled, KeySet(keys=(["1"], ["2"])), **inside) == [[1, 9, "x"]]
    assert read(filled, ALL, **inside) == [[1, 9, "x"], [3, 5, "z"]]
    assert read(filled, ALL, index="TA", **inside) == [[9, 1, "x"], [5, 3, "z"]]
    assert len(read(filled, ALL)) == 3


def test_a_column_is_not_found_before_it_was_added(filled) -> None:
    before_us = filled.now_us
    table = filled.table("T", ["K INT64", "A INT64", "S STRING", "Later INT64"], "K")
    filled.follow()

    def check(read_us: int | None, *columns: str) -> None:
        filled.store.check_readable(table, columns, transaction=None, read_us=read_us)

    check(before_us, "K", "A")
    check(filled.now_us, "later")
    check(None, "later")
    with pytest.raises(SpannerError, match="Column not found in table T: later") as caught:
        check(before_us, "K", "later")
    assert caught.value.code is Code.NOT_FOUND


def test_reading_what_awaits_the_commit_timestamp_is_refused(shop) -> None:
    stamp = column("C TIMESTAMP", commit_timestamp=True)
    table = shop.table("T", ["K INT64", stamp, "V INT64"], "K")
    keyed = shop.table("S", [stamp, "V INT64"], "C")
    shop.index("TC", "T", "C")
    shop.follow()
    transaction = shop.transaction

    def check(which: Table, columns: list[str]) -> None:
        shop.store.check_readable(which, columns, transaction=transaction, read_us=None)

    transaction.writes = shop.writes
    shop.apply(write("insert", "T", "K C", ["1", COMMIT_TIMESTAMP]))
    check(table, ["K", "V"])
    check(keyed, ["V"])
    shop.apply(write("insert", "S", "C V", [COMMIT_TIMESTAMP, "1"]))

    refused = [
        (table, ["K", "c"], "Column C cannot be accessed because it, or its associated index, has"),
        (keyed, ["V"], "Table S cannot be accessed"),
        (shop.store.index(table, "TC").table, ["K"], "Table TC cannot be accessed"),
    ]
    for which, columns, message in refused:
        with pytest.raises(SpannerError, match=message) as caught:
            check(which, columns)
        assert caught.value.code is Code.INVALID_ARGUMENT


DAY_US = 86_400_000_000


def test_rows_are_due_when_their_timestamp_is_old_enough(shop) -> None:
    policy = RowDeletionPolicy("at", 2)
    table = shop.table("T", ["K INT64", "At TIMESTAMP"], "K", row_deletion=policy)
    shop.table("U", ["K INT64", "At TIMESTAMP"], "K")
    shop.follow()
    rows = [["1", "1970-01-01T00:00:00Z"], ["2", None], ["3", "1970-01-01T00:00:01Z"]]
    shop.commit(write("insert", "T", "K At", *rows), write("insert", "U", "K At", *rows))

    def due(now_us: int) -> list[tuple[str, list[bytes]]]:
        return list(shop.store.due_rows(now_us))

    assert due(2 * DAY_US - 1) == []
    assert due(2 * DAY_US) == [("t", [table.encoded_key({"K": 1})])]
    assert due(3 * DAY_US) == [("t", [table.encoded_key({"K": key}) for key in (1, 3)])]


def test_the_hidden_table_has_the_indexs_key_then_the_rest_of_the_rows_key(shop) -> None:
    table = shop.table("T", ["K INT64", "A INT64", "B STRING", "C INT64"], "K")
    hidden = hidden_index(
        shop.index("I", "T", "-b K", storing=("c",)), table, "GOOGLE_STANDARD_SQL"
    )
    assert [(part.name, part.descending) for part in hidden.table.key] == [
        ("B", True),
        ("K", False),
    ]
    assert hidden.names == ("B", "K", "C")
    assert hidden_index(hidden.index, table, "GOOGLE_STANDARD_SQL") is hidden
    assert hidden.entry({"K": 1, "A": 2, "B": None, "C": 3}) == (
        hidden.table.encoded_key({"B": None, "K": 1}),
        {"B": None, "K": 1, "C": 3},
    )


@pytest.fixture
def table(shop):
    return shop.table("T", ["A INT64", "B STRING"], "A -B")


@pytest.mark.parametrize("keys", [["1"], ["1", "x", "y"]])
def test_a_key_has_all_its_parts(table, keys: list[str]) -> None:
    with pytest.raises(
        SpannerError, match=r"Wrong number of key parts for T\. Expected 2"
    ) as caught:
        whole_key(table, list(keys))
    assert caught.value.code is Code.FAILED_PRECONDITION


@pytest.mark.parametrize(
    ("start", "end", "inside"),
    [(True, True, [1, 2, 3]), (False, True, [2, 3]), (True, False, [1, 2]), (False, False, [2])],
)
def test_ends_of_a_span(table, start: bool, end: bool, inside: list[int]) -> None:
    where = key_range(table, KeySpan(KeyBound(["1"], start), KeyBound(["3"], end)))
    keys = {number: table.encoded_key({"A": number, "B": "x"}) for number in range(5)}
    assert [number for number, key in keys.items() if where.holds(key)] == inside


def test_without_an_evaluator_an_expression_is_refused_by_name(shop) -> None:
    table = shop.table("T", ["K INT64"], "K")
    with pytest.raises(SpannerError, match=r"1 \+ 1 of table T") as caught:
        NoExpressions().evaluate(
            "1 + 1",
            table=table,
            row={},
            result=ValueType("INT64"),
            dialect="GOOGLE_STANDARD_SQL",
            now_us=1,
        )
    assert caught.value.code is Code.UNIMPLEMENTED

from __future__ import annotations

import pytest

from spanner_simulator.core.rows.key_sets import KeySet
from spanner_simulator.errors import Code, SpannerError
from unit.core.rows.conftest import column, write


@pytest.fixture
def filled(shop):
    shop.table("T", ["K INT64", "A INT64", "S STRING"], "K")
    shop.follow()
    shop.commit(write("insert", "T", "K A S", ["1", "5", "abc"], ["2", "5", None]))
    return shop


def alter(shop, *columns: object) -> None:
    made = tuple(column(one) if isinstance(one, str) else one for one in columns)
    shop.alter("T", columns=made)


def refusal(shop) -> SpannerError:
    rows = dict(shop.store.tables)
    rules = shop.store.rules
    with pytest.raises(SpannerError) as caught:
        shop.follow()
    assert (shop.store.tables, shop.store.rules) == (rows, rules)
    return caught.value


def test_columns_come_and_go_in_all_versions(filled) -> None:
    before_us = filled.now_us
    filled.commit(write("update", "T", "K A", ["1", "6"]))
    alter(filled, "K INT64", "A INT64", "N STRING")
    assert filled.follow() == []
    table = filled.catalogue.table("T")
    everything = KeySet(everything=True)
    old = filled.store.read(table, everything, transaction=None, read_us=before_us)
    assert filled.rows("T") == [[1, 6, None], [2, 5, None]]
    assert [list(row.values()) for row in old] == [[1, 5, None], [2, 5, None]]


def test_a_dropped_column_does_not_come_back_with_its_values(filled) -> None:
    alter(filled, "K INT64", "A INT64")
    filled.follow()
    alter(filled, "K INT64", "A INT64", "S STRING")
    filled.follow()
    assert filled.rows("T") == [[1, 5, None], [2, 5, None]]


def test_a_default_is_asked_for_as_a_change_of_each_row(filled) -> None:
    added = column("D INT64 NOT NULL", default="9")
    alter(filled, "K INT64", "A INT64", "S STRING", added, column("G INT64", generated="D + 1"))
    fills = filled.follow()
    assert filled.rows("T") == [[1, 5, "abc", None, None], [2, 5, None, None, None]]
    assert [list(row.values()) for _, row in fills] == [[1, 5, "abc", 9, 10], [2, 5, None, 9, 10]]


def test_an_index_is_built_and_dropped(filled) -> None:
    filled.index("TA", "T", "A", storing=("S",))
    filled.follow()
    assert filled.rows("TA") == [[5, 1, "abc"], [5, 2, None]]

    filled.index("TA", "T", "A")
    filled.follow()
    assert filled.rows("TA") == [[5, 1], [5, 2]]

    del filled.catalogue.indexes["ta"]
    filled.follow()
    assert set(filled.store.tables) == {"t"}


def test_an_index_that_did_not_change_is_left_alone(filled) -> None:
    filled.index("TA", "T", "A")
    filled.follow()
    built = filled.store.tables["ta"]
    alter(filled, "K INT64", "A INT64")
    filled.follow()
    assert filled.store.tables["ta"] is built


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("S STRING NOT NULL", "null value for column: S in table: T referenced by key: [2]"),
        (
            "S STRING(2)",
            "Reducing the length of column S to 2 is not allowed because it has a value of length",
        ),
    ],
)
def test_rows_forbid_what_they_do_not_fulfil(filled, change: str, message: str) -> None:
    alter(filled, "K INT64", "A INT64", change)
    error = refusal(filled)
    assert error.code is Code.FAILED_PRECONDITION
    assert message in error.message

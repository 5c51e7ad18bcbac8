from __future__ import annotations

import pytest

from spanner_simulator.core.rows.secondary_indexes import hidden_index
from unit.core.rows.conftest import delete, write


@pytest.fixture
def table(shop):
    return shop.table("T", ["K INT64", "A INT64", "B STRING", "C INT64"], "K")


def test_the_hidden_table_has_the_indexs_key_then_the_rest_of_the_rows_key(shop, table) -> None:
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


def test_rows_with_null_may_be_left_out(shop, table) -> None:
    index = shop.index("I", "T", "A", is_null_filtered=True)
    hidden = hidden_index(index, table, "GOOGLE_STANDARD_SQL")

    assert hidden.entry({"K": 1, "A": None}) is None
    assert hidden.entry({"K": 1, "A": 0}) is not None


def test_entries_follow_their_rows(shop, table) -> None:
    shop.index("I", "T", "-A", storing=("C",))
    shop.follow()
    shop.commit(write("insert", "T", "K A C", ["1", "5", "0"], ["2", "7", "0"], ["3", None, "0"]))

    assert shop.rows("I") == [[7, 2, 0], [5, 1, 0], [None, 3, 0]]

    shop.apply(write("update", "T", "K A", ["1", "9"]), write("update", "T", "K C", ["2", "8"]))
    shop.apply(delete("T", ["3"]))

    assert shop.rows("I") == [[9, 1, 0], [7, 2, 8]]
    shop.commit()
    assert shop.rows("I") == [[9, 1, 0], [7, 2, 8]]

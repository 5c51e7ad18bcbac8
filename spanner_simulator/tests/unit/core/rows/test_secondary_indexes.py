from __future__ import annotations

import pytest

from spanner_simulator.core.rows.secondary_indexes import hidden_index


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

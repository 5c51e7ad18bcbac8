from __future__ import annotations

import pytest

from spanner_simulator.core.rows.mutations import COMMIT_TIMESTAMP, PENDING
from spanner_simulator.core.rows.storage import KeyRange
from spanner_simulator.core.rows.write_set import key_text
from spanner_simulator.errors import Code, SpannerError
from unit.core.rows.conftest import column, delete, write


@pytest.fixture
def filled(shop):
    shop.table("T", ["K INT64", "A INT64"], "K")
    stamp = column("C TIMESTAMP", commit_timestamp=True)
    shop.table("S", [stamp, "N INT64", column("D TIMESTAMP", commit_timestamp=True)], "C N")
    shop.index("SD", "S", "D")
    shop.follow()
    shop.commit(write("insert", "T", "K A", ["1", "10"], ["2", "20"]))
    return shop


def test_changes_keep_the_order_in_which_rows_were_first_touched(filled) -> None:
    filled.apply(write("update", "T", "K A", ["2", "1"]))
    filled.apply(write("insert", "S", "C N", ["1970-01-01T00:00:00Z", "1"]))
    filled.apply(write("update", "T", "K A", ["1", "1"]), write("update", "T", "K A", ["2", "2"]))
    assert filled.changes() == [("T", "UPDATE", [2]), ("S", "INSERT", [0, 1]), ("T", "UPDATE", [1])]


def test_a_statement_can_be_taken_back_and_leaves_nothing(filled) -> None:
    filled.apply(write("update", "T", "K A", ["1", "11"]))
    mark = filled.writes.mark()
    before = filled.rows("T"), filled.changes()
    filled.apply(delete("T", ["1"]), write("insert", "T", "K A", ["3", "3"]))
    filled.apply(write("replace", "T", "K A", ["2", "3"]))
    filled.writes.roll_back_to(mark)
    assert (filled.rows("T"), filled.changes()) == before


def test_what_was_inserted_and_deleted_is_not_stored(filled) -> None:
    filled.apply(write("insert", "T", "K A", ["3", "3"]))
    filled.apply(delete("T", ["3"]))
    assert list(filled.writes.final_rows()) == []
    assert filled.changes() == []


def test_the_commit_timestamp_reaches_values_keys_and_indexes(filled) -> None:
    filled.apply(write("insert", "S", "C N D", [COMMIT_TIMESTAMP, "1", COMMIT_TIMESTAMP]))
    assert filled.writes.pending_columns("s") == {"C", "D"}
    assert filled.writes.has_pending_key()
    assert filled.rows("S") == [[PENDING, 1, PENDING]]

    filled.writes.resolve(9)
    assert filled.rows("S") == [[9, 1, 9]]
    assert filled.rows("SD") == [[9, 9, 1]]
    assert filled.changes() == [("S", "INSERT", [9, 1])]
    assert filled.writes.pending_columns("s") == set()
    assert not filled.writes.has_pending_key()


def test_an_awaited_key_may_not_meet_another_one(filled) -> None:
    filled.apply(write("insert", "S", "C N", [COMMIT_TIMESTAMP, "1"]))
    filled.apply(write("insert", "S", "C N", ["1970-01-01T00:00:00.000000009Z", "1"]))
    with pytest.raises(SpannerError, match="already exists") as caught:
        filled.writes.resolve(9)
    assert caught.value.code is Code.ALREADY_EXISTS


def test_a_row_put_in_the_place_of_a_deleted_one_by_its_timestamp_is_delete_and_insert(
    filled,
) -> None:
    filled.commit(write("insert", "S", "C N", ["1970-01-01T00:00:00.000000009Z", "1"]))
    filled.apply(delete("S", ["1970-01-01T00:00:00.000000009Z", "1"]))
    filled.apply(write("insert", "S", "C N", [COMMIT_TIMESTAMP, "1"]))
    filled.writes.resolve(9)
    assert filled.changes() == [("S", "DELETE", [9, 1]), ("S", "INSERT", [9, 1])]


def test_keys_are_printed_as_the_service_does(shop) -> None:
    columns = ["A BOOL", "B TIMESTAMP", "C STRING", "D BYTES", "E TIMESTAMP"]
    table = shop.table("T", columns, "A B C D E")
    row = {"A": True, "B": 0, "C": "x", "D": None, "E": PENDING}
    assert key_text(table, row) == ("[true,1970-01-01T00:00:00Z,x,NULL,spanner.commit_timestamp()]")
    assert key_text(table, row, 1) == "[true]"


def test_only_timestamps_await_the_commit(shop) -> None:
    lookalike = str(PENDING)
    shop.table("L", ["K NUMERIC", column("C TIMESTAMP", commit_timestamp=True)], "K")
    shop.follow()
    shop.apply(write("insert", "L", "K C", [lookalike, COMMIT_TIMESTAMP]))
    table = shop.catalogue.table("L")
    assert shop.writes.pending_columns("l") == {"C"}
    assert not shop.writes.has_pending_key()
    ((_, row),) = shop.writes.scan("l", KeyRange(b"", None))
    assert key_text(table, row) == f"[{lookalike}]"
    shop.commit()
    assert shop.rows("L") == [[PENDING, shop.now_us * 1000]]


def test_an_index_entry_that_comes_back_as_it_was_is_not_stored_anew(shop) -> None:
    shop.table("T", ["K INT64", "A INT64"], "K")
    shop.index("TA", "T", "A")
    shop.follow()
    shop.commit(write("insert", "T", "K A", ["1", "10"]))
    for value in ("11", "10"):
        shop.apply(write("update", "T", "K A", ["1", value]))
    assert [name for name, _, _ in shop.writes.final_rows()] == ["t"]

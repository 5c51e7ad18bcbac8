from __future__ import annotations

from spanner_simulator.core.rows.storage import VERSION_RETENTION_US, KeyRange, TableRows
from spanner_simulator.core.rows.transactions import Transaction


def rows() -> dict[str, TableRows]:
    table = TableRows()
    table.write(b"a", {}, commit_us=1, commit_number=1)
    return {"t": table}


def test_has_read_any_looks_at_keys_and_ranges() -> None:
    transaction = Transaction(b"1", 1)
    transaction.note_key("t", b"a", commit_number=1)
    transaction.note_range("u", KeyRange(b"m", b"p"), commit_number=1)

    assert transaction.has_read_any({("t", b"a")})
    assert transaction.has_read_any({("u", b"n")})
    assert not transaction.has_read_any({("t", b"n"), ("u", b"p")})


def test_a_row_that_was_deleted_and_forgotten_is_a_conflict_still() -> None:
    tables = rows()
    by_key, by_range, later = (Transaction(b"%d" % number, 1) for number in range(3))
    by_key.note_key("t", b"a", commit_number=1)
    by_range.note_range("t", KeyRange(b"a", b"b"), commit_number=1)
    tables["t"].write(b"a", None, commit_us=2, commit_number=2)
    tables["t"].write(b"z", {}, commit_us=VERSION_RETENTION_US + 2, commit_number=3)
    later.note_key("t", b"a", commit_number=3)
    later.note_range("t", KeyRange(b"a", b"b"), commit_number=3)

    assert len(tables["t"]) == 1
    assert by_key.conflict(tables) == by_range.conflict(tables) == "t"
    assert later.conflict(tables) is None


def test_rows_may_come_in_any_order_of_their_commits() -> None:
    tables, transaction = {"t": TableRows()}, Transaction(b"1", 1)
    transaction.note_range("t", KeyRange(b"", None), commit_number=1)
    tables["t"].write(b"a", {}, commit_us=3, commit_number=2)
    tables["t"].write(b"b", {}, commit_us=3, commit_number=1)

    assert transaction.conflict(tables) == "t"

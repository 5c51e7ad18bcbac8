from __future__ import annotations

from spanner_simulator.core.rows.storage import VERSION_RETENTION_US, KeyRange, TableRows


def table() -> TableRows:
    rows = TableRows()
    rows.write(b"a", {"v": 1}, commit_us=10, commit_number=1)
    rows.write(b"b", {"v": 2}, commit_us=10, commit_number=1)
    rows.write(b"a", {"v": 3}, commit_us=20, commit_number=2)
    rows.write(b"b", None, commit_us=30, commit_number=3)
    return rows


def test_versions_that_nobody_may_read_any_more_go() -> None:
    rows = TableRows()
    for at in (10, 20, VERSION_RETENTION_US + 20):
        rows.write(b"a", {"v": at}, commit_us=at, commit_number=at)
    ((_, history),) = rows.histories(KeyRange(b"", None))

    assert [at for at, _ in history.versions] == [20, VERSION_RETENTION_US + 20]


def test_a_deleted_row_is_forgotten_when_nobody_may_read_it() -> None:
    rows = table()
    rows.write(b"c", {}, commit_us=VERSION_RETENTION_US + 29, commit_number=4)
    assert len(rows) == 3
    rows.write(b"c", None, commit_us=VERSION_RETENTION_US + 30, commit_number=5)

    assert [key for key, _ in rows.histories(KeyRange(b"", None))] == [b"a", b"c"]
    rows.write(b"b", {"v": 9}, commit_us=VERSION_RETENTION_US + 40, commit_number=6)
    assert rows.current(b"b") == {"v": 9}


def test_a_row_that_came_back_is_kept() -> None:
    rows = table()
    rows.write(b"b", {"v": 5}, commit_us=40, commit_number=4)
    rows.write(b"c", {}, commit_us=VERSION_RETENTION_US * 2, commit_number=5)

    assert rows.current(b"b") == {"v": 5}

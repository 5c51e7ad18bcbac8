from __future__ import annotations

from spanner_simulator.core.rows.storage import VERSION_RETENTION_US, KeyRange, TableRows


def table() -> TableRows:
    rows = TableRows()
    rows.write(b"a", {"v": 1}, commit_us=10, commit_number=1)
    rows.write(b"b", {"v": 2}, commit_us=10, commit_number=1)
    rows.write(b"a", {"v": 3}, commit_us=20, commit_number=2)
    rows.write(b"b", None, commit_us=30, commit_number=3)
    return rows


def test_the_last_commit_of_a_row_is_known_also_after_a_delete() -> None:
    assert [table().row_changed_at(key) for key in (b"a", b"b", b"c")] == [2, 3, 0]


def test_versions_that_nobody_may_read_any_more_go() -> None:
    rows = TableRows()
    for at in (10, 20, VERSION_RETENTION_US + 20):
        rows.write(b"a", {"v": at}, commit_us=at, commit_number=at)
    ((_, history),) = rows.histories(KeyRange(b"", None))

    assert [at for at, _ in history.versions] == [20, VERSION_RETENTION_US + 20]


def test_sampled_keys_are_spread_and_never_the_first() -> None:
    rows = TableRows()
    for number in range(100):
        rows.write(b"%03d" % number, {}, commit_us=1, commit_number=1)

    assert rows.sample_keys(3) == [b"025", b"050", b"075"]
    assert TableRows().sample_keys(3) == []


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


def test_rewriting_reaches_all_versions_and_leaves_deletions() -> None:
    rows = table()
    rows.rewrite(lambda row: {"w": row["v"]})

    assert rows.read(b"a", 10) == {"w": 1}
    assert rows.read(b"b", 10) == {"w": 2}
    assert rows.current(b"a") == {"w": 3}
    assert rows.current(b"b") is None

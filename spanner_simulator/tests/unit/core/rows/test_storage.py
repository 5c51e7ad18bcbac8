from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.rows import sorted_keys
from spanner_simulator.core.rows.sorted_keys import SortedKeys
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


KEYS = st.binary(max_size=2)


@given(st.lists(KEYS), KEYS, st.none() | KEYS)
def test_it_is_a_sorted_set(steps: list[bytes], low: bytes, high: bytes | None) -> None:
    """Adding and removing in any order, with blocks so small that they split and vanish."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorted_keys, "_BLOCK_MAX", 3)
        keys, model = SortedKeys(), set[bytes]()
        for key in steps:
            if key in model:
                keys.remove(key)
            else:
                keys.add(key)
            model ^= {key}
    expected = sorted(key for key in model if low <= key and (high is None or key < high))
    assert len(keys) == len(model)
    assert list(keys.between(low, high)) == expected
    assert list(keys.between(b"", None)) == sorted(model)
    assert [keys.nth(position) for position in range(len(model))] == sorted(model)


def test_growing_keys_leave_full_blocks() -> None:
    keys = SortedKeys()
    for number in range(10_000):
        keys.add(b"%06d" % number)
    assert [len(block) for block in keys._blocks[:-1]] == [2_000] * (len(keys._blocks) - 1)
    assert all(one < other for one, other in pairwise(keys.between(b"", None)))


def test_there_is_no_key_past_the_end() -> None:
    with pytest.raises(IndexError):
        SortedKeys().nth(0)

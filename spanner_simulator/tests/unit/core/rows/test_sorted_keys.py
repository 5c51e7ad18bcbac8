from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spanner_simulator.core.rows import sorted_keys
from spanner_simulator.core.rows.sorted_keys import SortedKeys

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

"""The heap gives the least number, as a plain dictionary would, and does not grow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidegate.lineage.keyed_heap import KeyedHeap

TOKENS = st.sampled_from("abcd")
STEPS = st.lists(st.tuples(TOKENS, st.none() | st.integers(0, 5)), max_size=300)


@given(STEPS)
def test_it_agrees_with_a_dictionary(steps):
    heap, expected = KeyedHeap(), {}
    for token, key in steps:
        if key is None:
            heap.discard(token)
            expected.pop(token, None)
        else:
            heap.set(token, key)
            expected[token] = key
        assert heap.keys == expected
        assert heap.first() == min(((k, t) for t, k in expected.items()), default=None)


@given(STEPS, st.integers(0, 5))
def test_it_gives_up_what_is_at_most_a_number(steps, key_max):
    heap = KeyedHeap()
    for token, key in steps:
        heap.set(token, key or 0)
    expected = sorted((key, token) for token, key in heap.keys.items() if key <= key_max)

    assert heap.pop_through(key_max) == [token for _, token in expected]
    assert all(key > key_max for key in heap.keys.values())


def test_a_token_that_changes_often_does_not_let_it_grow():
    heap = KeyedHeap()
    heap.set("slow", -1)
    for key in range(10_000):
        heap.set("fast", key)

    assert len(heap._heap) < 100
    assert heap.first() == (-1, "slow")

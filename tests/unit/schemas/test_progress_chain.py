"""A slot's chain of changes, applied to its snapshot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.schemas.errors import SchemaError
from tidegate.schemas.progress import (
    SlotChanges,
    SlotProgress,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
    TopicTotals,
)
from tidegate.schemas.progress_chain import SlotChain

TOTALS_OF_A = TopicTotals("t", 1, 1, 9, 7)
A = TokenSnapshot("a", 1_000, (), ("",), 5, (("tx", "00"),), (TOTALS_OF_A,), number=0)
B = TokenSnapshot("b", 1_000, ("a",), (), 0, number=1)
START = SlotProgress(3, 7, 20, 4, (TopicOffset("t", 0, 8), TopicOffset("t", 1, 3)), (A, B))
NEXT = SlotChanges(3, 8, 1, 21, 6, (), None, 2)


def chain(*changes):
    found = SlotChain(START, offset=40)
    for one in changes:
        found.add(one)
    return found


def test_changes_are_applied_to_what_they_name():
    assert chain().snapshot(3) == START
    assert (chain().offset, chain().position) == (40, 0)
    other = TopicTotals("u", 2, 2, 2, 2)
    heard = replace(B, parents_heard=("a",))
    new = TokenSnapshot("c", 2_000, (), ("",), 1, number=2)
    vector = (TopicOffset("t", 0, 9), TopicOffset("u", 0, 0))
    moves = (TokenMove(0, 50, (), (other,)),)
    found = chain(replace(NEXT, vector=vector, open=3, moved=moves, added=(heard, new)))
    snapshot = found.snapshot(3)
    assert snapshot.vector == (vector[0], TopicOffset("t", 1, 3), vector[1])
    assert (snapshot.revision, snapshot.minute, snapshot.includes) == (8, 21, 6)
    moved = replace(A, watermark_us=50, boundary=(), totals=(TOTALS_OF_A, other))
    assert snapshot.tokens == (moved, heard, new)
    assert found.watermarks() == {"a": 50, "b": 0, "c": 1}
    assert (found.position, found.entries) == (1, 3)


def test_a_number_is_free_again_once_its_token_has_finished():
    new = TokenSnapshot("c", 2_000, (), ("",), 1, number=0)
    changes = replace(NEXT, removed=(0,), added=(new,), moved=(TokenMove(1, 50),))
    found = chain()
    assert found.add(changes) == ["a", "c", "b"]
    assert [one.token for one in found.snapshot(3).tokens] == ["b", "c"]


def test_what_does_not_continue_the_chain_is_refused():
    moved = (TokenMove(5, 9),)
    wrong = ({"revision": 7}, {"revision": 9}, {"position": 2}, {"open": 3}, {"removed": (5,)})
    for changes in (*wrong, {"moved": moved}):
        with pytest.raises(SchemaError, match="slot=3"):
            chain(replace(NEXT, **changes))

"""A snapshot and the changes that follow it, put together."""

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

TOTALS = TopicTotals("t", 1, 1, 9, 7)
A = TokenSnapshot("a", 1_000, (), ("",), 5, (("tx", "00"),), (TOTALS,), number=0)
B = TokenSnapshot("b", 1_000, ("a",), (), 0, number=1)
START = SlotProgress(3, 7, 20, 4, (TopicOffset("t", 0, 8), TopicOffset("t", 1, 3)), (A, B))
NEXT = SlotChanges(3, 8, 1, 21, 6, (), None, 2)


def chain(*changes):
    found = SlotChain(START, offset=40)
    for one in changes:
        found.add(one)
    return found


def test_a_snapshot_is_what_it_was():
    assert chain().snapshot(3) == START
    assert (chain().offset, chain().position) == (40, 0)


def test_changes_are_applied_to_what_they_name():
    other = TopicTotals("u", 2, 2, 2, 2)
    heard = replace(B, parents_heard=("a",))
    new = TokenSnapshot("c", 2_000, (), ("",), 1, number=2)
    found = chain(
        replace(
            NEXT, vector=(TopicOffset("t", 0, 9), TopicOffset("u", 0, 0)), open=3,
            moved=(TokenMove(0, 50, (), (other,)),), added=(heard, new),
        )
    )  # fmt: skip

    snapshot = found.snapshot(3)
    assert snapshot.vector == (
        TopicOffset("t", 0, 9), TopicOffset("t", 1, 3), TopicOffset("u", 0, 0),
    )  # fmt: skip
    assert (snapshot.revision, snapshot.minute, snapshot.includes) == (8, 21, 6)
    moved = replace(A, watermark_us=50, boundary=(), totals=(TOTALS, other))
    assert snapshot.tokens == (moved, heard, new)
    assert found.watermarks() == {"a": 50, "b": 0, "c": 1}
    assert (found.position, found.entries) == (1, 3)


def test_what_changes_name_is_returned():
    start = chain()
    new = TokenSnapshot("c", 2_000, (), ("",), 1, number=2)
    changes = replace(NEXT, removed=(0,), added=(new,), moved=(TokenMove(1, 50),))

    assert start.add(changes) == ["a", "c", "b"]


def test_a_number_is_free_again_once_its_token_has_finished():
    new = TokenSnapshot("c", 2_000, (), ("",), 1, number=0)
    found = chain(replace(NEXT, removed=(0,), added=(new,)))

    assert [one.token for one in found.snapshot(3).tokens] == ["b", "c"]


@pytest.mark.parametrize(
    "changes",
    [
        replace(NEXT, revision=7),
        replace(NEXT, revision=9),
        replace(NEXT, position=2),
        replace(NEXT, open=3),
        replace(NEXT, removed=(5,)),
        replace(NEXT, moved=(TokenMove(5, 9),)),
    ],
)
def test_what_does_not_continue_the_chain_is_refused(changes):
    with pytest.raises(SchemaError, match="slot=3"):
        chain(changes)

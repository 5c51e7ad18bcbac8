"""The history names every stream partition of an epoch, whatever the order of slots."""

from __future__ import annotations

import itertools

import pytest

from tidegate.lineage.partition_history import PartitionHistory
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    StreamStarted,
    TopicTotals,
)

A, B = ChildPartition("a", (), 10), ChildPartition("b", (), 10)
C = ChildPartition("c", ("a", "b"), 20)
STARTED = StreamStarted("s", "GOOGLE_STANDARD_SQL", 10, None, "g", 4, "id", (), (A, B))
RECORDS = (
    STARTED,
    PartitionAnnounced(A, ""),
    PartitionFinished("a", (), 10, 20, (C,), (TopicTotals("t", 1, 5, 50, 0),)),
    PartitionAnnounced(C, "a"),
    PartitionFinished(
        "b", (), 10, 20, (C,), (TopicTotals("t", 1, 2, 20, 0), TopicTotals("u", 1, 1, 10, 0))
    ),
)


def folded(bodies, *, epoch="e"):
    history = PartitionHistory(epoch="e")
    for body in bodies:
        history.add(ProgressRecord(epoch, "w", body))
    return history


@pytest.mark.parametrize("order", itertools.permutations(range(len(RECORDS))))
def test_parents_starts_and_ends_are_known_in_any_order(order):
    history = folded(RECORDS[place] for place in order)

    found = {one.token: (one.parents, one.start_ns, one.end_ns) for one in history.known.values()}
    assert found == {"a": ((), 10, 20), "b": ((), 10, 20), "c": (("a", "b"), 20, None)}
    assert history.finished_changes == 8


def test_another_epoch_is_passed_over():
    assert not folded(RECORDS, epoch="other").known

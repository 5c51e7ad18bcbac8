"""The graph holds what is open, and the ancestors that were asked for."""

from __future__ import annotations

import pytest

from tidegate.lineage.fleet_status import PartitionCondition
from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.lineage.lineage_graph import lineage_graph
from tidegate.lineage.partition_history import PartitionHistory
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    TokenSnapshot,
)
from tidegate.schemas.topics import slot_of

SLOTS = 2
CHAIN = [("a", ()), ("b", ("a",)), ("c", ("b",)), ("x", ()), ("d", ("c", "x"))]


def graph(generations, *, open_tokens=("d",), **fields):
    """a, b, c one after the other, and d from c and x; all but d have finished."""
    history = PartitionHistory(epoch="e")
    for place, (name, parents) in enumerate(CHAIN):
        child = ChildPartition(name, parents, place * 1_000_000)
        history.add(ProgressRecord("e", "w", PartitionAnnounced(child, "")))
        if name != "d":
            end_ns = (place + 1) * 1_000_000
            body = PartitionFinished(name, parents, place * 1_000_000, end_ns, (), ())
            history.add(ProgressRecord("e", "w", body))
    view = FleetView(epoch="e", progress_topic="p", slots=SLOTS)
    for slot in range(SLOTS):
        tokens = tuple(
            TokenSnapshot(name, 4_000_000, ("c", "x"), ("c", "x"), 4_500, number=0, **fields)
            for name in open_tokens
            if slot_of(name, SLOTS) == slot
        )
        row = ProgressRow(
            slot, 0, ProgressRecord("e", "w", SlotProgress(slot, 1, 0, -1, (), tokens))
        )
        view.fold([row], reached=dict.fromkeys(range(SLOTS), 1))
    return lineage_graph(view, history, stream="s", generations=generations)


@pytest.mark.parametrize(
    ("generations", "names", "left_out"),
    [(0, "d", 4), (1, "cxd", 2), (2, "bcxd", 1), (3, "abcxd", 0), (9, "abcxd", 0)],
)
def test_as_many_generations_are_shown_as_asked_for(generations, names, left_out):
    found = graph(generations)
    assert "".join(one.token for one in found.partitions) == names
    assert found.left_out == left_out


def test_all_of_them_have_what_the_records_say():
    found = graph(None)
    (a, *_, d) = found.partitions
    assert (a.condition, a.start_us, a.end_us, a.watermark_us) == (
        PartitionCondition.FINISHED, 0, 1_000, None,
    )  # fmt: skip
    assert (d.condition, d.start_us, d.end_us, d.watermark_us) == (
        PartitionCondition.OPEN, 4_000, None, 4_500,
    )  # fmt: skip
    assert (d.parents, d.slot) == (("c", "x"), slot_of("d", SLOTS))


def test_a_stopped_one_says_so_and_one_without_a_heartbeat_waits():
    assert graph(0, stopped="damaged").partitions[0].condition is PartitionCondition.STOPPED
    (announced,) = graph(0, open_tokens=()).partitions
    assert (announced.condition, announced.watermark_us) == (PartitionCondition.WAITING, None)


def test_children_stand_below_each_parent_that_is_shown():
    children = graph(1).children()
    assert {name: [one.token for one in found] for name, found in children.items()} == {
        "": ["c", "x"],
        "c": ["d"],
        "x": ["d"],
    }

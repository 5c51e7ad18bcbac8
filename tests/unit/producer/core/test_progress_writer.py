"""Progress records go to the right slots, in chunks, each with the slot of its author."""

from dataclasses import replace

import pytest

from tidegate.producer.core.effects import PublishProgress
from tidegate.producer.core.parked_keys import ParkedKeys
from tidegate.producer.core.position import Position
from tidegate.producer.core.progress_writer import ProgressWriter
from tidegate.producer.core.stream_partition import Publication, StreamPartition
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    SlotProgress,
    TokenSnapshot,
    TopicTotals,
)
from tidegate.schemas.topics import slot_of

SLOTS = 16
WRITER = ProgressWriter("epoch", "w1", SLOTS, chunk_items_max=2)
PARENT = StreamPartition(ChildPartition("parent", ("older",), 1_000))
TOTALS = {name: TopicTotals(name, 1, 1, 10, 5) for name in ("p.b", "p.a")}


def publication(*tokens, finish=True):
    """Return a publication that finishes with these children, or does not finish."""
    children = tuple(ChildPartition(token, ("parent",), 9_000) for token in tokens)
    return Publication((), 0, Position(8), TOTALS, (9_000, children) if finish else None)


def test_a_record_carries_epoch_and_worker():
    snapshot = SlotProgress(3, 1, 0, -1, (), ())
    (effect,) = WRITER.record(snapshot, slot=3)

    assert effect == PublishProgress(3, None, effect.record)
    assert (effect.record.epoch, effect.record.worker) == ("epoch", "w1")
    assert effect.record.body == snapshot


def test_a_large_record_is_cut_into_chunks():
    tokens = tuple(TokenSnapshot(f"t{number}", 1, (), (), 5) for number in range(5))
    effects = WRITER.record(SlotProgress(3, 1, 0, -1, (), tokens), slot=3)

    assert [effect.record.body.chunk for effect in effects] == [0, 1, 2]
    assert sum((effect.record.body.tokens for effect in effects), ()) == tokens


def test_an_announcement_goes_to_the_childs_slot_for_the_parents_vector():
    child = ChildPartition("child", ("parent",), 9_000)
    (effect,) = WRITER.announcement(child, parent="parent", author_slot=7, version=2)

    assert (effect.slot, effect.author_slot) == (slot_of("child", SLOTS), 7)
    assert effect.record.body == PartitionAnnounced(child, "parent")


def test_a_finish_announces_every_child_before_its_marker():
    *announced, marker = WRITER.finish(PARENT, publication("x", "y"), slot=7, version=2)

    assert [effect.record.body.child.token for effect in announced] == ["x", "y"]
    assert all(effect.author_slot == 7 for effect in (*announced, marker))
    assert marker.slot == 7
    body = marker.record.body
    assert isinstance(body, PartitionFinished)
    assert (body.token, body.parents, body.start_ns, body.end_ns) == (
        "parent",
        ("older",),
        1_000,
        9_000,
    )
    assert [entry.topic for entry in body.totals] == ["p.a", "p.b"]


def test_a_finish_passes_the_parked_keys_on_and_counts_its_own_changes():
    parked = ParkedKeys(frozenset({7, -3, 5}), 9)
    *announced, marker = WRITER.finish(
        PARENT, replace(publication("x", "y"), parked=parked), slot=7, version=2
    )

    assert [effect.record.body.parked_keys for effect in announced] == [(-3, 5, 7)] * 2
    assert marker.record.body.parked == 9


@pytest.mark.parametrize("tokens", [(), ("x",)])
def test_without_a_finish_nothing_is_written(tokens):
    assert WRITER.finish(PARENT, publication(*tokens, finish=False), slot=7, version=2) == []

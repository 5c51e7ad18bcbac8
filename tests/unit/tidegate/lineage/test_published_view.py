"""Whether a stream partition has published what precedes its move-out: only what records prove."""

from __future__ import annotations

from itertools import count

import pytest

from tidegate.lineage.fleet_view import FleetView
from tidegate.lineage.frontier import ProgressRow
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    MOVE_OUTS,
    STARTS,
    ChildPartition,
    PartitionAnnounced,
    PartitionFinished,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.schemas.topics import slot_of

PROGRESS = "p-progress"
DIALECT = "GOOGLE_STANDARD_SQL"
MOVED_US = 30


def named(slot):
    """A token of a slot of two."""
    return next(name for n in count() if slot_of(name := f"t{n}", 2) == slot)


HERE, THERE = named(0), named(1)


def token(name, watermark_us, *boundary, stopped=None):
    entries = tuple((one, "a-1") for one in boundary)
    return TokenSnapshot(name, 0, (), ("",), watermark_us, boundary=entries, stopped=stopped)


class Fleet:
    """A view of two slots, and the next offset and revision of each."""

    def __init__(self):
        self.view = FleetView(epoch="e", progress_topic=PROGRESS, slots=2, with_moves=True)
        self.next = [0, 0]
        started = StreamStarted("s", DIALECT, 0, None, "g", 2, "id", topics=(), children=())
        self.add(0, started)

    def add(self, slot, body):
        offset = self.next[slot]
        self.next[slot] += 1
        row = ProgressRow(slot, offset, ProgressRecord("e", "w", body))
        self.view.fold([row], reached=dict(enumerate(self.next)))

    def beat(self, slot, *tokens, includes=-1):
        self.add(slot, SlotProgress(slot, self.next[slot] + 1, 0, includes, (), tokens))

    def finish(self, slot, name, *, end_us):
        self.add(slot, PartitionFinished(name, (), 0, end_us * 1000, (), ()))

    def has_published(self, name):
        return self.view.has_published(name, MOVED_US)


@pytest.fixture
def fleet():
    return Fleet()


@pytest.mark.parametrize(
    ("watermark_us", "boundary", "has_published"),
    [
        (MOVED_US - 2, (), False),
        (MOVED_US - 1, (), False),
        (MOVED_US - 1, ("a transaction", STARTS), False),
        (MOVED_US - 1, ("a transaction", MOVE_OUTS), True),
        (MOVED_US - 2, (MOVE_OUTS,), False),
        (MOVED_US, (), True),
    ],
)
def test_one_that_is_open_is_judged_by_its_own_position(
    fleet, watermark_us, boundary, has_published
):
    fleet.beat(0, token(HERE, watermark_us, *boundary))
    assert fleet.has_published(HERE) is has_published


def test_one_that_is_stopped_is_as_far_as_it_has_published(fleet):
    fleet.beat(0, token(HERE, MOVED_US - 5, stopped="refused"))
    fleet.beat(1, token(THERE, MOVED_US + 5))
    assert not fleet.has_published(HERE)


def test_a_marker_proves_it_even_before_its_slot_lets_it_go(fleet):
    fleet.beat(0, token(HERE, MOVED_US - 5))
    fleet.finish(0, HERE, end_us=MOVED_US + 5)
    assert fleet.has_published(HERE)
    fleet.beat(0)
    assert fleet.has_published(HERE)


def test_one_that_no_slot_holds_may_come_until_all_are_past_it(fleet):
    fleet.beat(0, token(HERE, MOVED_US - 2))
    fleet.beat(1)
    assert not fleet.has_published(THERE)
    fleet.beat(0, token(HERE, MOVED_US - 1))
    # Who has named it had to read on for that: it would be known.
    assert fleet.has_published(THERE)


def test_one_that_was_announced_and_is_not_read_yet_holds_it_up(fleet):
    fleet.beat(0, token(HERE, MOVED_US + 5))
    fleet.beat(1)
    child = ChildPartition(THERE, (HERE,), (MOVED_US - 5) * 1000)
    fleet.add(1, PartitionAnnounced(child, HERE))
    assert not fleet.has_published(THERE)


def test_a_finish_is_forgotten_where_the_watermark_proves_it(fleet):
    fleet.beat(1)
    fleet.finish(0, HERE, end_us=MOVED_US)
    fleet.beat(0, token("other", MOVED_US - 5))
    assert fleet.has_published(HERE)
    fleet.beat(0, token("other", MOVED_US))
    assert not fleet.view._published.has_marker(HERE)
    assert fleet.has_published(HERE)


def test_a_view_without_moves_does_not_answer():
    view = FleetView(epoch="e", progress_topic=PROGRESS, slots=2)
    with pytest.raises(InvariantViolation, match="not followed"):
        view.has_published(HERE, MOVED_US)

"""A slot's recovery and snapshots."""

from __future__ import annotations

import pytest

from tidegate.producer.core.slot import Slot, SlotPhase
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_codec import split

EPOCH = "e1"


def announced(token, parent="", parents=(), epoch=EPOCH):
    """Return an announcement in its envelope."""
    body = PartitionAnnounced(ChildPartition(token, parents, 1_000_000), parent)
    return ProgressRecord(epoch, "w", body)


def snapshot(revision, includes, *tokens, epoch=EPOCH, vector=()):
    """Return a snapshot in its envelope."""
    held = tuple(TokenSnapshot(token, 1_000_000, (), (), 5_000) for token in tokens)
    body = SlotProgress(0, revision, 7, includes, vector, held)
    return ProgressRecord(epoch, "w", body)


def recovered(*records, end_offset=None, epoch=EPOCH, first_offset=0):
    """Return a slot that has read these records and is owned."""
    slot = Slot(0, 1)
    end = first_offset + len(records) if end_offset is None else end_offset
    slot.begin_recovery(end_offset=end, from_beginning=first_offset == 0)
    for offset, record in enumerate(records, first_offset):
        slot.take_in(offset, record, epoch=None)
    slot.own(epoch)
    return slot


class TestRecovery:
    """The log is a snapshot and the announcements after its `includes`."""

    def test_announcements_the_snapshot_includes_are_not_taken_again(self):
        slot = recovered(announced("a"), announced("b"), snapshot(1, 0, "a"))

        assert set(slot.tokens) == {"a", "b"}
        assert slot.tokens["a"].published.watermark_us == 5_000
        assert slot.tokens["b"].published.watermark_us == 999

    def test_a_finished_token_does_not_come_back(self):
        slot = recovered(announced("a"), snapshot(1, 0, "a"), snapshot(2, 1))

        assert not slot.tokens

    def test_the_last_snapshot_gives_revision_and_vector(self):
        vector = (TopicOffset("t", 3, 41),)
        slot = recovered(snapshot(4, -1, "a"), snapshot(5, -1, "a", vector=vector))

        assert (slot.revision, slot.vector) == (5, {("t", 3): 41})

    def test_records_of_another_epoch_are_void(self):
        slot = recovered(
            announced("old", epoch="e0"), snapshot(9, 0, "old", epoch="e0"), announced("new")
        )

        assert set(slot.tokens) == {"new"}
        assert slot.revision == 0

    def test_a_set_of_chunks_counts_only_when_complete(self):
        first, second = split(snapshot(2, -1, "a", "b").body, items_max=1)
        slot = recovered(snapshot(1, -1, "z"), ProgressRecord(EPOCH, "w", first))
        assert set(slot.tokens) == {"z"}
        slot = recovered(
            snapshot(1, -1, "z"),
            ProgressRecord(EPOCH, "w", first),
            ProgressRecord(EPOCH, "w", second),
        )

        assert set(slot.tokens) == {"a", "b"}

    def test_it_is_not_owned_before_its_end(self):
        slot = Slot(0, 1)
        slot.begin_recovery(end_offset=3, from_beginning=True)
        slot.take_in(0, announced("a"), epoch=None)

        with pytest.raises(InvariantViolation):
            slot.own(EPOCH)

    def test_control_records_at_the_end_are_passed_by_position(self):
        slot = Slot(0, 1)
        slot.begin_recovery(end_offset=3, from_beginning=True)
        slot.take_in(0, announced("a"), epoch=None)
        assert not slot.has_caught_up
        slot.pass_to(3)

        assert slot.has_caught_up

    def test_what_was_read_before_the_recovery_began_does_not_count(self):
        slot = Slot(0, 1)
        slot.take_in(7, announced("early"), epoch=None)
        slot.pass_to(9)
        slot.begin_recovery(end_offset=1, from_beginning=True)

        assert not slot.has_caught_up
        assert slot.phase is SlotPhase.RECOVERING

    @pytest.mark.parametrize(("from_beginning", "lacks"), [(True, True), (False, False)])
    def test_only_a_slot_read_from_its_beginning_can_lack_the_stream_start(
        self, from_beginning, lacks
    ):
        slot = Slot(0, 1)
        slot.begin_recovery(end_offset=0, from_beginning=from_beginning)

        assert slot.lacks_stream_start is lacks


class TestSnapshots:
    """What is drafted becomes true by confirmation."""

    def test_a_draft_changes_nothing(self):
        slot = recovered(announced("a"))
        draft = slot.draft({}, (TopicOffset("t", 0, 5),), now_us=60_000_000)

        assert (draft.revision, draft.minute, draft.includes) == (1, 1, 0)
        assert (slot.revision, slot.vector) == (0, {})

    def test_a_vector_is_cumulative(self):
        slot = recovered(snapshot(1, -1, vector=(TopicOffset("t", 0, 5), TopicOffset("t", 1, 6))))
        draft = slot.draft({}, (TopicOffset("t", 0, 9),), now_us=0)

        assert draft.vector == (TopicOffset("t", 0, 9), TopicOffset("t", 1, 6))

    def test_a_vector_that_goes_back_is_a_bug(self):
        slot = recovered(snapshot(1, -1, vector=(TopicOffset("t", 0, 5),)))

        with pytest.raises(InvariantViolation):
            slot.draft({}, (TopicOffset("t", 0, 4),), now_us=0)

    def test_an_announcement_between_draft_and_confirmation_stays(self):
        slot = recovered(announced("a"))
        draft = slot.draft({}, (), now_us=0)
        slot.take_in(1, announced("b"), epoch=EPOCH)
        slot.confirm(draft, 2, {})

        assert set(slot.tokens) == {"a", "b"}
        assert slot.fence_offset(draft, 2) == 1

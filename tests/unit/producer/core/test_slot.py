"""A slot's recovery and snapshots."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegate.lineage.stop_reason import read_stop
from tidegate.producer.core.heartbeat import HeartbeatLimits
from tidegate.producer.core.lifecycle import SlotPhase
from tidegate.producer.core.parked_keys import ParkedKeys
from tidegate.producer.core.slot import Slot
from tidegate.producer.errors import ProgressLost, TopicsChangedError
from tidegate.schemas.errors import InvariantViolation, SchemaError
from tidegate.schemas.progress import (
    ChecksumKind,
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotChanges,
    SlotProgress,
    TokenMove,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_chunks import split

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
    slot.start_recovery(committed_offset=first_offset or None, end_offset=end)
    for offset, record in enumerate(records, first_offset):
        slot.add_record(offset, record, epoch=None)
    slot.own(epoch)
    return slot


class TestRecovery:
    """The log is a snapshot and the announcements after its `includes`."""

    def test_announcements_the_snapshot_includes_are_not_taken_again(self):
        slot = recovered(announced("a"), announced("b"), snapshot(1, 0, "a"))

        assert set(slot.tokens) == {"a", "b"}
        assert slot.tokens["a"].published.watermark_us == 5_000
        assert slot.tokens["b"].published.watermark_us == 999

    @pytest.mark.rule("spanner-merged-child")
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
        slot.start_recovery(committed_offset=None, end_offset=3)
        slot.add_record(0, announced("a"), epoch=None)

        with pytest.raises(InvariantViolation):
            slot.own(EPOCH)

    def test_control_records_at_the_end_are_passed_by_position(self):
        slot = Slot(0, 1)
        slot.start_recovery(committed_offset=None, end_offset=3)
        slot.add_record(0, announced("a"), epoch=None)
        assert not slot.has_caught_up
        slot.advance_to(3)

        assert slot.has_caught_up

    def test_what_was_read_before_the_recovery_began_does_not_count(self):
        slot = Slot(0, 1)
        slot.add_record(7, announced("early"), epoch=None)
        slot.advance_to(9)
        slot.start_recovery(committed_offset=None, end_offset=1)

        assert not slot.has_caught_up
        assert slot.phase is SlotPhase.RECOVERING

    @pytest.mark.parametrize(("committed_offset", "lacks"), [(None, True), (3, False)])
    def test_only_a_slot_read_from_its_beginning_can_lack_the_stream_start(
        self, committed_offset, lacks
    ):
        slot = Slot(0, 1)
        slot.start_recovery(committed_offset=committed_offset, end_offset=4)
        slot.advance_to(4)

        assert slot.lacks_stream_start is lacks


class TestLostRecords:
    """A slot that does not hold what it held is never read on as if it did."""

    def test_an_announcement_that_is_read_again_revives_no_finished_token(self):
        slot = recovered(announced("a"), snapshot(1, 0, "a"), snapshot(2, 1))
        with pytest.raises(ProgressLost, match=r"moved backwards \(slot=0, was=3, now=0\)"):
            slot.add_record(0, announced("a"), epoch=EPOCH)

        assert not slot.tokens
        assert slot.position == 3

    def test_an_end_that_falls_is_an_error(self):
        slot = recovered(snapshot(1, -1, "a"))

        with pytest.raises(ProgressLost, match="moved backwards"):
            slot.advance_to(0)

    @pytest.mark.parametrize("end", [0, 6, 7])
    def test_a_slot_that_ends_before_its_committed_offset_is_an_error(self, end):
        slot = Slot(0, 1)

        with pytest.raises(ProgressLost, match=f"committed=7, end={end}"):
            slot.start_recovery(committed_offset=7, end_offset=end)

    def test_what_lies_before_the_committed_offset_is_not_read(self):
        slot = Slot(0, 1)
        slot.start_recovery(committed_offset=7, end_offset=9)

        with pytest.raises(ProgressLost, match="was=7, now=0"):
            slot.add_record(0, announced("a"), epoch=None)

    def test_a_slot_without_the_snapshot_that_its_fence_names_is_not_owned(self):
        with pytest.raises(ProgressLost, match="holds no snapshot at or after"):
            recovered(announced("a"), first_offset=7)


def numbered(revision, includes, *tokens):
    held = tuple(
        TokenSnapshot(token, 1_000_000, (), (), 5_000, number=number)
        for number, token in enumerate(tokens)
    )
    return ProgressRecord(EPOCH, "w", SlotProgress(0, revision, 7, includes, (), held))


def changes(revision, position, *, includes, is_open, moved=(), removed=()):
    body = SlotChanges(0, revision, position, 8, includes, (), None, is_open)
    moves = tuple(TokenMove(number, 9_000) for number in moved)
    return ProgressRecord(EPOCH, "w", replace(body, moved=moves, removed=tuple(removed)))


class TestChains:
    """A snapshot is read together with the changes that follow it."""

    def test_changes_after_the_snapshot_are_applied(self):
        slot = recovered(
            numbered(1, -1, "a", "b"),
            changes(2, 1, includes=0, is_open=2, moved=[1]),
            changes(3, 2, includes=1, is_open=1, removed=[0]),
        )

        assert {t: p.published.watermark_us for t, p in slot.tokens.items()} == {"b": 9_000}
        assert (slot.revision, slot.minute, slot.chain_offset) == (3, 8, 0)

    def test_what_compaction_left_of_an_older_chain_is_passed_over(self):
        slot = recovered(
            changes(5, 4, includes=-1, is_open=7, removed=[3]),
            numbered(6, -1, "a"),
            changes(7, 1, includes=1, is_open=1, moved=[0]),
        )

        assert slot.tokens["a"].published.watermark_us == 9_000

    def test_a_slot_that_lacks_changes_is_not_owned(self):
        with pytest.raises(ProgressLost, match="lacks changes"):
            recovered(numbered(1, -1, "a"), changes(3, 2, includes=0, is_open=1, moved=[0]))

    def test_a_later_snapshot_makes_up_for_changes_that_are_missing(self):
        slot = recovered(
            numbered(1, -1, "a"), changes(3, 2, includes=0, is_open=1), numbered(4, 1, "b")
        )

        assert set(slot.tokens) == {"b"}

    def test_the_next_owner_begins_to_read_where_the_chain_began(self):
        slot = recovered(numbered(1, -1, "a"), changes(2, 1, includes=0, is_open=1))
        heartbeat = slot.draft({}, (), wall_us=0)
        assert isinstance(heartbeat.body, SlotChanges)
        assert heartbeat.body.position == 2
        assert slot.fence_offset(heartbeat, 9) == 0

    def test_tokens_of_version_1_get_numbers_and_keep_their_checksums(self):
        body = snapshot(1, -1, "a").body
        slot = recovered(ProgressRecord(EPOCH, "w", body, 1), announced("b"))
        written = slot.draft({}, (), wall_us=0).body

        assert isinstance(written, SlotProgress)
        assert {t.token: (t.number, t.checksums) for t in written.tokens} == {
            "a": (0, ChecksumKind.BLAKE2B_64),
            "b": (1, ChecksumKind.XXHASH_64),
        }

    def test_a_token_that_stopped_says_why_and_is_tried_again_by_the_next_owner(self):
        slot = recovered(numbered(1, -1, "a"))
        slot.tokens["a"].start_query(1)
        slot.tokens["a"].refuse_query(SchemaError("cannot be decoded"))
        slot.note_stop("a")
        heartbeat = slot.draft({}, (), wall_us=0)
        (added,) = heartbeat.body.added
        assert read_stop(added.stopped) == ("SchemaError", "cannot be decoded")

        next_owner = recovered(
            numbered(1, -1, "a"), ProgressRecord(EPOCH, "w", heartbeat.body), first_offset=0
        )
        assert next_owner.tokens["a"].stopped_by is None
        assert next_owner.needs_snapshot(next_owner.minute * 60_000_000)
        assert [one.stopped for one in next_owner.draft({}, (), wall_us=0).body.added] == [None]

    def test_a_stop_makes_a_heartbeat_due_until_it_is_said(self):
        slot = recovered(numbered(1, -1, "a"))
        wall_us = slot.minute * 60_000_000
        assert not slot.needs_snapshot(wall_us)
        before = slot.draft({}, (), wall_us=wall_us)
        slot.tokens["a"].start_query(1)
        slot.tokens["a"].refuse_query(SchemaError("cannot be decoded"))
        slot.note_stop("a")
        slot.confirm(before, 2, {})
        assert slot.needs_snapshot(wall_us)

        slot.confirm(slot.draft({}, (), wall_us=wall_us), 3, {})
        assert not slot.needs_snapshot(wall_us)

    def test_version_1_cannot_say_it(self):
        slot = Slot(0, 1, heartbeats=HeartbeatLimits(version=1))
        slot.start_recovery(committed_offset=None, end_offset=2)
        for offset, record in enumerate((announced("a"), snapshot(1, 0, "a"))):
            slot.add_record(offset, replace(record, version=1), epoch=None)
        slot.own(EPOCH)
        slot.note_stop("a")

        assert not slot.needs_snapshot(slot.minute * 60_000_000)


class TestParkedKeys:
    """A slot passes on what its stream partitions and their parents have parked."""

    def parked(self, parent, *keys, version=2):
        body = PartitionAnnounced(ChildPartition("a", ("p", "q"), 1_000_000), parent, keys)
        return ProgressRecord(EPOCH, "w", body, version)

    def test_a_child_holds_those_of_every_parent(self):
        slot = recovered(self.parked("p", 1, 2))
        slot.add_record(1, self.parked("q", 2, 3), epoch=EPOCH)

        (token,) = slot.draft({}, (), wall_us=0).body.tokens
        assert token.parked_keys == (1, 2, 3)
        assert token.parked == 0

    def test_a_restart_between_the_announcements_of_two_parents_loses_neither(self):
        first, second = self.parked("p", 1, 2), self.parked("q", 3)
        held = ProgressRecord(EPOCH, "w", recovered(first).draft({}, (), wall_us=0).body)
        slot = recovered(first, held, second)

        assert slot.tokens["a"].parked.keys == {1, 2, 3}
        assert slot.tokens["a"].published_parked.keys == {1, 2, 3}

    def test_the_next_owner_knows_what_was_parked_and_how_much(self):
        slot = recovered(numbered(1, -1, "a"))
        token = slot.tokens["a"].snapshot()
        held = SlotProgress(0, 2, 7, -1, (), (replace(token, parked_keys=(4, 9), parked=7),))

        next_owner = recovered(ProgressRecord(EPOCH, "w", held))
        assert next_owner.tokens["a"].parked == ParkedKeys(frozenset({4, 9}), 7)

    def test_a_slot_of_version_1_goes_over_to_one_that_can_hold_them(self):
        slot = Slot(0, 1, heartbeats=HeartbeatLimits(version=1))
        slot.start_recovery(committed_offset=None, end_offset=1)
        slot.add_record(0, announced("b"), epoch=None)
        slot.own(EPOCH)
        before = slot.draft({}, (), wall_us=0)
        slot.add_record(1, self.parked("p", 1), epoch=EPOCH)
        slot.confirm(before, 2, {})
        after = slot.draft({}, (), wall_us=0)

        assert (before.version, after.version) == (1, 2)
        assert isinstance(after.body, SlotProgress)
        assert {one.token: one.parked_keys for one in after.body.tokens} == {"a": (1,), "b": ()}


class TestSnapshots:
    """What is drafted becomes true by confirmation."""

    def test_a_draft_changes_nothing(self):
        slot = recovered(announced("a"))
        draft = slot.draft({}, (TopicOffset("t", 0, 5),), wall_us=60_000_000)

        assert (draft.body.revision, draft.body.minute, draft.body.includes) == (1, 1, 0)
        assert (slot.revision, slot.vector) == (0, {})

    def test_a_vector_is_cumulative(self):
        slot = recovered(snapshot(1, -1, vector=(TopicOffset("t", 0, 5), TopicOffset("t", 1, 6))))
        draft = slot.draft({}, (TopicOffset("t", 0, 9),), wall_us=60_000_000)

        assert draft.watermark.vector == (TopicOffset("t", 0, 9), TopicOffset("t", 1, 6))

    def test_an_offset_that_was_given_before_shows_a_topic_that_was_re_created(self):
        slot = recovered(snapshot(1, -1, vector=(TopicOffset("t", 3, 5),)))

        with pytest.raises(TopicsChangedError, match=r"topic t was re-created .* 3 was 5, it is 4"):
            slot.draft({}, (TopicOffset("t", 3, 4),), wall_us=0)

    def test_an_announcement_between_draft_and_confirmation_stays(self):
        slot = recovered(announced("a"))
        draft = slot.draft({}, (), wall_us=0)
        slot.add_record(1, announced("b"), epoch=EPOCH)
        slot.confirm(draft, 2, {})

        assert set(slot.tokens) == {"a", "b"}
        assert slot.fence_offset(draft, 2) == 1

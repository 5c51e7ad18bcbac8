"""A slot's recovery, snapshots and records, and the states of slots and stream partitions."""

import itertools
from dataclasses import replace

import pytest

from tidegate.lineage.errors import read_stop
from tidegate.producer.core.lifecycle import (
    PARTITION_TRANSITIONS,
    SLOT_TRANSITIONS,
    PartitionChange,
    PartitionState,
    SlotChange,
    SlotPhase,
    transition,
)
from tidegate.producer.core.progress_writer import HeartbeatLimits
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


def envelope(body, epoch=EPOCH, version=2):
    return ProgressRecord(epoch, "w", body, version)


def announced(token, parent="", parents=(), *, epoch=EPOCH, keys=(), version=2):
    body = PartitionAnnounced(ChildPartition(token, parents, 1_000_000), parent, keys)
    return envelope(body, epoch, version)


def snapshot(revision, includes, *tokens, epoch=EPOCH, vector=(), version=2, is_numbered=False):
    held = tuple(
        TokenSnapshot(token, 1_000_000, (), (), 5_000, number=number if is_numbered else -1)
        for number, token in enumerate(tokens)
    )
    return envelope(SlotProgress(0, revision, 7, includes, vector, held), epoch, version)


def numbered(revision, includes, *tokens):
    return snapshot(revision, includes, *tokens, is_numbered=True)


def changes(revision, position, *, includes, is_open, moved=(), removed=()):
    body = SlotChanges(0, revision, position, 8, includes, (), None, is_open)
    moves = tuple(TokenMove(number, 9_000) for number in moved)
    return ProgressRecord(EPOCH, "w", replace(body, moved=moves, removed=tuple(removed)))


def begun(end_offset, committed_offset=None, **options):
    slot = Slot(0, 1, **options)
    slot.start_recovery(committed_offset=committed_offset, end_offset=end_offset)
    return slot


def recovered(*records, first_offset=0, **options):
    slot = begun(first_offset + len(records), first_offset or None, **options)
    for offset, record in enumerate(records, first_offset):
        slot.add_record(offset, record, epoch=None)
    slot.own(EPOCH)
    return slot


def watermarks(slot):
    return {token: partition.published.watermark_us for token, partition in slot.tokens.items()}


class TestRecovery:
    @pytest.mark.rule("spanner-merged-child")
    def test_a_finished_token_does_not_come_back(self):
        assert not recovered(announced("a"), snapshot(1, 0, "a"), snapshot(2, 1)).tokens

    @pytest.mark.parametrize(
        ("records", "expected"),
        [
            ([announced("a"), announced("b"), snapshot(1, 0, "a")], {"a": 5_000, "b": 999}),
            (
                [announced("old", epoch="e0"), snapshot(9, 0, "old", epoch="e0"), announced("new")],
                {"new": 999},
            ),
            (
                [numbered(1, -1, "a", "b"), changes(2, 1, includes=0, is_open=2, moved=[1]),
                 changes(3, 2, includes=1, is_open=1, removed=[0])],
                {"b": 9_000},
            ),
            (
                [changes(5, 4, includes=-1, is_open=7, removed=[3]), numbered(6, -1, "a"),
                 changes(7, 1, includes=1, is_open=1, moved=[0])],
                {"a": 9_000},
            ),
            (
                [numbered(1, -1, "a"), changes(3, 2, includes=0, is_open=1), numbered(4, 1, "b")],
                {"b": 5_000},
            ),
        ],
        ids=[
            "announcements that the snapshot includes", "another epoch", "changes are applied",
            "the rest of an older chain", "a later snapshot makes up for missing changes",
        ],
    )  # fmt: skip
    def test_tokens_are_those_of_the_last_snapshot_and_what_follows_it(self, records, expected):
        assert watermarks(recovered(*records)) == expected

    def test_the_last_record_gives_revision_vector_and_minute(self):
        vector = (TopicOffset("t", 3, 41),)
        slot = recovered(snapshot(4, -1, "a"), snapshot(5, -1, "a", vector=vector))
        assert (slot.revision, slot.vector) == (5, {("t", 3): 41})
        slot = recovered(
            numbered(1, -1, "a"), changes(2, 1, includes=0, is_open=1), announced("b", epoch="e0")
        )
        assert (slot.revision, slot.minute, slot.chain_offset) == (2, 8, 0)

    def test_a_set_of_chunks_counts_only_when_complete(self):
        first, second = map(envelope, split(snapshot(2, -1, "a", "b").body, items_max=1))
        assert set(recovered(snapshot(1, -1, "z"), first).tokens) == {"z"}
        assert set(recovered(snapshot(1, -1, "z"), first, second).tokens) == {"a", "b"}

    def test_it_is_not_owned_before_its_end_which_control_records_may_follow(self):
        with pytest.raises(InvariantViolation):
            begun(3).own(EPOCH)
        slot = begun(3)
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

    def test_only_a_slot_read_from_its_beginning_can_lack_the_stream_start(self):
        for committed_offset, lacks in ((None, True), (3, False)):
            slot = begun(4, committed_offset)
            slot.advance_to(4)
            assert slot.lacks_stream_start is lacks


class TestLostRecords:
    @pytest.mark.parametrize(
        ("read", "text"),
        [
            (lambda: recovered(snapshot(1, -1, "a")).advance_to(0), "moved backwards"),
            (
                lambda: begun(9, 7).add_record(0, announced("a"), epoch=None),
                r"moved backwards .*was=7, now=0",
            ),
            (lambda: recovered(announced("a"), first_offset=7), "holds no snapshot at or after"),
            (
                lambda: recovered(
                    numbered(1, -1, "a"), changes(3, 2, includes=0, is_open=1, moved=[0])
                ),
                "lacks changes",
            ),
            *[(lambda end=end: begun(end, 7), f"committed=7, end={end}") for end in (0, 6, 7)],
        ],
    )
    def test_it_is_an_error(self, read, text):
        with pytest.raises(ProgressLost, match=text):
            read()


class TestSnapshots:
    def test_a_draft_changes_nothing_and_its_vector_is_cumulative(self):
        slot = recovered(snapshot(1, -1, vector=(TopicOffset("t", 0, 5), TopicOffset("t", 1, 6))))
        draft = slot.draft({}, (TopicOffset("t", 0, 9),), wall_us=60_000_000)
        assert (draft.body.revision, draft.body.minute, draft.body.includes) == (2, 1, 0)
        assert draft.watermark.vector == (TopicOffset("t", 0, 9), TopicOffset("t", 1, 6))
        assert (slot.revision, slot.vector) == (1, {("t", 0): 5, ("t", 1): 6})

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

    def test_the_next_owner_begins_to_read_where_the_chain_began(self):
        slot = recovered(numbered(1, -1, "a"), changes(2, 1, includes=0, is_open=1))
        heartbeat = slot.draft({}, (), wall_us=0)
        assert isinstance(heartbeat.body, SlotChanges)
        assert heartbeat.body.position == 2
        assert slot.fence_offset(heartbeat, 9) == 0

    def test_tokens_of_version_1_get_numbers_and_keep_their_checksums(self):
        slot = recovered(snapshot(1, -1, "a", version=1), announced("b"))
        written = slot.draft({}, (), wall_us=0).body
        assert isinstance(written, SlotProgress)
        assert {t.token: (t.number, t.checksums) for t in written.tokens} == {
            "a": (0, ChecksumKind.BLAKE2B_64),
            "b": (1, ChecksumKind.XXHASH_64),
        }


def stop(slot):
    slot.tokens["a"].start_query(1)
    slot.tokens["a"].refuse_query(SchemaError("cannot be decoded"))
    slot.note_stop("a")


class TestStopped:
    def test_a_token_that_stopped_says_why_and_is_tried_again_by_the_next_owner(self):
        slot = recovered(numbered(1, -1, "a"))
        stop(slot)
        heartbeat = slot.draft({}, (), wall_us=0)
        (added,) = heartbeat.body.added
        assert read_stop(added.stopped) == ("SchemaError", "cannot be decoded")
        heir = recovered(numbered(1, -1, "a"), envelope(heartbeat.body))
        assert heir.tokens["a"].stopped_by is None
        assert heir.needs_snapshot(heir.minute * 60_000_000)
        assert [one.stopped for one in heir.draft({}, (), wall_us=0).body.added] == [None]

    def test_a_stop_makes_a_heartbeat_due_until_it_is_said(self):
        slot = recovered(numbered(1, -1, "a"))
        wall_us = slot.minute * 60_000_000
        assert not slot.needs_snapshot(wall_us)
        before = slot.draft({}, (), wall_us=wall_us)
        stop(slot)
        slot.confirm(before, 2, {})
        assert slot.needs_snapshot(wall_us)
        slot.confirm(slot.draft({}, (), wall_us=wall_us), 3, {})
        assert not slot.needs_snapshot(wall_us)

    def test_version_1_cannot_say_it(self):
        records = announced("a", version=1), snapshot(1, 0, "a", version=1)
        slot = recovered(*records, heartbeats=HeartbeatLimits(version=1))
        slot.note_stop("a")
        assert not slot.needs_snapshot(slot.minute * 60_000_000)


class TestParkedKeys:
    FIRST = announced("a", "p", ("p", "q"), keys=(1, 2))
    SECOND = announced("a", "q", ("p", "q"), keys=(2, 3))

    def test_a_child_holds_those_of_every_parent(self):
        slot = recovered(self.FIRST)
        slot.add_record(1, self.SECOND, epoch=EPOCH)
        (token,) = slot.draft({}, (), wall_us=0).body.tokens
        assert (token.parked_keys, token.parked) == ((1, 2, 3), 0)

    def test_a_restart_between_the_announcements_of_two_parents_loses_neither(self):
        held = envelope(recovered(self.FIRST).draft({}, (), wall_us=0).body)
        slot = recovered(self.FIRST, held, self.SECOND)
        assert slot.tokens["a"].parked.keys == {1, 2, 3}
        assert slot.tokens["a"].published_parked.keys == {1, 2, 3}

    def test_a_slot_of_version_1_goes_over_to_one_that_can_hold_them(self):
        slot = recovered(announced("b"), heartbeats=HeartbeatLimits(version=1))
        before = slot.draft({}, (), wall_us=0)
        slot.add_record(1, announced("a", "p", ("p", "q"), keys=(1,)), epoch=EPOCH)
        slot.confirm(before, 2, {})
        after = slot.draft({}, (), wall_us=0)
        assert (before.version, after.version) == (1, 2)
        assert isinstance(after.body, SlotProgress)
        assert {token.token: token.parked_keys for token in after.body.tokens} == {
            "a": (1,),
            "b": (),
        }


@pytest.mark.parametrize(
    ("table", "states", "changes", "first"),
    [
        (SLOT_TRANSITIONS, SlotPhase, SlotChange, SlotPhase.ASSIGNED),
        (PARTITION_TRANSITIONS, PartitionState, PartitionChange, PartitionState.CREATED),
    ],
    ids=["slot", "stream partition"],
)
def test_the_table_of_states_is_complete_and_a_missing_pair_is_a_bug(table, states, changes, first):
    reached, ending = {first}, {states.GONE}
    for _ in states:
        reached |= {to for (state, _), to in table.items() if state in reached}
        ending |= {state for (state, _), to in table.items() if to in ending}
    assert reached == set(states)
    assert {change for _, change in table} == set(changes)
    # A stopped stream partition is dropped with its slot, in that state.
    assert set(states) - ending <= {PartitionState.STOPPED}
    assert not any(state is states.GONE for state, _ in table)
    missing = set(itertools.product(states, changes)) - table.keys()
    assert missing
    for state, change in missing:
        with pytest.raises(InvariantViolation, match=rf"{state.name}: .*slot=3"):
            transition(table, state, change, slot=3)

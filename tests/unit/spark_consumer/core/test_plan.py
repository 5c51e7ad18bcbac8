"""Plans, states and the sinks that they name: stored without loss, and refused by their fault."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.core_building import as_json
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.batch_state import (
    STATE_FORMAT,
    OutputProof,
    Segment,
    SegmentPart,
    State,
    TopicIds,
)
from tidegate.spark_consumer.core.cadence import Cadence, merges_due
from tidegate.spark_consumer.core.file_names import (
    frontier_file,
    number_in,
    plan_file,
    require_known,
    segment_file,
    segment_name,
    state_file,
)
from tidegate.spark_consumer.core.origin_ledger import Followed, OriginLedger
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    Compaction,
    CompactSegments,
    FreshRows,
    MergeMirror,
    Plan,
    ReleaseBounds,
    SetLateAside,
    StoreDeadLetters,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.sink_set import (
    begins_after,
    first_release,
    joining_mirrors,
    require_plan_sinks,
    require_sinks,
    sinks_now,
)
from tidegate.spark_consumer.core.sums import OriginSum, RowSum
from tidegate.spark_consumer.core.transition import check_plan, topics_of_merge
from tidegate.spark_consumer.errors import CheckpointMismatch, NewerCheckpoint

# ---------------------------------------------------------------- plans
PLANNED_SEGMENT = Segment("000000000004-000", 21, 30, 6, (25, 30))

JOINED = Segment("000000000004-joined", 15, 40, 9, (40,))

PLAN = Plan(
    format=PLAN_FORMAT,
    code="0.1.0",
    prefix="bank",
    query_id="q",
    batch=4,
    end_offsets={"bank-progress": {0: 9, 15: 3}},
    after_us=10,
    through_us=20,
    slowest="token",
    stream_has_ended=False,
    late_rows=1,
    releases=(ReleaseBounds(2, 10, 15, ("s",), cuts_us=(12,)), ReleaseBounds(3, 15, 20, ())),
    stored=(PLANNED_SEGMENT,),
    compaction=Compaction(("s", "t"), JOINED),
    topics=(TopicIds("bank.a", (1,), (2,)),),
    frontier="000000000004/1",
    dropped_frontiers=("frontiers/000000000003",),
    sinks=("changelog", "mirror"),
    fresh=FreshRows(3, RowSum(6, 2**63 + 1)),
)


def test_late_rows_first_then_releases_by_number_then_what_waits():
    assert PLAN.steps == (
        SetLateAside(10, 1),
        WriteRelease(PLAN.releases[0], ("changelog", "mirror")),
        WriteRelease(PLAN.releases[1], ("changelog", "mirror")),
        StoreSegment(PLANNED_SEGMENT),
        CompactSegments(PLAN.compaction, 20),
    )
    assert Plan.restore(as_json(PLAN.snapshot())) == PLAN
    first = replace(PLAN, dead_letters=3)
    assert first.steps == (StoreDeadLetters(3), *PLAN.steps)
    assert Plan.restore(as_json(first.snapshot())) == first
    # A replay takes the way that the plan names.
    small = replace(PLAN, releases=(replace(PLAN.releases[0], is_small=True), PLAN.releases[1]))
    assert Plan.restore(as_json(small.snapshot())) == small


@pytest.mark.parametrize("found", [2, 3])
def test_a_plan_of_an_older_program_is_executed_without_its_cuts_and_counts(found):
    stored = as_json(PLAN.snapshot()) | {"format": found}
    del stored["dropped_frontiers"]
    for bounds in stored["releases"]:
        del bounds["cuts_us"], bounds["is_small"]
    fresh = PLAN.fresh
    if found == 2:
        fresh = None
        del stored["fresh"]
        for segment in (*stored["stored"], stored["compaction"]["output"]):
            del segment["parts"], segment["size_bytes"]
    releases = tuple(replace(bounds, cuts_us=()) for bounds in PLAN.releases)
    before = ("frontiers/000000000003.json",)
    expected = replace(PLAN, fresh=fresh, releases=releases, dropped_frontiers=before)
    assert Plan.restore(as_json(stored)) == expected
    assert Plan.restore(as_json(stored | {"batch": 0})).dropped_frontiers == ()
    # One of format 6 knows no gaps.
    plan = replace(PLAN, gaps=(PartitionGap("t", 12, 14, "ops", 3),))
    stored = as_json(plan.snapshot())
    assert Plan.restore(stored) == plan
    del stored["gaps"]
    assert Plan.restore(stored | {"format": 6}) == PLAN


def test_a_plan_of_a_newer_program_or_a_much_older_one_is_refused():
    stored = PLAN.snapshot() | {"format": PLAN_FORMAT + 1, "code": "9.1.0"}
    del stored["sinks"]
    with pytest.raises(NewerCheckpoint, match=r"Install Tidegate 9\.1\.0") as caught:
        Plan.restore(stored)
    assert caught.value.fields == {"batch": 4, "found": PLAN_FORMAT + 1, "known": PLAN_FORMAT}
    with pytest.raises(CheckpointMismatch, match="found=1"):
        Plan.restore(stored | {"format": 1})


def test_cuts_that_do_not_ascend_inside_of_the_bounds_are_a_contradiction():
    first, second = PLAN.releases
    PLAN.check_invariants()
    for cuts_us in ((10,), (15,), (13, 12), (12, 12)):
        broken = replace(PLAN, releases=(replace(first, cuts_us=cuts_us), second))
        with pytest.raises(InvariantViolation, match="cuts are out of order"):
            broken.check_invariants()


BEFORE = State(
    prefix="bank",
    query_id="q",
    batch=3,
    watermark_us=10,
    next_release=2,
    segments=(Segment("s", 11, 14, 2, (14,)), Segment("t", 30, 40, 2, (40,))),
)


def test_any_other_is_refused():
    check_plan(PLAN, before=BEFORE)
    check_plan(replace(PLAN, mirror_at=0, merges=(3,)), before=replace(BEFORE, mirror_release=0))
    first = PLAN.releases[0]
    for changes, fault in (
        ({"batch": 5}, "does not continue where the batch"),
        ({"after_us": 9}, "does not continue where the batch"),
        ({"releases": PLAN.releases[1:]}, "release numbers have a gap"),
        ({"mirror_at": 0}, "where the mirror stands"),
        ({"merges": (4,)}, "where the mirror stands"),
        ({"releases": ()}, "no release is planned"),
        ({"releases": (replace(first, segments=()),)}, "may hold its changes"),
        ({"releases": (replace(first, segments=("s", "t")),)}, "may hold its changes"),
    ):
        with pytest.raises(InvariantViolation, match=fault):
            check_plan(replace(PLAN, **changes), before=BEFORE)


def test_older_releases_are_merged_with_the_schemas_that_they_were_written_with():
    then, now = (TopicIds("bank.t", (1,), (2,)),), (TopicIds("bank.t", (1,), (2, 3)),)
    before, plan = replace(BEFORE, topics=then), replace(PLAN, topics=now)
    assert topics_of_merge(MergeMirror(0, 1), plan, before) == then
    assert topics_of_merge(MergeMirror(0, 3), plan, before) == now
    adopted = replace(before, adopts_through_us=5)
    assert topics_of_merge(MergeMirror(0, 1), plan, adopted) == now


# ---------------------------------------------------------------- states
STATE = State(
    prefix="bank",
    query_id="q",
    batch=7,
    watermark_us=100,
    next_release=3,
    end_offsets={"bank.a": {0: 4, 11: 5}},
    frontier="000000000007/1",
    dropped_frontiers=("frontiers/000000000006",),
    segments=(
        Segment(
            "a", 90, 120, 5, (110, 120), (SegmentPart(110, 2, 2**64 - 1), SegmentPart(120, 3, 0))
        ),
        Segment("b", 130, 130, 1, (130,)),
    ),
    waiting_rows=None,
    code="0.2.0",
    dropped_segments=("c",),
    topics=(TopicIds("bank.a", (1,), (2, 9)),),
)


def test_a_state_that_contradicts_itself_is_refused():
    STATE.check_invariants()
    first = STATE.segments[0]
    bounds = ({"min_us": 121}, {"max_us": 121}, {"min_us": 111})
    for change in (
        {"watermark_us": 120},
        {"segments": (first, first)},
        *({"segments": (replace(first, **one),)} for one in bounds),
        {"dropped_segments": ("a",)},
        {"topics": (TopicIds("bank.a", (1,), (9, 2)),)},
    ):
        with pytest.raises(InvariantViolation):
            replace(STATE, **change).check_invariants()


def test_a_state_of_the_program_before_continues_uncounted():
    """It has no format number, and segments without counts."""

    def restored(state):
        stored = as_json(state.snapshot())
        for name in ("format", "code", "waiting_rows", "dropped_frontiers"):
            del stored[name]
        for segment in stored["segments"]:
            del segment["parts"]
        return State.restore(stored)

    segments = tuple(replace(one, parts=()) for one in STATE.segments)
    before = ("frontiers/000000000006.json",)
    expected = {"segments": segments, "waiting_rows": None, "code": "", "dropped_frontiers": before}
    assert restored(STATE) == replace(STATE, **expected)
    # Where nothing waited nothing is unknown.
    assert restored(replace(STATE, segments=())).waiting_rows == 0


LEDGER = OriginLedger(4, {"t": Followed(10)}, {(-5, "bank.a"): OriginSum(1, 2, 3)})


@pytest.mark.parametrize(
    ("changes", "found", "gone", "expected"),
    [
        ({}, STATE_FORMAT, (), {}),
        ({"mismatches": 3}, 4, ("mismatches",), {}),
        ({"origins": LEDGER}, 5, ("origins", "origins_file"), {"origins": OriginLedger(100)}),
        ({"gaps": (PartitionGap("t", 2, 4, "ops", 3),)}, 6, ("gaps",), {}),
        ({"begins": {"topic": 3}}, 7, ("begins",), {}),
        ({"copies": 3, "dead_letters": 3}, STATE_FORMAT, ("copies", "dead_letters"), {}),
    ],
    ids=str,
)
def test_storing_a_state_loses_nothing_and_older_formats_lack_what_came_later(
    changes, found, gone, expected
):
    state = replace(STATE, **changes)
    stored = as_json(state.snapshot())
    assert State.restore(stored) == state
    for name in gone:
        del stored[name]
    assert State.restore(stored | {"format": found}) == replace(STATE, **expected)
    assert not {"copies", "dead_letters"} & STATE.snapshot().keys()


def test_what_is_followed_is_in_the_state_or_in_the_file_that_it_names():
    named = replace(STATE, origins=LEDGER, origins_file="lists/000000000007/1-000.json")
    stored = as_json(named.snapshot())
    assert stored["origins"] is None
    assert State.restore(stored, {named.origins_file: LEDGER.snapshot()}.get) == named
    assert named.list_folders == {"lists/000000000007"}
    with pytest.raises(CheckpointMismatch, match="not stored"):
        State.restore(stored)
    proof = OutputProof("q", 3, 50, ("changelog",))
    adopted = State.adopted(prefix="bank", query_id="q", proof=proof, code="")
    assert adopted.origins == OriginLedger(50)


def test_a_state_of_a_newer_program_names_the_version_to_install():
    stored = STATE.snapshot() | {"format": STATE_FORMAT + 1, "code": "9.1.0", "something": "new"}
    with pytest.raises(NewerCheckpoint, match=r"Install Tidegate 9\.1\.0 or newer"):
        State.restore(stored)
    known = [require_known("state", data, newest=3) for data in ({}, {"format": 2}, {"format": 3})]
    assert known == [1, 2, 3]
    data = {"format": 4, "code": "1.5.0", "batch": 7}
    with pytest.raises(NewerCheckpoint, match=r"this plan .*batch=7, found=4, known=3.*1\.5\.0"):
        require_known("plan", data, newest=3)
    with pytest.raises(CheckpointMismatch, match="that wrote it"):
        require_known("plan", {"format": 4}, newest=3)


def test_a_segment_is_counted_in_at_most_sixteen_parts_that_end_with_it():
    cuts = Segment("a", 0, 900, 64, tuple(range(100, 164))).cuts_us
    assert (len(cuts), cuts[-1]) == (16, 900)
    assert cuts == tuple(sorted(set(cuts)))
    assert Segment("a", 5, 5, 9, (5, 5, 5)).cuts_us == (5,)
    assert Segment("a", 5, 9, 9, (5, 6, 7, 9)).cuts_us == (5, 6, 7, 9)
    written = Segment("a", 5, 9, 9, (5, 9)).written([RowSum(1, 2), RowSum(3, 4)])
    assert written.parts == (SegmentPart(5, 1, 2), SegmentPart(9, 3, 4))


def test_names_of_files_give_their_numbers_and_have_folders_of_their_own():
    for batch in (0, 9, 10, 123_456):
        for name_of in (plan_file, state_file):
            assert number_in(name_of(batch).rpartition("/")[2]) == batch
    names = {plan_file(1), state_file(1), frontier_file("1"), segment_file("1")}
    assert len({name.partition("/")[0] for name in names}) == 4
    # What all runs have written for a segment is in one folder.
    names = {segment_name("000000000004-000", writer=writer) for writer in (1, 2)}
    assert len(names) == 2
    assert {segment_file(name) for name in names} == {"segments/000000000004-000"}
    assert segment_file("000000000004-000") == "segments/000000000004-000"


# ---------------------------------------------------------------- sinks
BOTH = ("changelog", "mirror")


def state(sinks=BOTH, *, releases=3, **more):
    return State(prefix="bank", query_id="q", sinks=sinks, next_release=releases, **more)


def test_a_query_goes_on_with_its_sinks_and_others_beside_them():
    for wanted in (BOTH, ("mirror", "changelog"), (*BOTH, "topic", "history")):
        require_sinks(state(), wanted)
    with pytest.raises(CheckpointMismatch, match="lacks some") as caught:
        require_sinks(state(), ("changelog", "topic"))
    assert caught.value.fields["missing"] == ["mirror"]
    ended = state(stream_has_ended=True)
    require_sinks(ended, BOTH)
    with pytest.raises(CheckpointMismatch, match="has ended"):
        require_sinks(ended, (*BOTH, "topic"))


def test_a_mirror_joins_only_beside_a_changelog_that_has_everything():
    require_sinks(state(("changelog",)), BOTH)
    late = state(("topic", "changelog"), begins={"changelog": 2})
    for before, wanted in (
        (state(("topic",)), ("topic", "mirror")),
        (state(("topic",)), ("topic", *BOTH)),
        (late, ("topic", *BOTH)),
    ):
        with pytest.raises(CheckpointMismatch, match="every release"):
            require_sinks(before, wanted)
    assert joining_mirrors(state(), (*BOTH, "history", "topic")) == ("history",)
    assert joining_mirrors(state(), BOTH) == ()
    # Before the first release any sinks may come.
    nothing = state(("topic",), releases=0)
    require_sinks(nothing, ("topic", *BOTH))
    assert joining_mirrors(nothing, ("topic", *BOTH)) == ()
    # A mirror waits until an adopted output was read again.
    wanted = (*BOTH, "history", "topic")
    assert sinks_now(state(adopts_through_us=5), wanted) == (*BOTH, "topic")
    assert sinks_now(state(), wanted) == wanted


@pytest.mark.rule("sink-mirror-by-key")
@pytest.mark.parametrize("before", [state(BOTH, releases=0, batch=0), state(BOTH)])
def test_a_mirror_by_key_takes_part_from_the_first_batch_or_not_at_all(before):
    with pytest.raises(CheckpointMismatch, match="lack the changes of earlier batches") as caught:
        require_sinks(before, (*BOTH, "mirror_by_key"))
    assert "mirror, which takes every release so far" in caught.value.hint
    require_sinks(before, (*BOTH, "changelog_by_key", "parquet_by_key"))
    require_sinks(replace(before, sinks=(*BOTH, "mirror_by_key")), (*BOTH, "mirror_by_key"))
    require_sinks(State("bank", "q"), (*BOTH, "mirror_by_key"))


def test_a_stored_plan_needs_all_of_its_sinks_and_all_of_the_states():
    plan = replace(PLAN, sinks=(*BOTH, "topic"))
    require_plan_sinks(state(), plan, (*BOTH, "topic", "parquet"))
    for before, sinks in ((state(), BOTH), (state((*BOTH, "parquet")), (*plan.sinks, "parquet"))):
        with pytest.raises(CheckpointMismatch, match="names other sinks"):
            require_plan_sinks(before, plan, sinks)
    # One that was stored without the mirror by key is not executed with it.
    plan, first = replace(PLAN, sinks=BOTH), State("bank", "q")
    require_plan_sinks(first, plan, (*BOTH, "changelog_by_key"))
    with pytest.raises(CheckpointMismatch, match="lack the changes of earlier batches"):
        require_plan_sinks(first, plan, (*BOTH, "mirror_by_key"))


def test_a_state_says_from_which_release_on_a_sink_has_them():
    plan = replace(PLAN, sinks=(*BOTH, "history", "topic"))
    assert begins_after(state(), plan) == {"topic": 3}
    assert begins_after(state(begins={"parquet": 1}), plan) == {"parquet": 1, "topic": 3}
    assert begins_after(state(releases=0), plan) == {}


@pytest.mark.parametrize(
    ("before", "stored", "first"),
    [
        (None, None, 0),
        (state(releases=0), None, 0),
        (state(("topic",)), None, 0),
        (state(("topic",), begins={"topic": 2}), None, 2),
        (state(("topic",), begins={"topic": 2}), ("topic",), 2),
        (state(), None, None),
        (state(), (*BOTH, "topic"), None),
        (None, ("topic",), 0),
        (state((), releases=0), (*BOTH, "topic"), 0),
        *((one, BOTH, None) for one in (None, state((), releases=0), state(releases=0, batch=0))),
    ],
)
def test_a_sink_has_every_release_or_those_from_the_one_on_with_which_it_joined(
    before, stored, first
):
    plan = None if stored is None else replace(PLAN, sinks=stored)
    assert first_release("topic", before, plan) == first


# ---------------------------------------------------------------- when the mirror takes releases


def due(stands_at, newest, releases=(), **changes):
    facts = {
        "has_new_schemas": False, "is_every_release_due": False, "is_due": False, "is_end": False,
    }  # fmt: skip
    return merges_due(stands_at=stands_at, newest=newest, releases=releases, **(facts | changes))


@pytest.mark.parametrize(
    ("stands_at", "facts", "merges"),
    [
        # A mirror that is behind takes all at once up to a change of schemas.
        (4, {}, ()),
        (4, {"is_due": True}, (8,)),
        (4, {"is_end": True}, (8,)),
        (4, {"has_new_schemas": True}, (6,)),
        (4, {"has_new_schemas": True, "is_due": True}, (6,)),
        (4, {"has_new_schemas": True, "is_end": True}, (6, 8)),
        (4, {"is_every_release_due": True}, (6, 7, 8)),
        # One that has all before takes the batch's releases.
        (6, {}, ()),
        (6, {"is_due": True}, (8,)),
        (6, {"has_new_schemas": True}, ()),
        (6, {"has_new_schemas": True, "is_due": True}, (8,)),
        (6, {"is_every_release_due": True}, (7, 8)),
        # One that joins does so at the newest release before the batch.
        *(
            (stands_at, {"is_joining": True, **facts}, merges)
            for stands_at in (4, 6)
            for facts, merges in (
                ({}, (6,)),
                ({"is_due": True}, (6,)),
                ({"has_new_schemas": True}, (6,)),
                ({"is_end": True}, (6, 8)),
                ({"is_every_release_due": True}, (6, 7, 8)),
            )
        ),
    ],
    ids=str,
)
def test_a_mirror_takes_the_releases_that_are_due(stands_at, facts, merges):
    assert due(stands_at, 6, (7, 8), **facts) == merges


def test_without_a_release_a_mirror_catches_up_and_the_first_one_is_merged_by_itself():
    for facts in ({"is_due": True}, {"is_end": True}):
        assert due(4, 6, **facts) == (6,)
        assert due(6, 6, **facts) == ()
    assert due(6, 6, is_joining=True) == (6,)
    assert due(-1, -1, (0, 1), is_due=True) == due(-1, -1, (0,), is_end=True) == (0,)
    assert due(-1, -1, (0, 1), is_end=True) == (0, 1)
    assert due(-1, -1) == ()


def test_it_is_due_after_its_time_and_when_the_clock_was_set_back():
    cadence = Cadence(every_us=10)
    for at_us, now_us, is_due in (
        (None, 5, True),
        (100, 109, False),
        (100, 110, True),
        (100, 99, True),
    ):
        assert cadence.is_due(merged_at_us=at_us, now_us=now_us) is is_due
    assert not cadence.is_at_end(10**18)  # a run without a goal has no end
    assert [Cadence(10, goal_us=7).is_at_end(us) for us in (6, 7)] == [False, True]


FIRST, SECOND = PLAN.releases

OTHERS, ALL = ("changelog",), ("changelog", "mirror")
APART = [WriteRelease(FIRST, OTHERS, 1), WriteRelease(SECOND, OTHERS, 1)]
TOGETHER = [WriteRelease(FIRST, ALL), WriteRelease(SECOND, ALL)]


@pytest.mark.parametrize(
    ("mirror_at", "merges", "joining", "steps"),
    [
        (1, (2, 3), (), TOGETHER),
        (1, (), (), APART),
        (1, (2,), (), [TOGETHER[0], WriteRelease(SECOND, OTHERS, 2)]),
        (1, (3,), (), [*APART, MergeMirror(1, 3)]),
        (
            0,
            (2,),
            (),
            [WriteRelease(FIRST, OTHERS, 0), MergeMirror(0, 2), WriteRelease(SECOND, OTHERS, 2)],
        ),
        (0, (1,), (), [MergeMirror(0, 1), *APART]),
        (0, (1, 2, 3), (), [MergeMirror(0, 1), *TOGETHER]),
        # A mirror joins with the first of the merges.
        (1, (1, 3), ("mirror",), [MergeMirror(1, 1, ("mirror",)), *APART, MergeMirror(1, 3)]),
    ],
)
def test_a_release_is_merged_as_it_is_written_where_the_mirror_has_all_before(
    mirror_at, merges, joining, steps
):
    plan = replace(PLAN, mirror_at=mirror_at, merges=merges, joining=joining, decided_at_us=5)
    plan.check_invariants()
    found = [step for step in plan.steps if isinstance(step, WriteRelease | MergeMirror)]
    assert found == steps
    assert Plan.restore(as_json(plan.snapshot())) == plan


def test_merges_that_do_not_ascend_are_a_contradiction():
    for changes in (
        {"mirror_at": 2, "merges": (2,)},
        {"mirror_at": 1, "merges": (3, 2)},
        {"mirror_at": None, "merges": (2,)},
        {"joining": ("mirror",)},  # no mirror joins without a merge
    ):
        with pytest.raises(InvariantViolation, match="out of order"):
            replace(PLAN, **changes).check_invariants()
    plan = replace(PLAN, releases=(), mirror_at=0, merges=(1,), through_us=PLAN.after_us)
    assert MergeMirror(0, 1) in plan.steps  # a batch without releases merges what is left


def test_plans_and_states_of_an_older_program_have_every_release_in_the_mirror():
    stored = PLAN.snapshot() | {"format": 4}
    for name in ("mirror_at", "merges", "decided_at_us", "joining"):
        del stored[name]
    assert Plan.restore(as_json(stored)).steps == PLAN.steps
    assert PLAN.merged == (2, 3)
    stored = State(prefix="bank", query_id="q", next_release=7).snapshot() | {"format": 3}
    for name in ("mirror_release", "mirror_merged_at_us"):
        del stored[name]
    assert State.restore(stored).mirrored == 6

"""A batch: its effects in their order, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.core_building import (
    DATA,
    DUE,
    DUE_ROWS,
    IDS,
    NO_FRONTIER,
    NO_PLAN,
    PROGRESS,
    STORED,
    beat,
    begin,
    decided,
    ends,
    opening,
    read,
    replayed,
    restored,
    row,
)
from tidegate.lineage.errors import MixedEpochs, ProtocolError
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    DataTopic,
    PartitionGap,
    TableAdded,
)
from tidegate.spark_consumer.core.batch_effects import (
    CountChanges,
    CountRelease,
    DeleteFiles,
    DescribeTopics,
    HandOver,
    InspectSegments,
    LoadFrontier,
    LoadPlan,
    LoadState,
    ReadMoreProgress,
    ReadProgress,
    StoreFrontier,
    StorePlan,
    StoreSchemas,
    StoreState,
    hand_over,
    require_handed,
)
from tidegate.spark_consumer.core.file_names import (
    segment_file,
)
from tidegate.spark_consumer.core.plan import (
    PLAN_FORMAT,
    FreshRows,
    Plan,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import BatchStats, Distribution
from tidegate.spark_consumer.core.sums import NO_ROWS, Conflict, ReleaseCount, RowSum
from tidegate.spark_consumer.core.transition import after
from tidegate.spark_consumer.errors import (
    ChangesNotConserved,
    CheckpointMismatch,
    ConflictingCopies,
    DataTopicChanged,
    SegmentDamaged,
    UnorderedChange,
)

BOTH = ReleaseCount(rows=2, copies=2)
"""Both changes of `DUE` are found for the release."""


def first_batch():
    """The first batch's run, its tail of effects, and its frontier's log."""
    run, tail = decided()
    return run, [*tail, *run.handle(BOTH)], restored(tail)


def later(*events, batch=1, end_offsets=None, **options):
    """A second batch after the first one, with these events after its state; its last effects."""
    first, _, frontier = first_batch()
    first.handle(STORED)
    run = begin(batch, **options)
    begun = (end_offsets or ends(3, 2), first.state, NO_PLAN)
    return run, run.handle(*begun, frontier, *events)


def kinds(effects):
    return [type(effect) for effect in effects]


def test_the_first_batch_has_no_state_and_no_frontier_to_load():
    run = begin()
    assert run.handle(ends(3, 2)) == [LoadPlan(0)]
    assert run.handle(NO_PLAN) == [ReadProgress(3, 2)]
    # Progress is read in portions to its end.
    for rows in (DUE_ROWS[:1], DUE_ROWS[1:]):
        assert run.handle(rows) == [ReadMoreProgress()]
    assert run.handle(None) == [CountChanges(-1, 20, 2)]
    assert run.plan is None
    schemas, frontier, plan, counted = effects = run.handle(DUE)
    assert kinds(effects) == [StoreSchemas, StoreFrontier, StorePlan, CountRelease]
    release, state = tail = run.handle(BOTH)
    assert kinds(tail) == [WriteRelease, StoreState]
    assert (counted.bounds, counted.reads) == (release.bounds, ())
    assert schemas.topics == IDS
    assert frontier.name == plan.plan.frontier == state.state.frontier
    assert frontier.log.frontier.watermark().us == 20
    assert restored(effects).frontier.watermark().us == 20
    assert run.plan is plan.plan
    assert (release.bounds.after_us, release.bounds.through_us) == (-1, 20)
    assert release.sinks == plan.plan.sinks == state.state.sinks == ("changelog", "mirror")
    assert run.state is None
    assert run.handle(STORED) == []
    assert run.state == state.state


def test_a_later_batch_loads_its_state_deletes_loads_its_plan_then_its_frontier():
    first, _, frontier = first_batch()
    first.handle(STORED)
    state = replace(first.state, dropped_segments=("gone",))
    run = begin(1)
    assert run.handle(ends(5, 2)) == [LoadState(0)]
    assert run.handle(state) == [DeleteFiles((segment_file("gone"),)), LoadPlan(1)]
    assert run.handle(NO_PLAN) == [LoadFrontier(state.frontier)]
    assert run.handle(frontier) == [ReadProgress(2, 0)]
    # No data topic has moved: there is nothing to count, and nothing is released.
    tail = run.handle(*read((beat(3, watermark_us=30), beat(4, watermark_us=40))))
    assert kinds(tail) == [StoreSchemas, StoreFrontier, StorePlan, StoreState]
    assert tail[-1].state.watermark_us == 40


def test_a_batch_asks_for_nothing_that_has_not_moved():
    _, effects = later(end_offsets=ends(3, 9))
    assert effects == [CountChanges(20, 20, 7)]  # data alone: no progress is read
    run, effects = later()
    assert kinds(effects) == [StoreSchemas, StoreFrontier, StorePlan, StoreState]
    run.handle(STORED)
    assert (run.state.batch, run.state.watermark_us) == (1, 20)
    # Without any topic there are no schemas to store.
    effects = begin().handle({}, NO_PLAN)
    assert kinds(effects) == [StoreFrontier, StorePlan, StoreState]


# ---------------------------------------------------------------- topics are compared

RECORDED = (*opening(DataTopic(DATA, "one", 1, 1)), beat(2, watermark_us=20, data=2))
DESCRIBED = {DATA: "one"}


def recorded_batch(*events):
    """A first batch whose stream records a data topic, up to its plan; its last effects."""
    run = begin()
    begun = (ends(3, 2), NO_PLAN, *read(RECORDED))
    return run, run.handle(*begun, *events)


def later_batch(end_offsets=None):
    """A second batch, up to its question about topics."""
    first, effects = recorded_batch(DESCRIBED, DUE)
    first.handle(BOTH, STORED)
    run = begin(1)
    run.handle(end_offsets or ends(4, 9), first.state, NO_PLAN)
    return run, run.handle(restored(effects))


@pytest.mark.parametrize(("found", "happened"), [(None, "deleted"), ("two", "re-created")])
@pytest.mark.parametrize("end_offsets", [ends(4, 9), {PROGRESS: {0: 4}}], ids=["grown", "gone"])
def test_a_topic_that_is_another_one_is_named_also_where_it_has_grown(found, happened, end_offsets):
    run, _ = later_batch(end_offsets)
    with pytest.raises(DataTopicChanged, match=f"{happened}.*bank.accounts") as caught:
        run.handle({DATA: found})
    assert (caught.value.fields["recorded_id"], caught.value.fields["found_id"]) == ("one", found)


def test_the_topic_of_a_later_table_is_compared_too():
    rows = (*RECORDED[:2], row(2, TableAdded(DataTopic("bank.later", "x", 1, 1))))
    run = begin()
    run.handle(ends(3, 0), NO_PLAN, *read(rows))
    with pytest.raises(DataTopicChanged, match=r"bank\.later"):
        run.handle({DATA: "one", "bank.later": "y"})


# ---------------------------------------------------------------- stored plans and states


def test_a_stored_plan_is_not_obeyed_once_a_topic_is_another_one():
    """Its offsets say nothing about what the topic holds now."""
    run, effects = recorded_batch(DESCRIBED, DUE)
    again = begin()
    loading = again.handle(ends(3, 2), run.plan)
    assert loading == [LoadFrontier(run.plan.frontier)]
    assert again.handle(restored(effects)) == [DescribeTopics((DATA,))]
    with pytest.raises(DataTopicChanged, match="re-created"):
        again.handle({DATA: "two"})


def test_a_plan_of_something_else_is_refused():
    first, _, _ = first_batch()
    wrong = {
        "query_id": "x",
        "prefix": "x",
        "batch": 2,
        "after_us": 7,
        "format": 0,
        "sinks": ("x",),
    }
    for name, value in wrong.items():
        run = begin()
        run.handle(ends(3, 2))
        with pytest.raises(CheckpointMismatch, match=name):
            run.handle(replace(first.plan, **{name: value}))


def test_a_state_of_something_else_is_refused_and_one_without_its_frontier():
    first, _, _ = first_batch()
    first.handle(STORED)
    both, other = ("changelog", "mirror"), "does not belong to this batch"
    for changes, sinks, text in (
        *(({name: value}, both, other) for name, value in (("query_id", "x"), ("prefix", "x"))),
        ({"batch": 5}, both, other),
        ({}, ("changelog",), r"other sinks.*mirror"),
        (None, both, "no state"),
    ):
        state = None if changes is None else replace(first.state, **changes)
        run = begin(1, sinks=sinks)
        run.handle(ends(3, 2))
        with pytest.raises(CheckpointMismatch, match=text):
            run.handle(state)
    events = ends(3, 2), first.state, NO_PLAN
    with pytest.raises(CheckpointMismatch, match="frontier"):
        begin(1).handle(*events, NO_FRONTIER)


@pytest.mark.parametrize("end_offsets", [ends(2, 9), ends(9, 1), {PROGRESS: {0: 9}}], ids=str)
def test_a_topic_that_is_behind_is_refused_before_anything_is_decided(end_offsets):
    with pytest.raises(CheckpointMismatch, match="re-created"):
        later(*read(()), end_offsets=end_offsets)


def test_progress_that_contradicts_the_protocol_ends_the_batch():
    for heartbeat, error in (
        (beat(3, watermark_us=30, epoch="another"), MixedEpochs),
        (beat(3, watermark_us=19), ProtocolError),  # a falling watermark
    ):
        run, _ = later(end_offsets=ends(4, 2))
        with pytest.raises(error):
            run.handle(*read((heartbeat,)))


def test_batches_are_numbered_from_0():
    with pytest.raises(InvariantViolation):
        begin(-1)


# ---------------------------------------------------------------- segments

EARLY = BatchStats(early=Distribution(1, (15,)), early_checksum=7, early_min_us=15, early_max_us=15)
EARLY_ROWS = (*opening(), beat(2, watermark_us=9))


def with_waiting():
    """The state with a segment, and the plan that releases it."""
    run, effects = decided(EARLY_ROWS, EARLY, data=1)
    run.handle((RowSum(1, 7),), STORED)
    second = begin(1)
    second.handle(ends(4, 1), run.state, NO_PLAN)
    heartbeat = read((beat(3, watermark_us=30),))
    second.handle(restored(effects), *heartbeat)
    return run.state, second.plan


def releasing(count):
    """Return a run that releases a segment, and its effects once that is counted."""
    state, plan = with_waiting()
    run = begin(1, writer=2)
    effects = run.handle(ends(4, 1), state, *replayed(plan))
    (counting,) = [effect for effect in effects if isinstance(effect, CountRelease)]
    (read,) = counting.reads
    assert (read.name, read.expected) == ("000000000000-000/1", RowSum(1, 7))
    return run, run.handle(count)


@pytest.mark.parametrize("found", [NO_ROWS, RowSum(1, 8), RowSum(2, 14)], ids=str)
def test_a_segment_that_is_not_whole_is_found_and_named(found):
    run, effects = releasing(ReleaseCount(found.rows, found.rows, found, found.rows))
    assert kinds(effects) == [InspectSegments]
    with pytest.raises(SegmentDamaged, match="000000000000-000/1") as caught:
        run.handle((found,))
    assert (caught.value.fields["rows"], caught.value.fields["rows_written"]) == (found.rows, 1)


def test_a_segment_that_cannot_be_read_or_does_not_explain_the_fault_ends_the_batch():
    whole = RowSum(1, 7)
    for found, error, text in (
        (None, SegmentDamaged, "cannot be read"),
        (whole, ChangesNotConserved, None),
    ):
        run, _ = releasing(ReleaseCount(0, 0))
        with pytest.raises(error, match=text):
            run.handle((found,))


def test_what_contradicts_its_count_ends_the_batch_before_the_release_is_written():
    conflict = Conflict(3, 15, "bank.a/0/1", "bank.b/0/7")
    with pytest.raises(ConflictingCopies, match=r"bank\.a/0/1.*bank\.b/0/7.*changes=3"):
        releasing(ReleaseCount(1, 2, RowSum(1, 7), 1, conflict))
    # Changes stay in a segment that is dropped, or the release lacks changes of the batch.
    with pytest.raises(ChangesNotConserved, match="waiting=1"):
        releasing(ReleaseCount(0, 0, RowSum(1, 7), 0))
    for copies in (1, 3):
        run, _ = decided()
        with pytest.raises(ChangesNotConserved, match=f"read=2, released={copies}"):
            run.handle(ReleaseCount(copies, copies))
    for sums in (RowSum(0, 0), RowSum(1, 8)):
        run, effects = decided(EARLY_ROWS, EARLY, data=1)
        assert effects[-1].segment.name == "000000000000-000/1"
        with pytest.raises(ChangesNotConserved, match="read=1"):
            run.handle((sums,))
    run = begin()
    run.handle(ends(3, 2), NO_PLAN, *read(opening()))
    with pytest.raises(UnorderedChange, match="accounts"):
        run.handle(BatchStats(unordered_rows=1, unordered_at="bank.accounts/0/7"))


# ---------------------------------------------------------------- transactions, gaps, copies


def test_what_repeats_a_change_is_counted_by_the_state_over_all_batches():
    run, _ = decided()
    *_, stored = run.handle(ReleaseCount(rows=1, copies=2))
    assert stored.state.copies == 1
    run.handle(STORED)
    nothing_new = replace(run.plan, releases=())
    assert after(run.state, nothing_new, written={}, waiting_rows=0, code="1").copies == 1


def test_a_release_is_counted_with_the_gaps_in_it_and_names_all_up_to_its_end():
    gaps = [PartitionGap("t", us, us + 5, "ops", 1) for us in (6, 14, 50)]
    found = [row(place, gap) for place, gap in enumerate(gaps, 3)]
    rows = (*opening(), beat(2, watermark_us=10, data=2), *found)
    run, effects = decided(rows, complete_from_us=7)
    assert (effects[-1].gaps, effects[-1].complete_from_us) == ((gaps[0],), 7)
    written, stored = run.handle(BOTH)
    assert (written.gaps, stored.state.gaps) == ((gaps[0],), (gaps[0],))


# ---------------------------------------------------------------- which changes are handed over
NONE = FreshRows(0, RowSum(0, 0))


def handing(**known):
    made = Plan(
        format=PLAN_FORMAT, code="1", prefix="bank", query_id="q", batch=3, end_offsets={},
        after_us=0, through_us=9, slowest=None, stream_has_ended=False, late_rows=0, releases=(),
        stored=(), compaction=None, topics=(), sinks=("changelog", "a", "b"), frontier="f",
        fresh=NONE,
    )  # fmt: skip
    return replace(made, **known)


def test_all_changes_of_a_batch_are_handed_over_whether_they_wait_or_are_late():
    for known, rows in (
        ({"fresh": FreshRows(2, RowSum(3, 0))}, 5),
        ({"late_rows": 4}, 4),
        ({"repeated_rows": 6}, 6),
        ({"fresh": FreshRows(1, RowSum(1, 0)), "late_rows": 1}, 3),
        ({"fresh": None}, None),
    ):
        assert hand_over(handing(**known), ["b", "a"]) == (HandOver(("a", "b"), rows),)
    # A sink that the plan does not name waits for the next.
    assert hand_over(handing(), ["a"]) == hand_over(handing(late_rows=1), ["c"]) == ()
    require_handed(5, HandOver(("a",), None), batch=3)

"""The gate as a whole: plans, states, and a replay that decides nothing again.

The property at the end runs many batches of made-up changes through the core, executing plans on
plain lists, and compares what comes out with what went in: once each, in order, nothing before its
time.
"""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    ChildPartition,
    DataTopic,
    PartitionAnnounced,
    PartitionGap,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.core import gate as gate_module
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State, TopicIds
from tidegate.spark_consumer.core.batch_stats import BatchStats
from tidegate.spark_consumer.core.files import (
    frontier_file,
    plan_file,
    segment_file,
    state_file,
)
from tidegate.spark_consumer.core.gate import (
    STATES_KEPT,
    Gate,
    Limits,
    no_longer_needed,
)
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    Plan,
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import Distribution
from tidegate.spark_consumer.errors import CheckpointMismatch, UnorderedChange, UnreadableEnvelope

SUBSCRIPTION = Subscription(TopicNames("bank"))
PROGRESS, DATA = "bank-progress", "bank.accounts"
STATE = State(prefix="bank", query_id="q")


def after(state, plan):
    """The state after a plan whose segments were written as planned."""
    planned = [*plan.stored, *([] if plan.compaction is None else [plan.compaction.output])]
    written = {one.name: one for one in planned}
    return gate_module.after(state, plan, written=written, waiting_rows=None, code="1")


def opening():
    child = ChildPartition("t", ("",), 0)
    topics = (DataTopic(DATA, "id", 1, 7),)
    started = StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", topics, (child,))
    return [row(0, started), row(1, PartitionAnnounced(child, ""))]


def row(offset, body):
    return ProgressRow(0, offset, ProgressRecord("e", "w", body))


def beat(offset, *, watermark_us, data_offset=None):
    vector = () if data_offset is None else (TopicOffset(DATA, 0, data_offset),)
    tokens = (TokenSnapshot("t", 0, (), (), watermark_us),)
    return row(offset, SlotProgress(0, offset, 0, 1, vector, tokens))


def ends(progress, data=0):
    return {PROGRESS: {0: progress}, DATA: {0: data}}


def gate(state=STATE, frontier=None, **limits):
    known = frontier or Frontier(SUBSCRIPTION)
    return Gate(state, known, limits=Limits(**limits), code="1")


def fold(one, rows, *, end_offsets):
    one.take(rows, end_offsets=end_offsets)
    return one.close()


def decide(one, stats):
    return one.decide(stats, frontier="f", dropped=("frontiers/e",))


@pytest.mark.parametrize("filters", [(), ("producer.tombstones=true",)])
def test_a_stream_that_a_sink_can_take_is_read(filters):
    first, *others = opening()
    body = replace(first.record.body, filters=filters)
    rows = [row(0, body), *others]
    assert fold(gate(), rows, end_offsets=ends(2)) == BEFORE_EVERYTHING_US


def test_a_flat_stream_is_refused_before_anything_is_decided():
    first, *others = opening()
    body = replace(first.record.body, filters=("producer.envelope=flat",))
    with pytest.raises(UnreadableEnvelope, match="flat") as caught:
        gate().take([row(0, body), *others], end_offsets=ends(2))
    assert 'envelope = "tidegate"' in caught.value.hint


def test_before_the_watermark_exists_everything_waits():
    first = gate()
    assert fold(first, opening(), end_offsets=ends(2, 5)) == BEFORE_EVERYTHING_US
    plan = decide(first, BatchStats(early=Distribution(5, (8, 9)), early_min_us=3, early_max_us=9))
    assert plan.releases == ()
    (step,) = plan.steps
    assert isinstance(step, StoreSegment)
    assert (step.segment.min_us, step.segment.max_us, step.segment.rows) == (3, 9, 5)
    state = after(STATE, plan)
    assert state.segments == plan.stored
    assert (state.batch, state.watermark_us, state.next_release) == (0, -1, 0)


def test_a_batch_in_full_gives_its_steps_in_order_and_the_next_state():
    frontier = Frontier(SUBSCRIPTION)
    first = gate(frontier=frontier)
    fold(first, [*opening(), beat(2, watermark_us=5)], end_offsets=ends(3, 4))
    early = Distribution(4, (10, 12))
    before = after(STATE, decide(first, BatchStats(early=early, early_min_us=10, early_max_us=12)))
    assert before.watermark_us == 5

    second = gate(before, frontier)
    through = fold(second, [beat(3, watermark_us=11)], end_offsets=ends(4, 9))
    assert through == 11
    stats = BatchStats(
        late_rows=2,
        due=Distribution(2, (8, 9)),
        early=Distribution(1, (20,)),
        early_min_us=20,
        early_max_us=20,
        topics=(TopicIds(DATA, (7,), (3, 5)),),
    )
    plan = decide(second, stats)
    late, release, store = plan.steps
    assert late == SetLateAside(5, 2)
    assert isinstance(release, WriteRelease)
    assert (release.bounds.after_us, release.bounds.through_us) == (5, 11)
    assert release.bounds.segments == (before.segments[0].name,)
    assert isinstance(store, StoreSegment)
    state = after(before, plan)
    assert state.next_release == 1
    assert state.late_rows == 2
    # The first segment's changes at 12 still wait in it.
    assert [s.name for s in state.segments] == [before.segments[0].name, store.segment.name]
    assert state.dropped_segments == ()
    assert state.topics == (TopicIds(DATA, (7,), (3, 5)),)

    third = gate(state, frontier)
    fold(third, [beat(4, watermark_us=30)], end_offsets=ends(5, 9))
    final = after(state, decide(third, BatchStats()))
    assert final.segments == ()
    assert set(final.dropped_segments) == {s.name for s in state.segments}


def test_nothing_new_is_no_release_and_the_watermark_moves_all_the_same():
    first = gate()
    fold(first, [*opening(), beat(2, watermark_us=50)], end_offsets=ends(3))
    plan = decide(first, BatchStats())
    assert plan.steps == ()
    assert after(STATE, plan).watermark_us == 50
    assert after(STATE, plan).next_release == 0


def test_rows_come_in_portions_and_what_a_former_portion_should_have_held_is_refused():
    one = gate()
    one.take(opening()[::-1], end_offsets=ends(5))
    one.take([beat(3, watermark_us=11)], end_offsets=ends(5))
    with pytest.raises(InvariantViolation, match="order of their offsets"):
        one.take([beat(2, watermark_us=5)], end_offsets=ends(5))
    assert one.close() == 11


def test_a_watermark_that_falls_is_an_error_that_names_both_times_and_the_token():
    state = State(prefix="bank", query_id="q", watermark_us=80)
    rows = [*opening(), beat(2, watermark_us=50)]
    with pytest.raises(ProtocolError, match=r"was_us=80, is_us=50, slowest='t'"):
        fold(gate(state), rows, end_offsets=ends(3))
    with pytest.raises(ProtocolError, match=r"was_us=80, is_us=None"):
        fold(gate(state), opening(), end_offsets=ends(2))
    rows = [*opening(), beat(2, watermark_us=80)]
    assert fold(gate(state), rows, end_offsets=ends(3)) == 80


def test_a_plan_and_a_state_survive_being_stored():
    one = gate(segments_max=1, segment_rows_max=2)
    fold(one, [*opening(), beat(2, watermark_us=9)], end_offsets=ends(3, 9))
    stats = BatchStats(
        due=Distribution(3, (4, 5)),
        early=Distribution(8, (10, 11, 12, 13)),
        early_min_us=10,
        early_max_us=13,
        topics=(TopicIds(DATA, (7,), (2,)),),
    )
    plan = decide(one, stats)
    assert Plan.restore(json.loads(json.dumps(plan.snapshot()))) == plan
    state = after(STATE, plan)
    assert State.restore(json.loads(json.dumps(state.snapshot()))) == state
    two = gate(state, one.frontier, segments_max=1)
    fold(two, [], end_offsets=ends(3, 9))
    plan = decide(two, BatchStats())
    assert plan.compaction is not None
    assert isinstance(plan.steps[-1], CompactSegments)
    assert Plan.restore(json.loads(json.dumps(plan.snapshot()))) == plan
    assert len(after(state, plan).segments) < len(state.segments)


def test_a_re_created_topic_is_refused():
    state = State(prefix="bank", query_id="q", end_offsets=ends(5, 7))
    with pytest.raises(CheckpointMismatch, match="re-created"):
        fold(gate(state), [], end_offsets=ends(5, 6))
    with pytest.raises(CheckpointMismatch, match="re-created"):
        fold(gate(state), [], end_offsets={PROGRESS: {0: 5}})


def test_a_row_without_order_key_is_refused():
    one = gate()
    fold(one, opening(), end_offsets=ends(2))
    with pytest.raises(UnorderedChange, match="accounts"):
        decide(one, BatchStats(unordered_rows=1, unordered_at="bank.accounts/0@7"))


def test_another_key_schema_is_refused():
    one = gate()
    fold(one, opening(), end_offsets=ends(2))
    with pytest.raises(ProtocolError, match="key schema"):
        decide(one, BatchStats(topics=(TopicIds(DATA, (8,), (2,)),)))


def test_a_batch_is_folded_before_it_is_decided():
    with pytest.raises(InvariantViolation):
        decide(gate(), BatchStats())


class Executor:
    """Executes plans on lists of commit timestamps, as Spark does on rows."""

    def __init__(self, limits):
        self.state, self.frontier, self.limits = STATE, Frontier(SUBSCRIPTION), limits
        self.segments, self.released, self.late, self.seen = {}, [], [], 0

    def run(self, progress, rows, end_offsets):
        one = Gate(self.state, self.frontier, limits=self.limits, code="1")
        through = fold(one, progress, end_offsets=end_offsets)
        low = self.state.watermark_us
        due = sorted(us for us in rows if low < us <= through)
        early = sorted(us for us in rows if us > through)
        plan = decide(
            one,
            BatchStats(
                late_rows=sum(us <= low for us in rows),
                due=Distribution(len(due), tuple(due)),
                early=Distribution(len(early), tuple(early[1::2] or early)),
                early_min_us=min(early, default=None),
                early_max_us=max(early, default=None),
            ),
        )
        for step in plan.steps:
            self.execute(step, rows)
        self.state = after(self.state, plan)
        for name in self.state.dropped_segments:
            del self.segments[name]
        assert set(self.segments) == {s.name for s in self.state.segments}

    def execute(self, step, rows):
        match step:
            case SetLateAside():
                self.late += [us for us in rows if us <= step.through_us]
            case WriteRelease():
                low, high = step.bounds.after_us, step.bounds.through_us
                found = [*rows, *(us for n in step.bounds.segments for us in self.segments[n])]
                self.released.append(
                    (step.bounds.number, sorted(us for us in found if low < us <= high))
                )
            case StoreSegment():
                one = step.segment
                self.segments[one.name] = [us for us in rows if one.min_us <= us <= one.max_us]
            case CompactSegments():
                joined = [us for n in step.compaction.inputs for us in self.segments[n]]
                self.segments[step.compaction.output.name] = [
                    us for us in joined if us > step.after_us
                ]


batches = st.lists(
    st.tuples(st.integers(0, 20), st.lists(st.integers(1, 60), max_size=12)), max_size=25
)


@settings(max_examples=150, deadline=None)
@given(
    batches=batches,
    release_rows_max=st.integers(1, 20),
    segment_rows_max=st.integers(1, 20),
    segments_max=st.integers(1, 5),
)
def test_everything_comes_out_once_in_order_and_on_time(
    batches, release_rows_max, segment_rows_max, segments_max
):
    limits = Limits(release_rows_max, segment_rows_max, segments_max, 30)
    executor = Executor(limits)
    expected, expected_late, watermark_us, offset = [], [], -1, 2
    for index, (step, ahead) in enumerate(batches):
        rows = [watermark_us + us - 5 for us in ahead]
        expected_late += [us for us in rows if us <= watermark_us]
        expected += [us for us in rows if us > watermark_us]
        watermark_us += step
        progress = [*(opening() if index == 0 else []), beat(offset, watermark_us=watermark_us)]
        offset += 1
        executor.run(progress, rows, ends(offset, 0))
        assert executor.state.watermark_us == max(watermark_us, -1)
        released = [us for _, release in executor.released for us in release]
        assert released == sorted(us for us in expected if us <= watermark_us)
    executor.run([beat(offset, watermark_us=10**6)], [], ends(offset + 1, 0))
    if batches:
        released = [us for _, release in executor.released for us in release]
        assert released == sorted(expected)
        assert sorted(executor.late) == sorted(expected_late)
        assert executor.state.late_rows == len(expected_late)
        assert executor.segments == {}
    assert [number for number, _ in executor.released] == list(range(executor.state.next_release))


def test_what_no_batch_can_need_is_dropped_and_a_hundred_states_stay():
    assert no_longer_needed(STATE) == ()
    early = State(
        prefix="bank", query_id="q", batch=1,
        dropped_segments=("a", "b"), dropped_frontiers=("frontiers/000000000000",),
    )  # fmt: skip
    assert no_longer_needed(early) == (
        segment_file("a"),
        segment_file("b"),
        "frontiers/000000000000",
    )
    late = State(prefix="bank", query_id="q", batch=250, frontier="000000000250")
    gone = no_longer_needed(late)
    assert plan_file(250 - STATES_KEPT) in gone
    assert state_file(250 - STATES_KEPT) in gone
    assert frontier_file("000000000250") not in gone


def test_a_plan_names_the_gaps_that_its_watermark_has_passed_and_the_state_keeps_them():
    passed = PartitionGap("t", 6, 9, "ops", 1)
    ahead = PartitionGap("u", 30, 40, "ops", 1)
    rows = [*opening(), beat(2, watermark_us=5), row(3, passed), row(4, ahead)]
    one = gate()
    one.take(rows, end_offsets=ends(5))
    one.close()
    plan = one.decide(BatchStats(), frontier="f")
    assert (plan.through_us, plan.gaps) == (5, ())
    two = gate(after(STATE, plan), one.frontier)
    two.take([beat(5, watermark_us=8)], end_offsets=ends(6))
    two.close()
    plan = two.decide(BatchStats(), frontier="f")
    assert (plan.through_us, plan.gaps) == (8, (passed,))
    assert after(after(STATE, one.decide(BatchStats(), frontier="f")), plan).gaps == (passed,)

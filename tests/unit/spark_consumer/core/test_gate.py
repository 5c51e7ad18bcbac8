"""The gate: plans, the states after them, and what it refuses to read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.unit.spark_consumer.core.core_building import (
    DATA,
    SUBSCRIPTION,
    beat,
    ends,
    opening,
)
from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.frontier import Frontier
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import (
    DataTopic,
)
from tidegate.spark_consumer.core import transition
from tidegate.spark_consumer.core.batch_state import BEFORE_EVERYTHING_US, State, TopicIds
from tidegate.spark_consumer.core.file_names import (
    frontier_file,
    plan_file,
    segment_file,
    state_file,
)
from tidegate.spark_consumer.core.gate import Gate, require_readable
from tidegate.spark_consumer.core.limits import (
    Limits,
)
from tidegate.spark_consumer.core.plan import (
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import BatchStats, Distribution
from tidegate.spark_consumer.core.transition import STATES_KEPT, no_longer_needed
from tidegate.spark_consumer.errors import (
    UnreadableEnvelope,
)

STATE = State(prefix="bank", query_id="q")
OPENING = opening(DataTopic(DATA, "id", 1, 7))


def after(state, plan):
    """The state after a plan whose segments were written as planned."""
    planned = [*plan.stored, *([] if plan.compaction is None else [plan.compaction.output])]
    written = {one.name: one for one in planned}
    return transition.after(state, plan, written=written, waiting_rows=None, code="1")


def gate(state=STATE, frontier=None, **limits):
    known = frontier or Frontier(SUBSCRIPTION)
    return Gate(state, known, limits=Limits(**limits), code="1")


def fold(one, rows, *, end_offsets):
    one.take(rows, end_offsets=end_offsets)
    return one.close()


def decide(one, stats):
    return one.decide(stats, frontier="f", dropped=("frontiers/e",))


def folded(*rows, **limits):
    """A gate that has read the opening of a stream and these records."""
    one = gate(**limits)
    fold(one, [*OPENING, *rows], end_offsets=ends(2 + len(rows), 9))
    return one


def test_a_stream_that_a_sink_can_take_is_read_and_another_is_named():
    for filters in (
        (),
        ("producer.tombstones=true",),
        ("exclude_delete=true", "producer.tables=a"),
    ):
        rows = opening(filters=filters)
        require_readable(rows)
        assert fold(gate(), rows, end_offsets=ends(2)) == BEFORE_EVERYTHING_US
    for envelope in ("flat", "debezium", "datastream", "later"):
        rows = opening(filters=(f"producer.envelope={envelope}",))
        with pytest.raises(UnreadableEnvelope, match=f"the envelope '{envelope}'") as caught:
            gate().take(rows, end_offsets=ends(2))
        assert caught.value.fields == {"stream": "s", "envelope": envelope}
        assert caught.value.exit_code == 2
        assert 'envelope = "tidegate"' in caught.value.hint
        with pytest.raises(UnreadableEnvelope):
            require_readable([*OPENING, *rows])  # in whatever portion it is read


def test_a_batch_in_full_gives_its_steps_in_order_and_the_next_state():
    first = folded(beat(2, watermark_us=5))
    early = BatchStats(early=Distribution(4, (10, 12)), early_min_us=10, early_max_us=12)
    before = after(STATE, decide(first, early))
    assert before.watermark_us == 5

    second = gate(before, first.frontier)
    assert fold(second, [beat(3, watermark_us=11)], end_offsets=ends(4, 9)) == 11
    topics = (TopicIds(DATA, (7,), (3, 5)),)
    stats = BatchStats(
        late_rows=2,
        due=Distribution(2, (8, 9)),
        early=Distribution(1, (20,)),
        early_min_us=20,
        early_max_us=20,
        topics=topics,
    )
    late, release, store = (plan := decide(second, stats)).steps
    assert late == SetLateAside(5, 2)
    assert isinstance(release, WriteRelease)
    assert (release.bounds.after_us, release.bounds.through_us) == (5, 11)
    assert release.bounds.segments == (before.segments[0].name,)
    assert isinstance(store, StoreSegment)
    state = after(before, plan)
    assert (state.next_release, state.late_rows, state.topics) == (1, 2, topics)
    # The first segment's changes at 12 still wait in it.
    assert [s.name for s in state.segments] == [before.segments[0].name, store.segment.name]
    assert state.dropped_segments == ()

    third = gate(state, first.frontier)
    fold(third, [beat(4, watermark_us=30)], end_offsets=ends(5, 9))
    final = after(state, decide(third, BatchStats()))
    assert final.segments == ()
    assert set(final.dropped_segments) == {s.name for s in state.segments}


def test_rows_come_in_portions_and_what_a_former_portion_should_have_held_is_refused():
    one = gate()
    one.take(OPENING[::-1], end_offsets=ends(5))
    one.take([beat(3, watermark_us=11)], end_offsets=ends(5))
    with pytest.raises(InvariantViolation, match="order of their offsets"):
        one.take([beat(2, watermark_us=5)], end_offsets=ends(5))
    assert one.close() == 11
    with pytest.raises(InvariantViolation):  # a batch is folded before it is decided
        decide(gate(), BatchStats())


def test_a_watermark_that_falls_is_an_error_that_names_both_times_and_the_token():
    state = replace(STATE, watermark_us=80)
    for rows, text in (
        ([*OPENING, beat(2, watermark_us=50)], r"was_us=80, is_us=50, slowest='t'"),
        (OPENING, r"was_us=80, is_us=None"),
    ):
        with pytest.raises(ProtocolError, match=text):
            fold(gate(state), rows, end_offsets=ends(len(rows)))
    rows = [*OPENING, beat(2, watermark_us=80)]
    assert fold(gate(state), rows, end_offsets=ends(3)) == 80


def test_another_key_schema_is_refused():
    with pytest.raises(ProtocolError, match="key schema"):
        decide(folded(), BatchStats(topics=(TopicIds(DATA, (8,), (2,)),)))


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

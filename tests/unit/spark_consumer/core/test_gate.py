"""The gate: plans and the states after them, what it refuses to read, and the end of a run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.unit.spark_consumer.core.core_building import (
    DATA,
    SUBSCRIPTION,
    beat,
    ends,
    opening,
)
from tidegate.lineage.errors import ProtocolError
from tidegate.lineage.frontier import Frontier, Watermark
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
    average_bytes,
    must_restart,
    offsets_per_batch,
)
from tidegate.spark_consumer.core.plan import (
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import BatchStats, Distribution
from tidegate.spark_consumer.core.retention import FirstRecord, complete_from_us, require_kept
from tidegate.spark_consumer.core.runs import CaughtUp, QueryRestarts, is_late_write
from tidegate.spark_consumer.core.transition import STATES_KEPT, no_longer_needed
from tidegate.spark_consumer.errors import (
    ChangesExpired,
    DataTopicChanged,
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


# ---------------------------------------------------------------- what Kafka has removed
KEPT = {
    "bank.a": {0: FirstRecord(7, 5_000), 1: FirstRecord(0, 9_000)},
    "bank.b": {0: FirstRecord(3, 6_000)},
}


def test_an_output_is_complete_from_the_youngest_cut_on():
    whole = {"bank.a": {0: FirstRecord(0, 5_000), 1: FirstRecord(0, None)}}
    for kept, expected in (
        (whole, None), ({}, None), (KEPT, 6_000_000),
        (KEPT | {"bank.c": {0: FirstRecord(2, None)}}, 99_000_000),
    ):  # fmt: skip
        assert complete_from_us(kept, now_us=99_000_000) == expected


def test_what_is_read_next_must_be_there():
    require_kept({"bank.a": {0: 7, 1: 0}, "bank.b": {0: 4}, "bank.new": {0: 0}}, KEPT)
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.a": {0: 9, 1: 0}, "bank.b": {0: 1}}, KEPT)
    place = {"topic": "bank.b", "topic_partition": 0, "lost_from": 1, "lost_through": 2}
    before = {"committed_before": "1970-01-01T00:00:06.001000+00:00"}
    assert caught.value.fields == place | before
    assert caught.value.exit_code == 2
    # The time that is lost lies between the watermark and the first record that is left.
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.b": {0: 1}}, KEPT, watermark_us=5_500_000)
    after_that = {"committed_after": "1970-01-01T00:00:05.500000+00:00"}
    assert caught.value.fields == place | before | after_that
    with pytest.raises(ChangesExpired) as caught:
        require_kept({"bank.b": {0: 1}}, {"bank.b": {0: FirstRecord(3, None)}}, watermark_us=-1)
    assert caught.value.fields == place


def test_what_was_read_and_is_not_there_any_more_is_another_topic():
    kept = {"bank.a": {0: FirstRecord(0, 5_000, end=9), 1: FirstRecord(0, None, end=0)}}
    require_kept({"bank.a": {0: 9, 1: 0}}, kept)
    with pytest.raises(DataTopicChanged, match="deleted and re-created") as caught:
        require_kept({"bank.a": {0: 9, 1: 3}}, kept)
    assert caught.value.fields == {"topic": "bank.a", "topic_partition": 1, "read": 3, "end": 0}
    require_kept({"bank.gone": {0: 0}}, KEPT)
    for read in ({"bank.gone": {0: 3}}, {"bank.b": {1: 3}}):
        with pytest.raises(DataTopicChanged, match="deleted") as caught:
            require_kept(read, KEPT)
        assert (caught.value.fields["read"], caught.value.exit_code) == (3, 2)


# ---------------------------------------------------------------- limits, and the end of a run
def test_the_first_batch_gives_the_average_and_later_ones_move_it():
    assert average_bytes(0, rows=0, size_bytes=0) == 0
    first = average_bytes(0, rows=100, size_bytes=20_000)
    assert first == 200
    assert average_bytes(first, rows=0, size_bytes=0) == 200
    assert average_bytes(first, rows=1, size_bytes=1_000_000) < 300
    wide = average_bytes(first, rows=250_000, size_bytes=250_000 * 50_000)
    assert 45_000 < wide < 50_000
    assert average_bytes(0, rows=5, size_bytes=0) == 1


def test_offsets_follow_from_both_limits():
    limits = {"changes_max": 1_000, "bytes_max": 100_000}
    found = [offsets_per_batch(**limits, change_bytes=n) for n in (0, 10, 100, 400, 10**9)]
    assert found == [1_000, 1_000, 1_000, 250, 1]
    # A query is started again only where it reads far too much or too little.
    restarts = [must_restart(1_000, wanted) for wanted in (499, 500, 1_000, 4_000, 4_001)]
    assert restarts == [True, False, False, False, True]


def test_spark_says_in_two_ways_that_another_run_has_written():
    for text, is_late in (
        ("[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple", True),
        ("Multiple streaming queries are concurrently using file:/check/spark/commits.", True),
        ("[CONCURRENT_QUERY] Another instance of this query was just started", False),
        ("[STREAM_FAILED] Query terminated with exception: Some data may have been lost", False),
    ):
        assert is_late_write(text) == is_late


def test_a_query_is_started_again_a_few_times_in_a_while():
    restarts = QueryRestarts(restarts_max=2, within_s=10)
    found = [restarts.may_restart(now_s=now_s) for now_s in (0, 9, 9.5, 10, 10.5, 19, 19.5)]
    assert found == [True, True, False, True, False, True, False]


BEGUN_US = 1_000_000_000


def state_of(batch, watermark_us, **rest):
    return State(prefix="bank", query_id="q", batch=batch, watermark_us=watermark_us, **rest)


def frontier(watermark):
    return SimpleNamespace(watermark=lambda: watermark)


def test_it_ends_with_the_watermark_or_with_the_stream():
    behind, has_ended = {"next_release": 3, "mirror_release": 1}, {"stream_has_ended": True}
    for seen, is_reached in (
        (state_of(0, BEGUN_US - 1), False),
        (state_of(0, BEGUN_US), True),
        (state_of(0, 5, **has_ended), True),
        (state_of(0, BEGUN_US, **behind), False),
        (state_of(0, 5, **has_ended, **behind), False),
    ):
        goal = CaughtUp(BEGUN_US, now_s=0)
        assert not goal.is_reached
        goal.finish_batch(seen, now_s=1)
        assert goal.is_reached is is_reached


def test_a_stream_that_had_ended_before_gives_no_batch():
    goal = CaughtUp(BEGUN_US, now_s=0)
    goal.resume(None)
    assert not goal.is_reached
    goal.resume(state_of(7, 5, stream_has_ended=True))
    assert goal.is_reached
    goal = CaughtUp(BEGUN_US, now_s=0)
    goal.finish_batch(state_of(8, BEGUN_US), now_s=1)
    goal.resume(state_of(7, 5))  # a state that was read late hides no younger one
    assert goal.is_reached


def test_it_says_once_in_half_a_minute_what_it_waits_for():
    goal = CaughtUp(BEGUN_US, now_s=100)
    assert [goal.is_due(now_s=now_s) for now_s in (129, 130, 131, 159, 160)] == [
        False, True, False, False, True
    ]  # fmt: skip
    goal.finish_batch(state_of(0, BEGUN_US), now_s=170)
    assert not goal.is_due(now_s=200)


SLOW = frontier(Watermark(BEGUN_US - 2_500_000, "token7"))


@pytest.mark.parametrize("known", [None, frontier(None), SLOW])
def test_it_names_what_it_waits_for(known):
    goal = CaughtUp(BEGUN_US, now_s=100)
    if known is not SLOW:
        waiting = goal.waiting(known, now_s=142.04)
        assert (waiting.behind_s, waiting.idle_s) == (None, 42.0)
        assert "first progress records" in waiting.waits_for
    # A long batch is not blamed on the fleet.
    waiting = goal.waiting(known, now_s=190, batch_s=88.04)
    assert (waiting.idle_s, waiting.batch_s) == (90, 88.0)
    assert "the running batch, for 88 s" in waiting.waits_for
    assert "fleet" not in waiting.waits_for
    goal.finish_batch(state_of(0, 5), now_s=110)
    running = goal.waiting(SLOW, now_s=112)
    assert (running.behind_s, running.idle_s) == (2.5, 2)
    assert running.waits_for == "stream partition token7, which is the slowest"
    assert "has written nothing new" in goal.waiting(SLOW, now_s=140).waits_for

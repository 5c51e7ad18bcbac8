"""States: what contradicts itself is refused, and storing loses nothing."""

import json
from dataclasses import replace

import pytest

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
from tidegate.spark_consumer.core.origin_ledger import Followed, OriginLedger
from tidegate.spark_consumer.core.origin_sums import OriginSum
from tidegate.spark_consumer.core.row_sums import RowSum
from tidegate.spark_consumer.errors import CheckpointMismatch, NewerCheckpoint

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


def test_storing_loses_nothing():
    STATE.check_invariants()
    assert State.restore(json.loads(json.dumps(STATE.snapshot()))) == STATE


@pytest.mark.parametrize(
    "change",
    [
        {"watermark_us": 120},
        {"segments": (STATE.segments[0], STATE.segments[0])},
        {"segments": (replace(STATE.segments[0], min_us=121),)},
        {"segments": (replace(STATE.segments[0], max_us=121),)},
        {"segments": (replace(STATE.segments[0], min_us=111),)},
        {"dropped_segments": ("a",)},
        {"topics": (TopicIds("bank.a", (1,), (9, 2)),)},
    ],
)
def test_a_state_that_contradicts_itself_is_refused(change):
    with pytest.raises(InvariantViolation):
        replace(STATE, **change).check_invariants()


def of_the_program_before(state):
    """What that program stored: no format number, and segments without counts."""
    stored = json.loads(json.dumps(state.snapshot()))
    for name in ("format", "code", "waiting_rows", "dropped_frontiers"):
        del stored[name]
    for segment in stored["segments"]:
        del segment["parts"]
    return stored


def test_a_state_of_the_program_before_continues_uncounted():
    segments = tuple(replace(one, parts=()) for one in STATE.segments)
    found = State.restore(of_the_program_before(STATE))
    before = ("frontiers/000000000006.json",)
    assert found == replace(
        STATE, segments=segments, waiting_rows=None, code="", dropped_frontiers=before
    )
    assert found.format == STATE_FORMAT


def test_a_state_of_format_4_has_counted_no_mismatches():
    state = replace(STATE, mismatches=3)
    assert State.restore(json.loads(json.dumps(state.snapshot()))) == state
    stored = json.loads(json.dumps(state.snapshot())) | {"format": 4}
    del stored["mismatches"]
    assert State.restore(stored) == STATE


def test_a_state_stores_copies_only_where_there_are_some():
    state = replace(STATE, copies=3)
    assert State.restore(json.loads(json.dumps(state.snapshot()))) == state
    assert "copies" not in STATE.snapshot()
    assert State.restore(json.loads(json.dumps(STATE.snapshot()))).copies == 0


LEDGER = OriginLedger(4, {"t": Followed(10)}, {(-5, "bank.a"): OriginSum(1, 2, 3)})


def test_a_state_of_format_5_follows_what_begins_after_its_watermark():
    stored = json.loads(json.dumps(replace(STATE, origins=LEDGER).snapshot())) | {"format": 5}
    del stored["origins"], stored["origins_file"]
    assert State.restore(stored) == replace(STATE, origins=OriginLedger(STATE.watermark_us))


def test_a_state_of_format_6_knows_no_gaps():
    state = replace(STATE, gaps=(PartitionGap("t", 2, 4, "ops", 3),))
    stored = json.loads(json.dumps(state.snapshot()))
    assert State.restore(stored) == state
    del stored["gaps"]
    assert State.restore(stored | {"format": 6}) == STATE


def test_what_is_followed_is_in_the_state_or_in_the_file_that_it_names():
    state = replace(STATE, origins=LEDGER)
    assert State.restore(json.loads(json.dumps(state.snapshot()))) == state
    named = replace(state, origins_file="lists/000000000007/1-000.json")
    stored = json.loads(json.dumps(named.snapshot()))
    assert stored["origins"] is None
    assert State.restore(stored, {named.origins_file: LEDGER.snapshot()}.get) == named
    assert named.list_folders == {"lists/000000000007"}
    with pytest.raises(CheckpointMismatch, match="not stored"):
        State.restore(stored)


def test_an_adopted_output_follows_what_begins_after_it():
    proof = OutputProof("q", 3, 50, ("changelog",))
    assert State.adopted(prefix="bank", query_id="q", proof=proof, code="").origins == (
        OriginLedger(50)
    )


def test_where_nothing_waited_nothing_is_unknown():
    found = State.restore(of_the_program_before(replace(STATE, segments=())))
    assert found.waiting_rows == 0


def test_a_state_of_a_newer_program_names_the_version_to_install():
    stored = STATE.snapshot() | {"format": STATE_FORMAT + 1, "code": "9.1.0", "something": "new"}
    with pytest.raises(NewerCheckpoint, match=r"Install Tidegate 9\.1\.0 or newer"):
        State.restore(stored)


def test_a_segment_is_counted_in_at_most_sixteen_parts_that_end_with_it():
    segment = Segment("a", 0, 900, 64, tuple(range(100, 164)))
    assert len(segment.cuts_us) == 16
    assert segment.cuts_us == tuple(sorted(set(segment.cuts_us)))
    assert segment.cuts_us[-1] == 900
    assert Segment("a", 5, 5, 9, (5, 5, 5)).cuts_us == (5,)
    assert Segment("a", 5, 9, 9, (5, 6, 7, 9)).cuts_us == (5, 6, 7, 9)
    assert Segment("a", 5, 9, 9, (5, 9)).written([RowSum(1, 2), RowSum(3, 4)]).parts == (
        SegmentPart(5, 1, 2),
        SegmentPart(9, 3, 4),
    )

"""States: stored without loss, and refused by their fault."""

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
from tidegate.spark_consumer.core.file_names import (
    require_known,
)
from tidegate.spark_consumer.core.origin_ledger import Followed, OriginLedger
from tidegate.spark_consumer.core.sums import OriginSum, RowSum
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

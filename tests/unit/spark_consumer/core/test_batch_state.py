"""States: what contradicts itself is refused, and storing loses nothing."""

import json
from dataclasses import replace

import pytest

from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.batch_state import Segment, State, TopicIds

STATE = State(
    prefix="bank",
    query_id="q",
    batch=7,
    watermark_us=100,
    next_release=3,
    end_offsets={"bank.a": {0: 4, 11: 5}},
    frontier="000000000007",
    segments=(Segment("a", 90, 120, 5, (110, 120)), Segment("b", 130, 130, 1, (130,))),
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
        {"dropped_segments": ("a",)},
        {"topics": (TopicIds("bank.a", (1,), (9, 2)),)},
    ],
)
def test_a_state_that_contradicts_itself_is_refused(change):
    with pytest.raises(InvariantViolation):
        replace(STATE, **change).check_invariants()

"""What a worker shows, and a copy of it that goes on."""

from __future__ import annotations

from tests.unit.producer.core.conftest import START_US
from tests.unit.producer.core.test_operator_commands import PAUSED, control, reading, say
from tidegate.producer.core.lifecycle import PartitionState


def test_it_shows_states_and_whether_it_is_paused(bench):
    reading(bench, "a")
    assert (bench.worker.is_paused, bench.worker.states[PartitionState.RUNNING]) == (False, 1)
    assert bench.worker.watermark_us == START_US - 1
    say(bench, control(1, PAUSED))
    assert (bench.worker.is_paused, bench.worker.states[PartitionState.RUNNING]) == (True, 0)


def test_a_copy_knows_what_operators_want(bench, make_bench):
    reading(bench, "a")
    say(bench, control(1, PAUSED))
    bench.later()
    copy = make_bench(has_read_commands=False)
    copy.worker.restore(bench.worker.snapshot())
    assert copy.worker.is_paused
    copy.worker.check_invariants()
    assert copy.worker._cycle._commands is copy.worker._commands

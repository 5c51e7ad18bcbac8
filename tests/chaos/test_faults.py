"""The plan of faults: the same for a seed, complete in three minutes, one after the other."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from tests.chaos.faults import KINDS, LANES, SESSION_TIMEOUT_MS, TRANSACTION_TIMEOUT_MS, faults_of

SEEDS = range(40)


def kinds(plan):
    return Counter(fault.kind for faults in plan.values() for fault in faults)


def test_a_seed_decides_everything():
    assert faults_of(7, seconds=180) == faults_of(7, seconds=180)
    assert faults_of(7, seconds=180) != faults_of(8, seconds=180)


@pytest.mark.parametrize("seed", SEEDS)
def test_three_minutes_hold_every_kind(seed):
    plan = faults_of(seed, seconds=180)

    assert kinds(plan).keys() == KINDS.keys()
    for lane, faults in plan.items():
        firsts = {}
        for fault in faults:
            assert KINDS[fault.kind].lane == lane
            firsts.setdefault(fault.kind, fault)
        assert all(fault.must for fault in firsts.values())


@pytest.mark.parametrize("seed", SEEDS)
def test_a_fault_leaves_time_for_the_one_before(seed):
    for faults in faults_of(seed, seconds=180).values():
        for first, second in pairwise(faults):
            assert second.at_s >= first.at_s + KINDS[first.kind].takes_s


def test_a_short_plan_breaks_something_in_every_lane():
    assert all(faults_of(3, seconds=30)[lane] for lane in LANES)


def test_other_kinds_can_be_left_out():
    plan = faults_of(3, seconds=180, only=("crash-broker",))

    assert kinds(plan).keys() == {"crash-broker"}


def test_a_long_stop_outlasts_session_and_transaction_and_a_brief_one_does_not():
    faults = [f for seed in SEEDS for lane in faults_of(seed, seconds=600).values() for f in lane]
    timeouts_s = (SESSION_TIMEOUT_MS / 1_000, TRANSACTION_TIMEOUT_MS / 1_000)

    long = {"stop-worker", "stop-worker-in-transaction"}
    assert all(f.stop_s > max(timeouts_s) + 2 for f in faults if f.kind in long)
    assert all(0 < f.stop_s < min(timeouts_s) for f in faults if f.kind == "stop-worker-briefly")


def test_over_a_long_plan_every_step_is_hit():
    faults = [fault for lane in faults_of(5, seconds=3_600).values() for fault in lane]
    hit = {(fault.kind, fault.step) for fault in faults}

    wanted = {(kind, step) for kind, habit in KINDS.items() for step in habit.steps or ("",)}
    assert hit == wanted

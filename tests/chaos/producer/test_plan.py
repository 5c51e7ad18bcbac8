"""The stages of a run: every size of the fleet once, every fault in the stage it is due in."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.chaos.faults import KINDS, faults_of
from tests.chaos.producer.plan import SIZES, service_faults_of, worker_stages_of


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("seconds", [60, 300])
def test_the_stages_cover_the_run_and_hold_each_fault_once(seed, seconds):
    stages = worker_stages_of(seed, seconds=seconds)

    assert tuple(stage.workers for stage in stages) == SIZES == (1, 4, 2, 3)
    assert (stages[0].begins_s, stages[-1].ends_s) == (0, seconds)
    assert all(one.ends_s == next_.begins_s > one.begins_s for one, next_ in pairwise(stages))
    faults = [fault for stage in stages for fault in stage.faults]
    kinds = [kind for kind, one in KINDS.items() if one.lane == "workers" and kind != "rescale"]
    due = faults_of(seed, seconds=seconds, only=kinds)["workers"]
    assert [replace(one, must=False) for one in due if one.at_s < seconds] == faults
    for stage in stages:
        assert all(stage.begins_s <= fault.at_s < stage.ends_s for fault in stage.faults)


@pytest.mark.parametrize("seed", range(20))
def test_five_minutes_break_workers_and_services_in_every_way(seed):
    stages = worker_stages_of(seed, seconds=300)
    kinds = {fault.kind for stage in stages for fault in stage.faults}
    services = service_faults_of(seed, seconds=300)
    kinds |= {fault.kind for faults in services.values() for fault in faults}

    of_fleet = {kind for kind, one in KINDS.items() if one.lane != "consumer"}
    # The stages themselves rescale.
    assert kinds == of_fleet - {"rescale"}

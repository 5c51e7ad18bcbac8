"""A mirror that takes several releases at once: whatever step a run is killed at, it is one cut."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.checkpoint import Checkpoint
from tests.unit.spark_consumer.sinks.delta.test_output_proof import (
    BEFORE,
    TIMES_US,
    Kafka,
    cuts,
    mirrored,
    steps,
    times_us,
)
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.errors import CheckpointMismatch

CADENCES = [Cadence(every_us=2), Cadence(every_us=2, goal_us=TIMES_US[-1]), Cadence(1_000)]


def limits(cadence, rows_max=1):
    return Limits(release_rows_max=rows_max, cadence=cadence)


def run(checkpoint, *, kill_at=10**6, **options):
    """Run to the end, or to a step; return whether the run has ended."""
    running = steps(checkpoint, BEFORE, limits=limits(**options), kafka=Kafka())
    for _ in range(kill_at):
        if next(running, None) is None:
            return True
    running.close()
    return False


def assert_each_is_one_cut(checkpoint):
    found = cuts(checkpoint)
    assert [through_us for through_us, _ in found] == sorted(through_us for through_us, _ in found)
    for through_us, held in found:
        assert held == [us for us in TIMES_US if us <= through_us]
    for tables in (checkpoint.changelog, checkpoint.mirror):
        commits = Counter(one.transaction for one in tables["a"].commits if one.transaction)
        assert set(commits.values()) == {1}


@pytest.mark.parametrize("rows_max", [1, 100])
@pytest.mark.parametrize("cadence", CADENCES, ids=str)
def test_killed_at_any_step_the_next_run_ends_at_the_same_cuts(cadence, rows_max):
    kill_at, is_done = 0, False
    while not is_done:
        checkpoint = Checkpoint()
        is_done = run(checkpoint, kill_at=kill_at, cadence=cadence, rows_max=rows_max)
        if checkpoint.manifests():
            assert_each_is_one_cut(checkpoint)
        run(checkpoint, cadence=Cadence(1, goal_us=TIMES_US[-1]), rows_max=rows_max)
        assert_each_is_one_cut(checkpoint)
        assert times_us(checkpoint) == list(TIMES_US)
        kill_at += 1
    assert kill_at > 20


def test_releases_in_between_name_the_older_cut_and_one_merge_takes_them():
    checkpoint = Checkpoint()
    run(checkpoint, cadence=CADENCES[0], rows_max=100)
    assert [one.mirror_release for one in checkpoint.manifests()] == [0, 0, 2]
    merged = [one.transaction[1] for one in checkpoint.mirror["a"].commits if one.transaction]
    assert merged == [0, 2]
    assert mirrored(checkpoint) == list(TIMES_US)
    # At the end of a run the mirror has everything.
    checkpoint = Checkpoint()
    run(checkpoint, cadence=Cadence(1_000, goal_us=TIMES_US[-1]), rows_max=100)
    assert [one.mirror_release for one in checkpoint.manifests()] == [0, 0, 2]


def test_without_the_manifest_of_its_last_release_a_merge_ends_the_batch():
    checkpoint = Checkpoint()
    running = steps(checkpoint, BEFORE, limits=limits(CADENCES[0], rows_max=100), kafka=Kafka())
    for one in running:
        if one.step and (one.step.name, one.step.release) == ("sink-mirror", 2):
            break
    del checkpoint.store.objects["output/_releases/000000000002.json"]
    with pytest.raises(CheckpointMismatch, match="no manifest"):
        next(running)

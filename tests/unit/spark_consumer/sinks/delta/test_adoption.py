"""A checkpoint is lost at any step, and an empty one goes on with its output."""

from __future__ import annotations

import copy
import itertools
import json
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.simulation.checkpoint import Checkpoint
from tests.simulation.gate_rows import MemoryRows, Registry
from tests.simulation.gate_sinks import ChangelogModel, MirrorModel
from tests.unit.spark_consumer.batch.test_effect_loop import DATA, SCHEMAS, row
from tests.unit.spark_consumer.core.core_building import PROGRESS, SUBSCRIPTION, beat, opening
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.order_key import OrderKey
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.errors import CheckpointMismatch
from tidegate.spark_consumer.sinks.delta.adoption import prove_output
from tidegate.spark_consumer.sinks.delta.commit_log import CommitLog

TIMES_US = (10, 20, 30, 40, 50, 60)


# What each batch of the two checkpoints reads: up to which change, and the watermark at its end.
BEFORE = ((3, 20), (5, 40), (6, 60))

AFTER = ((2, 10), (4, 30), (6, 60))

EVERY_SECOND_BATCH = Cadence(every_us=2)

NEVER_AGAIN = Cadence(every_us=1_000)


class Kafka:
    """The topics, and the batches that a query cuts from them."""

    def __init__(self, start_us=0):
        self.start_us = start_us

    def batches(self, cuts):
        rows = [row(n, us) for n, us in enumerate(TIMES_US)]
        begin = 0
        for offset, (end, watermark_us) in enumerate(cuts, 2):
            begun = opening(start_us=self.start_us) if offset == 2 else ()
            progress = [*begun, beat(offset, watermark_us=watermark_us)]
            yield rows[begin:end], progress, {PROGRESS: {0: offset + 1}, DATA: {0: end}}
            begin = end


def steps(checkpoint, cuts, *, limits, kafka):
    """Run all batches on a checkpoint; yield before each step."""
    folder = checkpoint.gate(lambda _name, _content: None)
    writer = folder.take()
    files = GateFiles(folder)
    sinks = (
        ChangelogModel(checkpoint.changelog, None),
        MirrorModel(checkpoint.mirror, None, checkpoint.changelog),
    )
    for sink in sinks:
        sink.open(query_id="q", release_max=files.release_max(sink.name))
    parts = Parts(
        files=files,
        schemas=SchemaStore(folder, Registry(SCHEMAS, None)),
        sinks=sinks,
        output=checkpoint.output(folder),
        subscription=SUBSCRIPTION,
        query_id="q",
        limits=limits,
        code="1",
        topic_ids=lambda _topics: {},
        writer=writer,
        first_state=files.adopted(),
        now_us=itertools.count().__next__,
    )
    for batch, (rows, progress, ends) in enumerate(kafka.batches(cuts)):
        if batch <= checkpoint.committed:
            continue
        memory = MemoryRows(rows, [progress], segments=checkpoint.segments, late=checkpoint.late)
        loop = EffectLoop(batch, memory, end_offsets=ends, parts=parts)
        for step in loop.steps():
            yield SimpleNamespace(step=step, loop=loop)
        yield SimpleNamespace(step=None, loop=loop)
        # Killed before this, Spark repeats the batch although its state is stored.
        checkpoint.committed = batch


def proof_of(checkpoint):
    manifests = {one.release: one for one in checkpoint.manifests()}
    manifest = ([None, *manifests.values()])[-1]
    logs = {
        (sink, name): CommitLog(table, name, query_id="q", sink=sink)
        for sink, tables in (("changelog", checkpoint.changelog), ("mirror", checkpoint.mirror))
        for name, table in tables.items()
    }
    return prove_output(manifest, logs, manifest_of=manifests.get)


def adopted(former):
    """An empty checkpoint with the former one's output, which it has adopted."""
    proof = proof_of(former)
    checkpoint = Checkpoint(changelog=former.changelog, mirror=former.mirror)
    checkpoint.store.objects.update(
        {name: text for name, text in former.store.objects.items() if name.startswith("output/")}
    )
    folder = checkpoint.gate(lambda _name, _content: None)
    folder.take()
    state = State.adopted(prefix="bank", query_id="q", proof=proof, code="1")
    GateFiles(folder).store_adopted(state)
    return checkpoint


def times_us(checkpoint):
    return [
        OrderKey.decode(key).commit_timestamp_us
        for release in checkpoint.released()
        for key in release.order_keys
    ]


def mirrored(checkpoint):
    table = checkpoint.mirror["a"]
    return sorted(one["a"] for one in table.rows_at(table.head).values())


def run_until(checkpoint, kill_at, *, limits):
    """Run with the former cuts; return whether the run was killed before its end."""
    running = steps(checkpoint, BEFORE, limits=limits, kafka=Kafka())
    for _ in range(kill_at):
        if next(running, None) is None:
            return False
    running.close()
    return True


def cuts(checkpoint):
    """Where the mirrors stand by each manifest, and the changes that they hold there."""
    return [
        (mirror.through_us, sorted(row["a"] for row in mirror.rows.values()))
        for mirror in checkpoint.mirrors(lambda table: table)
    ]


@pytest.mark.parametrize("after", [Cadence(), EVERY_SECOND_BATCH, NEVER_AGAIN], ids=str)
@pytest.mark.parametrize("before", [Cadence(), EVERY_SECOND_BATCH, NEVER_AGAIN], ids=str)
@pytest.mark.parametrize("rows_max", [1, 2, 100])
def test_at_whatever_step_a_checkpoint_is_lost_the_output_goes_on(rows_max, before, after):
    limits = Limits(release_rows_max=rows_max, cadence=before)
    refused = resumed = begun = behind = kill_at = 0
    while True:
        former = Checkpoint()
        killed = run_until(former, kill_at, limits=limits)
        kill_at += 1
        if not former.manifests():
            with pytest.raises(ConfigError, match="no release manifest"):
                proof_of(former)
            refused += 1
            continue
        proof = proof_of(former)
        older = copy.deepcopy(former)
        named = former.manifests()[-1].tables["a"]["mirror"].version
        del older.mirror["a"].commits[named:]
        with pytest.raises(ConfigError):
            proof_of(older)
        begun += proof.begun_through_us is not None
        behind += proof.mirror_release is not None
        checkpoint = adopted(former)
        then = Limits(cadence=replace(after, goal_us=TIMES_US[-1]))
        loops = [step.loop for step in steps(checkpoint, AFTER, limits=then, kafka=Kafka())]
        assert times_us(checkpoint) == list(TIMES_US)
        for through_us, held in cuts(checkpoint):
            assert held == [us for us in TIMES_US if us <= through_us]
        assert mirrored(checkpoint) == list(TIMES_US)
        assert checkpoint.late == {}
        numbers = [manifest.release for manifest in checkpoint.manifests()]
        assert numbers == list(range(len(numbers)))
        edges = [(manifest.after_us, manifest.through_us) for manifest in checkpoint.manifests()]
        assert [low for low, _ in edges[1:]] == [high for _, high in edges[:-1]]
        assert loops[-1].state.adopts_through_us is None
        resumed += 1
        if not killed:
            break
    assert refused
    assert resumed > begun > 0
    assert bool(behind) is bool(before.every_us)


@pytest.mark.parametrize("cadence", [Cadence(), EVERY_SECOND_BATCH, NEVER_AGAIN], ids=str)
def test_a_run_that_goes_on_with_an_output_may_be_killed_at_any_step(cadence):
    former = Checkpoint()
    reached = 0
    while not (former.manifests() and is_begun(former, cadence)):
        former = Checkpoint()
        reached += 1
        run_until(former, reached, limits=Limits(release_rows_max=2, cadence=cadence))
    whole = steps(adopted(copy.deepcopy(former)), AFTER, limits=Limits(), kafka=Kafka())
    count = sum(1 for _ in whole)
    for kill_at in range(count):
        checkpoint = adopted(copy.deepcopy(former))
        running = steps(checkpoint, AFTER, limits=Limits(), kafka=Kafka())
        for _ in range(kill_at):
            next(running)
        running.close()
        list(steps(checkpoint, AFTER, limits=Limits(), kafka=Kafka()))
        assert times_us(checkpoint) == list(TIMES_US)
        assert mirrored(checkpoint) == list(TIMES_US)


def is_begun(checkpoint, cadence):
    """Whether a release, and where there is a cadence also a merge, is done in part."""
    proof = proof_of(checkpoint)
    return proof.begun_through_us and bool(cadence.every_us) is (proof.mirror_release is not None)


@pytest.mark.parametrize("loses", ["the manifest of its cut", "a merge"])
def test_a_mirror_whose_cut_is_not_proved_is_not_adopted(loses):
    former = Checkpoint()
    list(steps(former, BEFORE, limits=Limits(cadence=NEVER_AGAIN), kafka=Kafka()))
    assert proof_of(former).mirror_release == 0
    if loses == "a merge":
        last = former.mirror["a"].commits[-1]
        text = last.metadata.replace('"release": 0', '"release": 1').replace("20", "40")
        former.mirror["a"].commits.append(replace(last, metadata=text))
    else:
        del former.store.objects["output/_releases/000000000000.json"]
    with pytest.raises(ConfigError, match="without a manifest, or hold others"):
        proof_of(former)


def test_a_stream_that_began_after_the_output_ended_is_refused():
    former = Checkpoint()
    list(steps(former, BEFORE[:1], limits=Limits(), kafka=Kafka()))
    with pytest.raises(CheckpointMismatch, match="began after the end"):
        list(steps(adopted(former), AFTER, limits=Limits(), kafka=Kafka(start_us=25)))


def test_tables_that_contradict_the_newest_manifest_prove_nothing():
    former = Checkpoint()
    list(steps(former, BEFORE[:2], limits=Limits(), kafka=Kafka()))
    rolled_back = copy.deepcopy(former)
    del rolled_back.mirror["a"].commits[-1:]
    with pytest.raises(ConfigError, match="does not have the version"):
        proof_of(rolled_back)
    lost = copy.deepcopy(former)
    del lost.changelog["a"]
    with pytest.raises(ConfigError, match="does not have the version"):
        proof_of(lost)
    unmanifested = copy.deepcopy(former)
    for name in [one for one in unmanifested.store.objects if one.endswith("1.json")]:
        if name.startswith("output/"):
            del unmanifested.store.objects[name]
    assert proof_of(unmanifested).begun_through_us == 40
    two_ahead = copy.deepcopy(unmanifested)
    last = two_ahead.mirror["a"].commits[-1]
    text = last.metadata.replace('"release": 1', '"release": 2').replace("40", "60")
    two_ahead.mirror["a"].commits.append(replace(last, metadata=text))
    with pytest.raises(ConfigError, match="that no manifest names"):
        proof_of(two_ahead)


def clean_logs(checkpoint):
    """Let others commit, and Delta delete all commits that are older."""
    for table in (*checkpoint.changelog.values(), *checkpoint.mirror.values()):
        for _ in range(3):
            table.maintain()
        table.cleaned = table.head


def test_an_output_whose_logs_were_cleaned_is_adopted():
    for cadence in (Cadence(), NEVER_AGAIN):
        former = Checkpoint()
        list(steps(former, BEFORE[:2], limits=Limits(cadence=cadence), kafka=Kafka()))
        expected = proof_of(former)
        assert (expected.mirror_release is None) is (cadence.every_us == 0)
        clean_logs(former)
        assert proof_of(former) == expected
        checkpoint = adopted(former)
        list(steps(checkpoint, AFTER, limits=Limits(), kafka=Kafka()))
        assert times_us(checkpoint) == mirrored(checkpoint) == list(TIMES_US)


def test_a_release_of_which_only_a_table_knows_is_not_adopted():
    former = Checkpoint()
    list(steps(former, BEFORE[:2], limits=Limits(), kafka=Kafka()))
    (newest,) = (one for one in former.store.objects if one.endswith("/000000000001.json"))
    del former.store.objects[newest]
    assert proof_of(former).begun_through_us == 40
    clean_logs(former)
    with pytest.raises(ConfigError, match="was deleted from a table's log"):
        proof_of(former)


def test_a_sink_without_a_history_proves_nothing_and_is_in_no_ones_way():
    former = Checkpoint()
    list(steps(former, BEFORE[:1], limits=Limits(), kafka=Kafka()))
    (name,) = former.kept_manifests()
    content = json.loads(former.store.get(name))
    content["tables"]["a"]["parquet"] = {"path": "parquet/a/000000000000", "version": 0}
    former.store.objects[name] = json.dumps(content)
    assert proof_of(former).sinks == ("changelog", "mirror")
    content["tables"]["a"] = {"parquet": content["tables"]["a"]["parquet"]}
    former.store.objects[name] = json.dumps(content)
    with pytest.raises(ConfigError, match="names no Delta table"):
        proof_of(former)


# ---------------------------------------------------------------- several releases at once

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
        commits = Counter(
            commit.transaction for commit in tables["a"].commits if commit.transaction
        )
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
    assert [manifest.mirror_release for manifest in checkpoint.manifests()] == [0, 0, 2]
    merged = [
        commit.transaction[1] for commit in checkpoint.mirror["a"].commits if commit.transaction
    ]
    assert merged == [0, 2]
    assert mirrored(checkpoint) == list(TIMES_US)
    # At the end of a run the mirror has everything.
    checkpoint = Checkpoint()
    run(checkpoint, cadence=Cadence(1_000, goal_us=TIMES_US[-1]), rows_max=100)
    assert [manifest.mirror_release for manifest in checkpoint.manifests()] == [0, 0, 2]


def test_without_the_manifest_of_its_last_release_a_merge_ends_the_batch():
    checkpoint = Checkpoint()
    running = steps(checkpoint, BEFORE, limits=limits(CADENCES[0], rows_max=100), kafka=Kafka())
    for one in running:
        if one.step and (one.step.name, one.step.release) == ("sink-mirror", 2):
            break
    del checkpoint.store.objects["output/_releases/000000000002.json"]
    with pytest.raises(CheckpointMismatch, match="no manifest"):
        next(running)

"""A query with every sink, killed before each step of a batch, writes what one without a kill does.

Each step is yielded before it is done, so a kill before a step is one after the effect of the step
before it, and between any two sinks.  The batch has every kind of step.  The ordered topic is in
memory: tests/topic_contract.py holds that broker to a real one's behaviour.
"""

from __future__ import annotations

import copy
import json
import re
import shutil

import deltalake
import pyarrow.parquet
import pytest

from tests.memory_topic import MemoryStage
from tests.spark.batch.gate_world import LEDGER, GateWorld
from tests.topic_contract import NAMES
from tidegate.spark_consumer.batch import batch as batch_module
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.sinks.delta.changelog import DeltaChangelogSink
from tidegate.spark_consumer.sinks.delta.dead_letters import DeltaDeadLetters
from tidegate.spark_consumer.sinks.delta.direct_place import DirectPlace
from tidegate.spark_consumer.sinks.delta.direct_way import DirectWay
from tidegate.spark_consumer.sinks.delta.history_sink import DeltaHistorySink
from tidegate.spark_consumer.sinks.delta.late import DeltaLateTable
from tidegate.spark_consumer.sinks.delta.mirror import DeltaMirrorSink
from tidegate.spark_consumer.sinks.function import FunctionSink
from tidegate.spark_consumer.sinks.kafka.ordered_topic import OrderedTopicSink
from tidegate.spark_consumer.sinks.parquet import ParquetSink

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SINKS = ("changelog", "mirror", "history", "parquet", "topic", "function")
STEPS = (
    "load",
    "plan",
    "dead-letters",
    "late",
    "release",
    *(f"sink-{name}" for name in SINKS),
    "manifest",
    "drop-manifests",
    "pending",
    "state",
)
"""All that a batch can yield but `inspect`, which finds a damaged segment and ends the batch."""

AFTER_THE_LAST = "after the last"
CADENCES = {"each release": 0, "several at once": 1}
BATCH = 2
LIMITS = {
    "release_rows_max": 4,
    "segments_max": 1,
    "small_release_rows_max": 100,
    "small_release_bytes_max": 100_000,
    "releases_kept": 1,
}


class Killed(BaseException):
    """Stands for SIGKILL."""


class World(GateWorld):
    """A query with all sinks; the topic's broker and what the function has kept outlive it."""

    def __init__(self, spark, folder, *, every_us):
        super().__init__(spark, folder, **LIMITS, cadence=Cadence(every_us=every_us))
        self.sets_aside = self.records_mismatches = True
        self.stage, self.called = MemoryStage(), {}
        self.make_sinks = self._sinks
        self.make_late = lambda output: DeltaLateTable(output.root)
        self.make_dead_letters = lambda output: DeltaDeadLetters(output.root)

    def _sinks(self, output):
        spark, root = self.spark, output.root
        direct = DirectWay(DirectPlace(root.removeprefix("file:")))
        sinks = (
            DeltaChangelogSink(spark, root, direct=direct),
            DeltaMirrorSink(spark, root, direct=direct),
            DeltaHistorySink(spark, root, direct=direct),
            ParquetSink(spark, output),
            OrderedTopicSink(self.stage.process(), names=NAMES),
            FunctionSink(self._keep, spark=spark),
        )
        files = GateFiles(Storage(spark, str(self.folder / "gate")))
        for sink in sinks:
            sink.open(query_id="q", release_max=files.release_max(sink.name))
        return sinks

    def _keep(self, frame, release):
        rows = [json.dumps(row.asDict(recursive=True), default=str) for row in frame.collect()]
        assert self.called.setdefault(release.number, rows) == rows

    def copy(self, folder):
        """Return what survives a kill of the process, in another folder."""
        shutil.copytree(self.folder, folder)
        other = World(self.spark, folder, every_us=self.limits.cadence.every_us)
        other.cuts, other.log = self.cuts, self.log
        other.stage, other.called = copy.deepcopy(self.stage), copy.deepcopy(self.called)
        return other

    def content(self):
        """Return everything that a reader of any sink, or the next batch, can see."""
        output = self.folder / "output"
        tables = [log.parent for log in sorted(output.rglob("_delta_log"))]
        manifests = {
            file.name: file.read_text() for file in sorted((output / "_releases").glob("0*.json"))
        }
        gate = self.folder / "gate"
        return {
            "tables": {str(one.relative_to(output)): rows_of(one) for one in tables},
            "parquet": parquet_rows(output, manifests),
            "manifests": manifests,
            "topic": (self.stage.records(), self.stage.releases()),
            "function": self.called,
            "plan": comparable((gate / "plans" / f"{BATCH}.json").read_text()),
            "state": comparable((gate / "states" / f"{BATCH}.json").read_text()),
        }


def rows_of(table):
    return sorted(map(repr, deltalake.DeltaTable(table).to_pyarrow_table().to_pylist()))


def parquet_rows(output, manifests):
    found = {}
    for name, text in manifests.items():
        for table, sinks in json.loads(text)["tables"].items():
            folder = output / sinks["parquet"]["path"]
            rows = pyarrow.parquet.read_table(folder, partitioning=None).to_pylist()
            found[name, table] = sorted(map(repr, rows))
    return found


def comparable(text):
    """Leave out which run wrote a file, and the wall time at which the mirror was merged."""
    named = re.sub(r'("(?:name|frontier|origins_file)":"[0-9]+[^"/]*)/[0-9]+', r"\1", text)
    return re.sub(r'"(decided_at_us|mirror_merged_at_us)":[0-9]+', r'"\1":0', named)


def killing(place, seen):
    """Return a loop that ends before its step at a place; None: never."""

    class KillingLoop(EffectLoop):
        def steps(self):
            for number, step in enumerate(super().steps()):
                seen.append(step.name)
                if number == place:
                    raise Killed
                yield step
            if place is not None and place >= len(seen):
                raise Killed

    return KillingLoop


def write(world):
    """Two batches that leave releases and segments behind, and a third for every kind of step."""
    log = world.log
    for commit_us in (10, 11, 40, 41, 42, 60):
        log.change(commit_us)
    log.beat(11)
    yield
    for commit_us in (12, 50, 51, 61):
        log.change(commit_us, topic=LEDGER)
    log.beat(20)
    yield
    for commit_us in (15, 30, 31, 43, 70, 71):  # 15 is late
        log.change(commit_us, copies=1 + (commit_us == 31))
    log.foreign()
    log.change(44)
    del log.rows[-1][5][7:]
    log.beat(45)
    yield


@pytest.fixture(scope="module", params=CADENCES, ids=str)
def worlds(request, spark, tmp_path_factory):
    """The world before the batch, what it is after it, and the names of the batch's steps."""
    folder = tmp_path_factory.mktemp("sinks")
    before = World(spark, folder / "before", every_us=CADENCES[request.param])
    batch = before.start()
    for _ in write(before):
        before.cut()
        if len(before.cuts) <= BATCH:
            before.ask(batch, len(before.cuts) - 1)
    whole, seen = before.copy(folder / "whole"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batch_module, "EffectLoop", killing(None, seen))
        whole.ask(whole.start(), BATCH)
    return before, whole.content(), seen, folder


def test_the_batch_has_every_kind_of_step_and_every_sink_has_its_part(worlds):
    _, content, seen, _ = worlds
    assert set(seen) == set(STEPS)
    assert set(content["tables"]) >= {
        f"{folder}/{table}"
        for folder in ("changelog", "mirror", "history")
        for table in ("accounts", "ledger")
    } | {"late", "dead_letters"}
    assert len(content["tables"]["dead_letters"]) == 2
    assert len(content["tables"]["late"]) == 1
    assert len(content["function"]) >= 3
    assert all(content["parquet"].values())
    assert sum(map(len, content["topic"][0])) > 0


@pytest.mark.parametrize("step", [*STEPS, AFTER_THE_LAST])
def test_killed_before_a_step_the_repeated_batch_gives_the_same(worlds, step, monkeypatch):
    before, expected, seen, folder = worlds
    places = [n for n, name in enumerate(seen) if name == step] or [len(seen)]
    for place in places:
        world = before.copy(folder / f"{step}-{place}")
        monkeypatch.setattr(batch_module, "EffectLoop", killing(place, []))
        with pytest.raises(Killed):
            world.ask(world.start(), BATCH)
        monkeypatch.setattr(batch_module, "EffectLoop", EffectLoop)
        world.ask(world.start(), BATCH)
        found = world.content()
        for part, content in expected.items():
            assert found[part] == content, (part, place)
        shutil.rmtree(world.folder)

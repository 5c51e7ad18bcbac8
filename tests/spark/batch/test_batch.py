"""The batch function on real Spark, with hand-made rows in place of Kafka.

A recording sink stands for the tables.  Kills are exceptions after any effect; afterwards
everything in memory is created again, as after a SIGKILL, and Spark starts the same batch with the
same rows.
"""

from __future__ import annotations

import copy
import itertools
import shutil
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial

import pytest
import structlog

from tests.spark.gate_rows import GATE_SCHEMA
from tests.topics import Change, Topic
from tidegate.lineage.errors import MixedEpochs
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.topics import TopicNames
from tidegate.schemas.wire_format import frame
from tidegate.spark_consumer.batch.batch import Batch
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.batch.progress_rows import ProgressReader
from tidegate.spark_consumer.batch.segments import SegmentFiles
from tidegate.spark_consumer.batch.spark_rows import SparkRows
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.files import SEGMENTS
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.errors import CheckpointMismatch, RunStopped, UnorderedChange
from tidegate.spark_consumer.metrics import consumer_metrics
from tidegate.spark_consumer.sinks.manifest import read_manifest
from tidegate.spark_consumer.sinks.port import TableVersion

pytestmark = pytest.mark.spark

PROGRESS, ACCOUNTS, LEDGER = "bank-progress", "bank.accounts", "bank.ledger"
SUBSCRIPTION = Subscription(TopicNames("bank"))
PROGRESS_ID = 1


class Killed(BaseException):
    """Stands for SIGKILL."""


@dataclass
class Log:
    """Two data topics with one topic partition each, one slot, and the batches cut from them."""

    rows: list = field(default_factory=list)
    ends: dict = field(default_factory=dict)
    revision: int = 0

    def __post_init__(self):
        columns = {"id": "INT64"}
        self.topics = {
            ACCOUNTS: Topic("accounts", {2: columns}, ["id"], key_id=100),
            LEDGER: Topic("ledger", {3: columns}, ["id"], key_id=101),
        }
        child = ChildPartition("t", ("",), 0)
        self.progress(StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), (child,)))
        self.progress(PartitionAnnounced(child, ""))

    def schema(self, schema_id):
        """Stands for the registry."""
        if schema_id == PROGRESS_ID:
            return copy.deepcopy(RECORD_SCHEMA)
        schemas = {}
        for topic in self.topics.values():
            schemas |= topic.schemas | {topic.key_id: topic.key_schema}
        return schemas[schema_id]

    def _next(self, topic):
        offset = self.ends.get(topic, 0)
        self.ends[topic] = offset + 1
        return offset

    def progress(self, body, *, epoch="e"):
        value = frame(PROGRESS_ID, encode_record(ProgressRecord(epoch, "w", body)))
        key = frame(PROGRESS_ID, encode_key(body))
        row = (True, PROGRESS, 0, self._next(PROGRESS), bytearray(key), bytearray(value))
        self.rows.append((*row, None, None, None))

    def beat(self, watermark_us, **changes):
        self.revision += 1
        vector = tuple(TopicOffset(t, 0, e - 1) for t, e in self.ends.items() if t != PROGRESS)
        tokens = (TokenSnapshot("t", 0, (), (), watermark_us),)
        self.progress(SlotProgress(0, self.revision, 0, 1, vector, tokens), **changes)

    def change(self, commit_us, *, topic=ACCOUNTS, transaction="x", sequence=0, mod=0, copies=1):
        change = Change(
            "INSERT", {"id": commit_us}, {}, us=commit_us,
            transaction=transaction, sequence=sequence, mod_number=mod,
        )  # fmt: skip
        for _ in range(copies):
            key, value = map(bytearray, self.topics[topic].framed(change))
            row = (False, topic, 0, self._next(topic), key, value)
            self.rows.append((*row, bytearray(change.order_key), "I", change.origin))

    def cut(self):
        """Return the batch since the last cut."""
        rows, self.rows = self.rows, []
        return Cut(rows, {topic: {0: end} for topic, end in self.ends.items()})


@dataclass
class Cut:
    rows: list
    ends: dict


class RecordingSink:
    """Keeps releases outside of the process, as a table would."""

    name = "changelog"

    def __init__(self, kept):
        self.kept = kept

    def open(self, *, query_id, release_max):
        pass

    def write(self, release):
        rows = []
        for topic, table in release.tables.items():
            found = table.frame.collect()
            assert len(found) == table.rows
            rows += [
                (bytes(row.order_key), row.ordinal, topic, row.offset, row.key["id"])
                for row in found
            ]
        assert len(rows) == release.rows
        rows.sort()
        before = self.kept.setdefault(release.number, rows)
        assert before == rows
        tables = {table.schemas.table for table in release.tables.values()}
        return {table: TableVersion(f"changelog/{table}", release.number) for table in tables}


class RecordingLate:
    def __init__(self, kept):
        self.kept = kept

    def write(self, rows, *, query_id, batch, watermark_us):
        found = sorted((bytes(row.order_key), row.offset) for row in rows.collect())
        self.kept[batch] = (watermark_us, found)


class World:
    """What survives a kill: folders, tables, and the batches that Spark would start again."""

    def __init__(self, spark, folder, **limits):
        self.spark, self.folder, self.limits = spark, folder, Limits(**limits)
        self.released, self.late, self.cuts = {}, {}, []
        self.log = Log()

    def start(self, on_effect=lambda: None, code="1", registry=None):
        gate = Storage(self.spark, str(self.folder / "gate"))
        gate.take()
        output = Storage(self.spark, str(self.folder / "output"), guard=gate)
        sink, late = RecordingSink(self.released), RecordingLate(self.late)
        segments = SegmentFiles(self.spark, gate.path(SEGMENTS))
        for one, names in (
            (gate, ["write_json", "create_json", "delete"]),
            (output, ["write_json"]),
            (sink, ["write"]),
            (late, ["write"]),
            (segments, ["store", "join"]),
        ):
            for name in names:
                setattr(one, name, partial(_watched, getattr(one, name), on_effect))
        schemas = SchemaStore(gate, registry or self.log)
        progress = ProgressReader(schemas.schema)
        parts = Parts(
            files=GateFiles(gate),
            schemas=schemas,
            sinks=(sink,),
            output=output,
            subscription=SUBSCRIPTION,
            query_id="q",
            limits=self.limits,
            code=code,
        )
        return Batch(
            parts,
            rows_of=lambda frame: closing(
                SparkRows(frame, segments=segments, progress=progress, late=late)
            ),
            end_offsets=lambda batch: self.cuts[batch].ends,
            log=structlog.get_logger(),
            metrics=consumer_metrics(),
        )

    def cut(self):
        self.cuts.append(self.log.cut())
        return len(self.cuts) - 1

    def ask(self, batch, number):
        batch(self.spark.createDataFrame(self.cuts[number].rows, GATE_SCHEMA), number)

    def run(self, batch):
        states = []
        batch.finished = states.append
        self.ask(batch, self.cut())
        return states[0]

    def order_us(self, release):
        return [int.from_bytes(key[:8], "big") for key, *_ in self.released[release]]

    def manifest(self, release):
        return read_manifest(Storage(self.spark, str(self.folder / "output")), release)

    def files(self, kind):
        return sorted(
            path.name for path in (self.folder / "gate" / kind).glob("[!.]*") if path.exists()
        )


def _watched(effect, on_effect, *arguments, **named):
    result = effect(*arguments, **named)
    on_effect()
    return result


@pytest.fixture
def world(spark, tmp_path):
    return World(spark, tmp_path)


def test_changes_wait_for_the_watermark_and_come_in_commit_order(world):
    batch = world.start()
    log = world.log
    for commit_us in (30, 10, 20):
        log.change(commit_us)
    log.change(15, topic=LEDGER)
    state = world.run(batch)
    assert (state.watermark_us, world.released) == (-1, {})

    log.change(12, topic=LEDGER)
    log.beat(19)
    state = world.run(batch)
    assert state.watermark_us == 19
    assert world.order_us(0) == [10, 12, 15]
    assert [ordinal for _, ordinal, *_ in world.released[0]] == [0, 1, 2]
    assert [topic for _, _, topic, *_ in world.released[0]] == [ACCOUNTS, LEDGER, LEDGER]

    log.beat(100)
    state = world.run(batch)
    assert world.order_us(1) == [20, 30]
    assert state.segments == ()
    manifest = world.manifest(1)
    assert (manifest.after_us, manifest.through_us, manifest.rows) == (19, 100, 2)
    assert set(manifest.tables) == {"accounts", "ledger"}
    assert world.late == {}


def test_equal_timestamps_stay_together_in_their_own_order(world):
    for transaction, sequence, mod in (("b", 0, 0), ("a", 1, 1), ("a", 1, 0), ("a", 0, 0)):
        world.log.change(10, transaction=transaction, sequence=sequence, mod=mod)
    world.log.beat(10)
    world.run(world.start())
    keys = [OrderKey.decode(key) for key, *_ in world.released[0]]
    found = [(k.server_transaction_id, k.record_sequence[1], k.mod_number) for k in keys]
    assert found == [("a", 0, 0), ("a", 1, 0), ("a", 1, 1), ("b", 0, 0)]


def test_copies_of_a_change_count_once_also_from_a_segment(world):
    batch = world.start()
    world.log.change(10, copies=3)
    world.run(batch)
    world.log.change(10, copies=2)
    world.log.change(11)
    world.log.beat(50)
    world.run(batch)
    assert world.order_us(0) == [10, 11]
    # The first copy by offset is the one that stays.
    assert world.released[0][0][3] == 0


def test_an_idle_batch_writes_no_release_but_moves_the_watermark(world):
    batch = world.start()
    world.log.beat(50)
    assert world.run(batch).watermark_us == 50
    world.log.beat(70)
    state = world.run(batch)
    assert (state.watermark_us, state.next_release, world.released) == (70, 0, {})


def test_a_late_change_is_set_aside_counted_and_never_released(world):
    batch = world.start()
    world.log.change(10)
    world.log.beat(20)
    world.run(batch)
    world.log.change(15)
    world.log.change(25)
    world.log.beat(30)
    state = world.run(batch)
    watermark_us, late = world.late[1]
    assert watermark_us == 20
    assert [int.from_bytes(key[:8], "big") for key, _ in late] == [15]
    assert world.order_us(1) == [25]
    assert state.late_rows == 1


def test_a_large_release_is_cut_and_its_parts_are_adjacent(spark, tmp_path):
    world = World(spark, tmp_path, release_rows_max=10)
    for commit_us in range(100, 140):
        world.log.change(commit_us)
    world.log.beat(200)
    state = world.run(world.start())
    assert state.next_release == len(world.released) >= 4
    together = [us for number in sorted(world.released) for us in world.order_us(number)]
    assert together == list(range(100, 140))
    assert max(len(rows) for rows in world.released.values()) <= 10
    bounds = [(world.manifest(n).after_us, world.manifest(n).through_us) for n in range(4)]
    assert all(a[1] == b[0] for a, b in itertools.pairwise(bounds))


def test_a_stall_is_compacted_and_loses_nothing(spark, tmp_path):
    world = World(spark, tmp_path, segments_max=3, segment_rows_max=4)
    batch = world.start()
    expected = []
    for number in range(4):
        for commit_us in range(100 + number, 140, 7):
            world.log.change(commit_us)
            expected.append(commit_us)
        state = world.run(batch)
    assert len(state.segments) <= 6
    world.log.beat(130)
    world.run(batch)
    world.log.beat(500)
    state = world.run(batch)
    together = [us for number in sorted(world.released) for us in world.order_us(number)]
    assert together == sorted(expected)
    assert state.segments == ()
    world.run(batch)
    assert world.files("segments") == []


def test_a_change_without_order_key_stops_the_gate(world):
    world.log.change(10)
    world.log.rows[-1] = (*world.log.rows[-1][:6], None, None, None)
    batch = world.start()
    with pytest.raises(UnorderedChange, match=r"bank\.accounts/0/0"):
        world.run(batch)
    assert isinstance(batch.failure, UnorderedChange)
    assert world.files("states") == []


def test_two_epochs_stop_the_gate(world):
    world.log.beat(10)
    world.log.beat(20, epoch="another")
    with pytest.raises(MixedEpochs):
        world.run(world.start())


def test_a_replay_obeys_the_plan_it_finds_and_reads_no_progress(world):
    world.log.change(10)
    world.log.beat(10)
    world.run(world.start())
    reference = dict(world.released)
    (world.folder / "gate" / "states" / "0.json").unlink()
    # Compaction has taken progress records away, and the registry is gone.
    world.cuts[0].rows = [row for row in world.cuts[0].rows if not row[0]]
    world.ask(world.start(code="2", registry=object()), 0)
    assert world.released == reference
    assert world.files("states") == ["0.json"]


def test_other_end_offsets_than_the_plans_are_refused(world):
    world.log.change(10)
    world.log.beat(10)
    world.run(world.start())
    world.cuts[0].ends[ACCOUNTS] = {0: 99}
    with pytest.raises(CheckpointMismatch, match="end_offsets"):
        world.ask(world.start(), 0)


def test_a_batch_without_the_state_before_it_is_refused(world):
    world.cut()
    world.cut()
    with pytest.raises(CheckpointMismatch, match="no state"):
        world.ask(world.start(), 1)


def test_a_plan_that_another_run_has_stored_meanwhile_ends_the_batch(world):
    world.log.change(10)
    world.log.beat(10)
    plans = world.folder / "gate" / "plans"

    def plan_first():
        if world.files("frontiers") and not plans.exists():
            plans.mkdir()
            (plans / "0.json").write_text("{}")

    with pytest.raises(CheckpointMismatch, match="another run"):
        world.run(world.start(plan_first))
    assert (plans / "0.json").read_text() == "{}"
    assert (world.released, world.files("states")) == ({}, [])


def test_no_batch_begins_after_stop(world):
    batch = world.start()
    batch.stop()
    with pytest.raises(RunStopped):
        world.run(batch)
    assert batch.failure is None
    assert world.files("states") == []


def scenario(world):
    """Two batches, and what a third with every kind of step is asked to do."""
    batch = world.start()
    log = world.log
    for commit_us in (10, 40, 41, 42, 60):
        log.change(commit_us)
    log.beat(9)
    world.run(batch)
    for commit_us in (11, 50, 51, 61):
        log.change(commit_us, topic=LEDGER)
    log.beat(20)
    world.run(batch)
    for commit_us in (15, 30, 31, 43, 70, 71):
        log.change(commit_us)
    log.beat(45)
    world.cut()


@pytest.mark.slow
def test_killed_anywhere_in_a_batch_the_replay_gives_the_same(spark, tmp_path):
    limits = {"release_rows_max": 3, "segments_max": 1}
    reference = World(spark, tmp_path / "reference", **limits)
    scenario(reference)
    before = dict(reference.released)
    shutil.copytree(tmp_path / "reference", tmp_path / "before")
    effects = []
    reference.ask(reference.start(lambda: effects.append(0)), 2)
    assert set(reference.late) == {2}
    assert len(reference.released) > len(before) + 1
    plan = (tmp_path / "reference" / "gate" / "plans" / "2.json").read_text()
    assert '"compaction":{' in plan
    assert len(effects) > 10

    for kill_at in range(len(effects)):
        world = World(spark, tmp_path / f"kill-{kill_at}", **limits)
        shutil.copytree(tmp_path / "before", world.folder)
        world.cuts, world.log, world.released = reference.cuts, reference.log, dict(before)
        countdown = iter(range(kill_at, -1, -1))

        def kill(countdown=countdown):
            if next(countdown) == 0:
                raise Killed

        with pytest.raises(Killed):
            world.ask(world.start(kill), 2)
        world.ask(world.start(), 2)
        assert world.released == reference.released
        assert world.late == reference.late
        for number in range(max(world.released) + 1):
            assert world.manifest(number) == reference.manifest(number)
        for name in ("plans/2.json", "states/2.json"):
            found = (world.folder / "gate" / name).read_text()
            assert found == (tmp_path / "reference" / "gate" / name).read_text()
        assert world.files("segments") == reference.files("segments")
        shutil.rmtree(world.folder)

"""The effect loop over rows, files and tables in memory."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from types import SimpleNamespace

import pytest

from tests.simulation.checkpoint import Checkpoint
from tests.simulation.gate_rows import DataRow, MemoryRows, Registry
from tests.simulation.gate_sinks import ChangelogModel, MirrorModel
from tests.simulation.handed import HandedModel
from tests.simulation.tables import KEY
from tests.topics import Change, Topic
from tests.unit.spark_consumer.core.core_building import PROGRESS, SUBSCRIPTION, beat, opening
from tidegate.program.open_lineage import Dataset
from tidegate.schemas.errors import ConfigError, InvariantViolation
from tidegate.schemas.order_key import OrderKey
from tidegate.spark_consumer.batch import batch_lineage, effect_loop
from tidegate.spark_consumer.batch.batch_lineage import BatchLineage
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.errors import (
    ChangesNotConserved,
    TransactionIncomplete,
    WriterReplaced,
)
from tidegate.spark_consumer.sinks.manifest import read_manifest
from tidegate.spark_consumer.sinks.port import TableVersion

TABLE = Topic("a", {2: {KEY: "INT64", "a": "INT64"}}, [KEY], key_id=1)

DATA = TABLE.topic

SCHEMAS = SimpleNamespace(schema={**TABLE.schemas, TABLE.key_id: TABLE.key_schema}.__getitem__)


def row(offset, commit_us, records=1):
    order_key = OrderKey(commit_us, "t", (0, 0), 0).encode()
    change = Change("INSERT", {KEY: commit_us}, {"a": commit_us}, records=records)
    return DataRow(order_key, DATA, 0, offset, *TABLE.framed(change), change.origin)


def progress(watermark_us):
    return [*opening(), beat(2, watermark_us=watermark_us)]


class Gate:
    """A checkpoint, and runs on it."""

    def __init__(self, *commit_times_us, watermark_us=20):
        self.checkpoint = Checkpoint()
        self.topic_ids = {}
        self.records_mismatches = False
        self.late_events = None
        rows = [row(n, us) for n, us in enumerate(commit_times_us or (10, 20, 30, 40))]
        self.rows = self.memory(rows, [progress(watermark_us)])

    def memory(self, rows=(), progress=(), *, of=MemoryRows, **named):
        checkpoint = self.checkpoint
        places = {"segments": checkpoint.segments, "late": checkpoint.late}
        return of(rows, progress, **places, **named)

    def loop(
        self,
        *,
        batch=0,
        limits=None,
        sinks=("changelog", "mirror"),
        rows=None,
        data=4,
        progress_end=3,
        code="1",
    ):
        folder = self.checkpoint.gate(lambda _name, _content: None)
        writer = folder.take()
        made = (
            ChangelogModel(self.checkpoint.changelog, None),
            HandedModel(self.checkpoint.handed, None),
            MirrorModel(self.checkpoint.mirror, None, self.checkpoint.changelog),
            Refusing({}, None),
        )
        for sink in made:
            sink.open(query_id="q", release_max=99)
        self.output = self.checkpoint.output(folder)
        parts = Parts(
            files=GateFiles(folder),
            schemas=SchemaStore(folder, Registry(SCHEMAS, None)),
            sinks=[sink for sink in made if sink.name in sinks],
            output=self.output,
            subscription=SUBSCRIPTION,
            query_id="q",
            limits=limits or Limits(),
            code=code,
            topic_ids=lambda topics: self.topic_ids,
            writer=writer,
            late_events=self.late_events,
            records_mismatches=self.records_mismatches,
        )
        ends = {PROGRESS: {0: progress_end}, DATA: {0: data}}
        return EffectLoop(batch, rows or self.rows, end_offsets=ends, parts=parts)

    def released(self):
        return [
            [OrderKey.decode(key).commit_timestamp_us for key in release.order_keys]
            for release in self.checkpoint.released()
        ]

    def handed(self):
        return {n: [row.offset for row in rows] for n, rows in self.checkpoint.handed.items()}

    def replace(self):
        self.checkpoint.gate(lambda _name, _content: None).take()


def names(loop):
    return [step.name for step in loop.steps()]


def until(loop, *wanted):
    """Run up to a step of this name, and of this release if one is given."""
    steps = loop.steps()
    for step in steps:
        if (step.name, step.release)[: len(wanted)] == wanted:
            break
    steps.close()


def killed(loop, kill_at):
    """Run this number of steps, or all."""
    steps = loop.steps()
    for _ in islice(steps, kill_at):
        pass
    steps.close()


def replaced_at(name, gate, loop):
    """Run a loop that another run replaces before its steps of this name."""
    for step in loop.steps():
        if step.name == name:
            gate.replace()


def test_a_batch_is_released_stored_and_counted():
    gate = Gate()
    loop = gate.loop()
    for read in (lambda: loop.plan, lambda: loop.state):
        with pytest.raises(InvariantViolation):
            read()
    steps = [(step.name, step.release) for step in loop.steps()]
    assert list(dict.fromkeys(name for name, _ in steps)) == [
        "load", "plan", "release", "sink-changelog", "sink-mirror", "manifest", "pending", "state",
    ]  # fmt: skip
    assert ("manifest", 0) in steps
    assert gate.released() == [[10, 20]]
    assert [len(rows) for rows in gate.checkpoint.segments.values()] == [2]
    assert (loop.input_rows, loop.released_rows) == (7, 2)
    assert (loop.state.batch, loop.state.watermark_us) == (0, 20)
    assert loop.frontier.watermark().us == 20


class Followed:
    """Keeps what is reported of runs; it asks for the datasets each time."""

    def __init__(self):
        self.calls = []

    def follow(self, *, rows, watermark_us, schemas, datasets):
        self.calls.append(
            (dict(rows), watermark_us, {schema.topic for schema in schemas}, datasets())
        )


@pytest.mark.parametrize(
    ("sink", "path", "place"),
    [
        ("mirror", "mirror/a", ("s3://bucket", "lake/mirror/a")),
        ("parquet", "parquet/a/release=3", ("s3://bucket", "lake/parquet/a")),
        ("transactions", "transactions", ("s3://bucket", "lake/transactions")),
        ("iceberg_mirror", "iceberg/x_mirror/a", ("s3://bucket", "lake/iceberg/x_mirror/a")),
        ("topic", "ordered", ("kafka://b:1", "ordered")),
    ],
)
def test_lineage_names_the_topics_and_tables_of_a_batch(monkeypatch, sink, path, place):
    gate, followed = Gate(), Followed()
    loop = gate.loop()
    names(loop)
    manifest = SimpleNamespace(tables={"a": {sink: TableVersion(path, 1)}})
    monkeypatch.setattr(batch_lineage, "read_manifest", lambda _output, _release: manifest)
    lineage = BatchLineage(followed, loop._parts, output="s3a://bucket/lake", brokers="b:1,c:2")
    lineage(loop)
    ((rows, watermark_us, schemas, (inputs, outputs)),) = followed.calls
    assert (rows, watermark_us, schemas) == ({"a": 2}, 20, {DATA})
    fields = ((KEY, "long"), ("a", "long"))
    assert inputs == (Dataset("kafka://b:1", DATA, fields),)
    assert outputs == (Dataset(*place, fields, rows_of="a"),)
    # A batch without a release is no progress.
    idle = gate.loop(batch=1, rows=gate.memory())
    names(idle)
    lineage(idle)
    assert len(followed.calls) == 1


class Refusing(ChangelogModel):
    """A sink that takes no table, whatever comes before it."""

    name = "refusing"

    def admit(self, tables):
        raise ConfigError("not this one", tables=[table.table for table in tables])


@pytest.mark.parametrize("sinks", [("changelog", "refusing"), ("handed", "changelog", "refusing")])
def test_a_sink_refuses_a_table_before_any_other_has_written(sinks):
    gate = Gate()
    with pytest.raises(ConfigError, match=r"tables=\['a'\]"):
        names(gate.loop(sinks=sinks))
    assert (gate.released(), gate.handed()) == ([], {})


def test_times_of_released_changes_are_kept_also_of_those_that_waited():
    gate = Gate()
    loop = gate.loop()
    names(loop)
    assert sorted(loop.released_times_us) == [10, 20]
    # What waited in a segment, once the watermark has passed it, and nothing twice.
    loop = gate.loop(
        batch=1, rows=gate.memory([], [[beat(3, watermark_us=40)]]), progress_end=4,
            )  # fmt: skip
    names(loop)
    assert gate.released() == [[10, 20], [30, 40]]
    assert sorted(loop.released_times_us) == [30, 40]


@pytest.mark.rule("sink-mirror", "sink-joins-by-release")
@pytest.mark.parametrize("every_us", [0, 10**9])
def test_a_mirror_that_joins_has_all_that_was_released_before(every_us):
    limits = Limits(cadence=Cadence(every_us=every_us))

    def begun():
        gate = Gate()
        names(gate.loop(sinks=("changelog",)))
        return gate, gate.loop(batch=1, limits=limits, rows=gate.memory())

    for kill_at in range(len(names(begun()[1]))):
        gate, loop = begun()
        killed(loop, kill_at)
        again = gate.loop(batch=1, rows=gate.memory())
        names(again)
        table = next(iter(gate.checkpoint.mirror.values()))
        assert len(table.rows_at(table.head)) == 2
        assert again.state.sinks == ("changelog", "mirror")
        assert (again.state.mirrored, again.state.begins) == (0, {})
        assert read_manifest(gate.output, 0).mirror_release == 0


@pytest.mark.parametrize("step", ["late", "sink-mirror", "pending", "state"])
def test_a_replaced_run_stops_before_its_next_write(step):
    gate = Gate(10, 20, 30)
    names(gate.loop())
    later = gate.memory([row(4, 5), row(5, 25), row(6, 50)], [[beat(3, watermark_us=30)]])
    loop = gate.loop(batch=1, rows=later, data=7, progress_end=4)
    with pytest.raises(WriterReplaced):
        replaced_at(step, gate, loop)
    assert 1 not in gate.checkpoint.late or step != "late"


def test_late_events_are_named_before_their_release_is_published(monkeypatch):
    monkeypatch.setattr(effect_loop, "SOURCE_ORDER", "a")  # a column of the table
    found, published = [], []

    def late_events(release):
        found.append(release.number)
        published.append(list(gate.released()))
        return 1

    gate = Gate()
    gate.late_events = late_events
    # Killed here, the release and its late events are written again.
    until(gate.loop(limits=Limits(release_rows_max=1)), "sink-changelog", 1)
    assert (found, published) == ([0, 1], [[], [[10]]])
    again = gate.loop()
    steps = [name for name in names(again) if name in ("late-events", "sink-changelog")]
    assert steps == ["late-events", "sink-changelog"] * 2
    assert (found[2:], again.late_events) == ([0, 1], 2)


def test_a_release_of_a_change_stream_is_not_searched_for_late_events():
    gate = Gate()
    gate.late_events = lambda _: pytest.fail("the table has no column that orders it")
    assert "late-events" not in names(gate.loop())


@pytest.mark.parametrize("records_mismatches", [False, True])
def test_a_transaction_that_lacks_a_record_stops_the_gate_or_is_recorded(records_mismatches):
    gate = Gate(10, 20)
    gate.records_mismatches = records_mismatches
    gate.topic_ids = {"bank-dead-letter": None}
    gate.rows._rows[1] = row(1, 20, records=2)
    loop = gate.loop()
    if not records_mismatches:
        with pytest.raises(TransactionIncomplete, match="expected=2, found=1"):
            names(loop)
        assert (gate.released(), gate.checkpoint.manifested()) == ([], [])
        return
    names(loop)
    assert gate.released() == [[10, 20]]
    (manifest,) = [read_manifest(gate.output, 0)]
    assert (manifest.mismatches, loop.recorded, loop.state.mismatches) == (1, 1, 1)
    (listed,) = manifest.first_mismatches
    assert listed == loop.mismatches[0].content()
    assert (listed["commit_us"], listed["fault"]) == (20, "changes are missing")


class LosesLateRows(MemoryRows):
    """Rows whose late table keeps one row less."""

    def set_late_aside(self, plan):
        super().set_late_aside(plan)
        return len(self._late[plan.batch][1:])


def test_a_late_row_that_its_table_lacks_ends_the_batch_before_anything_is_released():
    gate = Gate(10, 20)
    names(gate.loop())
    later = gate.memory([row(4, 15), row(5, 16)], progress(40), of=LosesLateRows)
    with pytest.raises(ChangesNotConserved, match="read=2") as raised:
        names(gate.loop(batch=1, rows=later, data=6))
    assert raised.value.fields["stored"] == 1
    assert gate.released() == [[10, 20]]


# ---------------------------------------------------------------- batches that are handed over
WITH_HANDED = ("changelog", "handed", "mirror")


@pytest.mark.rule("sink-by-key-early")
def test_a_batch_is_handed_over_before_its_release_with_what_waits_for_the_watermark():
    gate = Gate()
    until(gate.loop(sinks=WITH_HANDED), "release")
    assert (gate.released(), gate.handed()) == ([], {0: [0, 1, 2, 3]})
    names(gate.loop(sinks=WITH_HANDED))
    idle = gate.loop(batch=1, rows=gate.memory(), sinks=WITH_HANDED)
    assert "hand-over-handed" not in names(idle)


@pytest.mark.rule("sink-function-key", "sink-replay")
def test_a_batch_is_handed_over_once_more_after_a_kill_at_any_step():
    count = len(names(Gate().loop(sinks=WITH_HANDED)))
    for kill_at in range(count):
        gate = Gate()
        killed(gate.loop(sinks=WITH_HANDED), kill_at)
        gate.checkpoint.handed.clear()  # what the killed run was handed counts for nothing
        names(gate.loop(sinks=WITH_HANDED))
        assert gate.handed() == {0: [0, 1, 2, 3]}, kill_at
        assert gate.released() == [[10, 20]]


@pytest.mark.rule("sink-joins-by-batch")
def test_a_sink_that_joins_is_handed_the_batches_that_are_planned_with_it():
    gate = Gate()
    until(gate.loop(sinks=("changelog",)), "release")
    names(gate.loop(sinks=WITH_HANDED[:2]))
    assert gate.handed() == {}
    more = gate.memory([row(4, 50)])
    names(gate.loop(batch=1, rows=more, sinks=WITH_HANDED[:2], data=5))
    assert gate.handed() == {1: [4]}


def test_segments_that_are_joined_are_released_as_they_waited_after_a_kill_at_any_step():
    limits = Limits(segment_rows_max=1, segments_max=1)

    def begun():
        gate = Gate()  # the changes at 30 and 40 wait, in a segment each
        names(gate.loop(limits=limits))
        return gate

    def joining(gate):
        rows = gate.memory([row(4, 50)], [[beat(3, watermark_us=21)]])
        return gate.loop(batch=1, limits=limits, rows=rows, data=5, progress_end=4)

    for kill_at in range(len(names(joining(begun()))) + 1):
        gate = begun()
        assert len(gate.checkpoint.segments) == 2
        killed(joining(gate), kill_at)
        again = joining(gate)
        names(again)
        assert [(segment.min_us, segment.max_us) for segment in again.state.segments] == [
            (30, 40),
            (50, 50),
        ]
        rows = gate.memory((), [[beat(4, watermark_us=60)]])
        names(gate.loop(batch=2, rows=rows, data=5, progress_end=5))
        assert gate.released() == [[10, 20], [30, 40, 50]]


class LosesRows(MemoryRows):
    """Rows of which a replay has fewer."""

    def handed_over(self, *, plan, topics):
        self._rows = self._rows[1:]
        return super().handed_over(plan=plan, topics=topics)


def test_rows_that_the_plan_counted_and_the_batch_lacks_end_it_before_the_hand_over():
    gate = Gate()
    rows = gate.memory(gate.rows._rows, [progress(20)], of=LosesRows)
    with pytest.raises(ChangesNotConserved, match="planned=4, found=3"):
        names(gate.loop(sinks=WITH_HANDED, rows=rows))
    assert gate.handed() == {}
    # A replaced run hands nothing over.
    gate = Gate()
    with pytest.raises(WriterReplaced):
        replaced_at("hand-over-handed", gate, gate.loop(sinks=WITH_HANDED))
    assert gate.handed() == {}


class WithDeadLetters(MemoryRows):
    """Rows beside which two have no order key, and one of each release cannot be decoded."""

    def __init__(self, *arguments, table, **named):
        super().__init__(*arguments, **named)
        self.table = table

    def count_changes(self, **bounds):
        stats = super().count_changes(**bounds)
        due = replace(stats.due, rows=stats.due.rows + 1)
        return replace(stats, dead_letters=2, due=due)

    def store_dead_letters(self, plan, release):
        rows = 2 if release is None else 1
        return self.table.setdefault((plan.batch, release), rows)

    @contextmanager
    def release(self, bounds, **named):
        with super().release(bounds, **named) as (release, count):
            yield release, replace(count, dead_letters=1)


@pytest.mark.parametrize("is_replaced", [False, True])
def test_dead_letters_are_stored_before_what_follows_them_and_counted(is_replaced):
    gate, table = Gate(10, 20), {}
    rows = gate.memory(gate.rows._rows, [progress(20)], of=WithDeadLetters, table=table)
    loop = gate.loop(rows=rows)
    if is_replaced:
        with pytest.raises(WriterReplaced):
            replaced_at("dead-letters", gate, loop)
        assert table == {}
        return
    steps = [
        (step.name, step.release) for step in loop.steps() if step.name not in ("load", "plan")
    ]
    assert steps[:3] == [("dead-letters", None), ("release", 0), ("dead-letters", 0)]
    assert table == {(0, None): 2, (0, 0): 1}
    assert (loop.dead_letters, loop.state.dead_letters) == (3, 3)
    assert gate.released() == [[10, 20]]


# ---------------------------------------------------------------- any batches, killed anywhere

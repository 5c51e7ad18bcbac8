"""The effect loop over rows, files and tables in memory."""

from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest

from tests.simulation.checkpoint import Checkpoint
from tests.simulation.gate_rows import DataRow, MemoryRows, Registry
from tests.simulation.gate_sinks import ChangelogModel, MirrorModel
from tests.simulation.handed import HandedModel
from tests.simulation.tables import KEY
from tests.topics import Change, Topic
from tidegate.lineage.frontier import ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
)
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.batch import effect_loop
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.core.cadence import Cadence
from tidegate.spark_consumer.core.gate import Limits
from tidegate.spark_consumer.errors import (
    ChangesNotConserved,
    CheckpointMismatch,
    TransactionIncomplete,
    WriterReplaced,
)
from tidegate.spark_consumer.sinks.manifest import read_manifest

TABLE = Topic("a", {2: {KEY: "INT64", "a": "INT64"}}, [KEY], key_id=1)
PROGRESS, DATA = "bank-progress", TABLE.topic
SCHEMAS = SimpleNamespace(schema={**TABLE.schemas, TABLE.key_id: TABLE.key_schema}.__getitem__)
ENDS = {PROGRESS: {0: 3}, DATA: {0: 4}}


def row(offset, commit_us, records=1):
    order_key = OrderKey(commit_us, "t", (0, 0), 0).encode()
    change = Change("INSERT", {KEY: commit_us}, {"a": commit_us}, records=records)
    return DataRow(order_key, DATA, 0, offset, *TABLE.framed(change), change.origin)


def progress(watermark_us):
    child = ChildPartition("t", ("",), 0)
    bodies = (
        StreamStarted("s", "g", 0, None, "bank-fleet", 1, "id", (), (child,)),
        PartitionAnnounced(child, ""),
        SlotProgress(0, 1, 0, 1, (), (TokenSnapshot("t", 0, (), (), watermark_us),)),
    )
    return [
        ProgressRow(0, offset, ProgressRecord("e", "w", body)) for offset, body in enumerate(bodies)
    ]


class Gate:
    """A checkpoint, and runs on it."""

    def __init__(self, *commit_times_us, watermark_us=20):
        self.checkpoint = Checkpoint()
        self.topic_ids = {}
        self.records_mismatches = False
        self.late_events = None
        rows = [row(n, us) for n, us in enumerate(commit_times_us or (10, 20, 30, 40))]
        self.rows = MemoryRows(
            rows, [progress(watermark_us)],
            segments=self.checkpoint.segments, late=self.checkpoint.late,
        )  # fmt: skip

    def loop(self, *, batch=0, limits=None, sinks=("changelog", "mirror"), rows=None):
        folder = self.checkpoint.gate(lambda _name, _content: None)
        writer = folder.take()
        made = (
            ChangelogModel(self.checkpoint.changelog, None),
            HandedModel(self.checkpoint.handed, None),
            MirrorModel(self.checkpoint.mirror, None, self.checkpoint.changelog),
        )
        for sink in made:
            sink.open(query_id="q", release_max=99)
        self.output = self.checkpoint.output(folder)
        parts = Parts(
            files=GateFiles(folder),
            schemas=SchemaStore(folder, Registry(SCHEMAS, None)),
            sinks=[sink for sink in made if sink.name in sinks],
            output=self.output,
            subscription=Subscription(TopicNames("bank")),
            query_id="q",
            limits=limits or Limits(),
            code="1",
            topic_ids=lambda topics: self.topic_ids,
            writer=writer,
            late_events=self.late_events,
            records_mismatches=self.records_mismatches,
        )
        return EffectLoop(batch, rows or self.rows, end_offsets=ENDS, parts=parts)

    def released(self):
        return [
            [OrderKey.decode(key).commit_timestamp_us for key in release.order_keys]
            for release in self.checkpoint.released()
        ]


def names(loop):
    return [step.name for step in loop.steps()]


def test_a_batch_is_released_stored_and_counted():
    gate = Gate()
    loop = gate.loop()
    steps = names(loop)
    assert list(dict.fromkeys(steps)) == [
        "load", "plan", "release", "sink-changelog", "sink-mirror", "manifest", "pending", "state",
    ]  # fmt: skip
    assert gate.released() == [[10, 20]]
    assert [len(rows) for rows in gate.checkpoint.segments.values()] == [2]
    assert (loop.input_rows, loop.released_rows) == (7, 2)
    assert (loop.state.batch, loop.state.watermark_us) == (0, 20)
    assert loop.frontier.watermark().us == 20


def test_steps_of_a_release_name_it():
    gate = Gate()
    loop = gate.loop(limits=Limits(release_rows_max=1))
    found = [(step.name, step.release) for step in loop.steps() if step.name == "manifest"]
    assert found == [("manifest", 0), ("manifest", 1)]
    assert gate.released() == [[10], [20]]


def test_dropped_between_any_two_steps_another_attempt_ends_the_same():
    limits = Limits(release_rows_max=1, segment_rows_max=1)
    reference = Gate()
    count = len(names(reference.loop(limits=limits)))
    for kill_at in range(count):
        gate = Gate()
        steps = gate.loop(limits=limits).steps()
        for _ in range(kill_at):
            next(steps)
        steps.close()
        again = gate.loop(limits=Limits())
        names(again)
        assert gate.released() == (reference.released() if again.frontier is None else [[10, 20]])


def test_a_replay_executes_the_plan_it_finds_and_reads_no_progress():
    gate = Gate()
    steps = gate.loop(limits=Limits(release_rows_max=1)).steps()
    while next(steps).name != "release":
        pass
    nothing = MemoryRows(
        gate.rows._rows, (), segments=gate.checkpoint.segments, late=gate.checkpoint.late
    )
    again = gate.loop(rows=nothing)
    assert "plan" not in names(again)
    assert gate.released() == [[10], [20]]
    assert (again.input_rows, again.frontier) == (0, None)


def test_a_plan_of_other_sinks_is_refused():
    gate = Gate()
    steps = gate.loop().steps()
    while next(steps).name != "release":
        pass
    with pytest.raises(CheckpointMismatch, match="sinks"):
        names(gate.loop(sinks=("changelog",)))


def idle(gate):
    """The rows of a batch that reads nothing."""
    return MemoryRows((), (), segments=gate.checkpoint.segments, late=gate.checkpoint.late)


@pytest.mark.rule("sink-mirror", "sink-joins-by-release")
@pytest.mark.parametrize("every_us", [0, 10**9])
def test_a_mirror_that_joins_has_all_that_was_released_before(every_us):
    limits = Limits(cadence=Cadence(every_us=every_us))

    def begun():
        gate = Gate()
        names(gate.loop(sinks=("changelog",)))
        return gate, gate.loop(batch=1, limits=limits, rows=idle(gate)).steps()

    count = sum(1 for _ in begun()[1])
    for kill_at in range(count):
        gate, steps = begun()
        for _ in range(kill_at):
            next(steps)
        steps.close()
        again = gate.loop(batch=1, rows=idle(gate))
        names(again)
        table = next(iter(gate.checkpoint.mirror.values()))
        assert len(table.rows_at(table.head)) == 2
        assert again.state.sinks == ("changelog", "mirror")
        assert (again.state.mirrored, again.state.begins) == (0, {})
        assert read_manifest(gate.output, 0).mirror_release == 0


@pytest.mark.rule("sink-joins-by-release")
def test_a_sink_that_joins_begins_with_the_next_release():
    gate = Gate()
    names(gate.loop(sinks=("mirror",)))
    again = gate.loop(batch=1, rows=idle(gate))
    names(again)
    assert again.state.begins == {"changelog": 1}


@pytest.mark.parametrize("step", ["late", "sink-mirror", "pending", "state"])
def test_a_replaced_run_stops_before_its_next_write(step):
    gate = Gate(10, 20, 30)
    names(gate.loop())
    late = MemoryRows(
        [row(4, 5), row(5, 25), row(6, 50)],
        [[ProgressRow(0, 3, ProgressRecord("e", "w", SlotProgress(
            0, 2, 0, 1, (), (TokenSnapshot("t", 0, (), (), 30),))))]],
        segments=gate.checkpoint.segments, late=gate.checkpoint.late,
    )  # fmt: skip
    ends = {PROGRESS: {0: 4}, DATA: {0: 7}}
    loop = gate.loop(batch=1, rows=late)
    loop._end_offsets = ends
    replace_before = (
        gate.checkpoint.gate(lambda _name, _content: None).take() if one.name == step else None
        for one in loop.steps()
    )
    with pytest.raises(WriterReplaced):
        list(replace_before)
    assert 1 not in gate.checkpoint.late or step != "late"


def test_an_unfinished_batch_has_no_state_and_no_plan():
    loop = Gate().loop()
    for read in (lambda: loop.plan, lambda: loop.state):
        with pytest.raises(InvariantViolation):
            read()


def test_late_rows_go_to_their_table_and_nowhere_else():
    gate = Gate(10, 20)
    names(gate.loop())
    later = MemoryRows(
        [row(4, 15)], (), segments=gate.checkpoint.segments, late=gate.checkpoint.late
    )
    loop = gate.loop(batch=1, rows=later)
    loop._end_offsets = {PROGRESS: {0: 3}, DATA: {0: 5}}
    assert "late" in names(loop)
    assert [one.commit_timestamp_us for one in gate.checkpoint.late[1]] == [15]
    assert gate.released() == [[10, 20]]
    assert SimpleNamespace(late=loop.plan.late_rows) == SimpleNamespace(late=1)


def test_late_events_are_named_before_their_release_is_published(monkeypatch):
    monkeypatch.setattr(effect_loop, "SOURCE_ORDER", "a")  # a column of the table
    found, published = [], []

    def late_events(release):
        found.append(release.number)
        published.append(list(gate.released()))
        return 1

    gate = Gate()
    gate.late_events = late_events
    loop = gate.loop(limits=Limits(release_rows_max=1))
    for step in loop.steps():
        if (step.name, step.release) == ("sink-changelog", 1):
            break  # killed: the release and its late events are written again
    assert (found, published) == ([0, 1], [[], [[10]]])
    again = gate.loop()
    assert [one for one in names(again) if one in ("late-events", "sink-changelog")] == [
        "late-events", "sink-changelog", "late-events", "sink-changelog",
    ]  # fmt: skip
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
    later = LosesLateRows(
        [row(4, 15), row(5, 16)],
        progress(40),
        segments=gate.checkpoint.segments,
        late=gate.checkpoint.late,
    )
    loop = gate.loop(batch=1, rows=later)
    loop._end_offsets = {PROGRESS: {0: 3}, DATA: {0: 6}}
    with pytest.raises(ChangesNotConserved, match="read=2") as raised:
        names(loop)
    assert raised.value.fields["stored"] == 1
    assert gate.released() == [[10, 20]]


WITH_HANDED = ("changelog", "handed", "mirror")


def offsets(rows):
    return [row.offset for row in rows]


@pytest.mark.rule("sink-by-key-early")
def test_a_batch_is_handed_over_before_its_release_with_what_waits_for_the_watermark():
    gate = Gate()
    for step in gate.loop(sinks=WITH_HANDED).steps():
        if step.name == "release":
            break
    assert gate.released() == []
    assert {n: offsets(rows) for n, rows in gate.checkpoint.handed.items()} == {0: [0, 1, 2, 3]}


@pytest.mark.rule("sink-function-key", "sink-replay")
def test_a_batch_is_handed_over_once_more_after_a_kill_at_any_step():
    count = len(names(Gate().loop(sinks=WITH_HANDED)))
    for kill_at in range(count):
        gate = Gate()
        steps = gate.loop(sinks=WITH_HANDED).steps()
        for _ in range(kill_at):
            next(steps)
        steps.close()
        gate.checkpoint.handed.clear()  # what the killed run was handed counts for nothing
        names(gate.loop(sinks=WITH_HANDED))
        assert offsets(gate.checkpoint.handed[0]) == [0, 1, 2, 3], kill_at
        assert gate.released() == [[10, 20]]


@pytest.mark.rule("sink-joins-by-batch")
def test_a_sink_that_joins_is_handed_the_batches_that_are_planned_with_it():
    gate = Gate()
    steps = gate.loop(sinks=("changelog",)).steps()
    while next(steps).name != "release":
        pass
    steps.close()
    names(gate.loop(sinks=WITH_HANDED[:2]))
    assert gate.checkpoint.handed == {}
    more = MemoryRows(
        [row(4, 50)], (), segments=gate.checkpoint.segments, late=gate.checkpoint.late
    )
    loop = gate.loop(batch=1, rows=more, sinks=WITH_HANDED[:2])
    loop._end_offsets = {PROGRESS: {0: 3}, DATA: {0: 5}}
    names(loop)
    assert {n: offsets(rows) for n, rows in gate.checkpoint.handed.items()} == {1: [4]}


def test_a_batch_without_changes_is_not_handed_over():
    gate = Gate()
    names(gate.loop(sinks=WITH_HANDED))
    assert "hand-over-handed" not in names(gate.loop(batch=1, rows=idle(gate), sinks=WITH_HANDED))


def test_a_replaced_run_hands_nothing_over():
    gate = Gate()
    loop = gate.loop(sinks=WITH_HANDED)
    replace_before = (
        gate.checkpoint.gate(lambda _name, _content: None).take()
        for one in loop.steps()
        if one.name == "hand-over-handed"
    )
    with pytest.raises(WriterReplaced):
        list(replace_before)
    assert gate.checkpoint.handed == {}


class LosesRows(MemoryRows):
    """Rows of which a replay has fewer."""

    def handed_over(self, *, plan, topics):
        self._rows = self._rows[1:]
        return super().handed_over(plan=plan, topics=topics)


def test_rows_that_the_plan_counted_and_the_batch_lacks_end_it_before_the_hand_over():
    gate = Gate()
    rows = LosesRows(
        gate.rows._rows, [progress(20)],
        segments=gate.checkpoint.segments, late=gate.checkpoint.late,
    )  # fmt: skip
    with pytest.raises(ChangesNotConserved, match="planned=4, found=3"):
        names(gate.loop(sinks=WITH_HANDED, rows=rows))
    assert gate.checkpoint.handed == {}


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


def test_dead_letters_are_stored_before_what_follows_them_and_counted():
    gate, table = Gate(10, 20), {}
    rows = WithDeadLetters(
        gate.rows._rows, [progress(20)],
        segments=gate.checkpoint.segments, late=gate.checkpoint.late, table=table,
    )  # fmt: skip
    loop = gate.loop(rows=rows)
    steps = [
        (step.name, step.release) for step in loop.steps() if step.name not in ("load", "plan")
    ]
    assert steps[:3] == [("dead-letters", None), ("release", 0), ("dead-letters", 0)]
    assert table == {(0, None): 2, (0, 0): 1}
    assert (loop.dead_letters, loop.state.dead_letters) == (3, 3)
    assert gate.released() == [[10, 20]]


def test_a_replaced_run_stores_no_dead_letters():
    gate, table = Gate(10, 20), {}
    rows = WithDeadLetters(
        gate.rows._rows, [progress(20)],
        segments=gate.checkpoint.segments, late=gate.checkpoint.late, table=table,
    )  # fmt: skip
    loop = gate.loop(rows=rows)
    steps = loop.steps()
    assert "dead-letters" in (step.name for step in steps)
    gate.checkpoint.gate(lambda _name, _content: None).take()
    with pytest.raises(WriterReplaced):
        next(steps)
    assert table == {}

"""One consumer process: Spark's micro-batches around the production effect loop.

The loop (`batch.effect_loop`) runs over rows, files, tables and a registry in memory; the gate's
files, the schema store, the writers' numbers, the manifests and the tables' commit logs are
production code as well.  A batch reads what its end offsets say at the moment when it reads: a
replay after a compaction gets other progress rows than the first attempt did.  The process can be
killed or replaced between any two steps, and disturbed inside of one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from random import Random
from typing import Any

from tests.simulation.checkpoint import Checkpoint, Ends
from tests.simulation.delta import ConcurrentCommit, SchemaMismatch
from tests.simulation.gate_decoding import signed
from tests.simulation.gate_rows import DataRow, MemoryRows, Registry
from tests.simulation.gate_sinks import ChangelogModel, MirrorModel
from tests.simulation.handed import HandedModel, require_handed
from tests.simulation.history import Claim, MirrorSight
from tests.simulation.object_store import StoreClient
from tidegate.lineage.frontier import Frontier, ProgressRow
from tidegate.lineage.subscription import Subscription
from tidegate.producer.memory.broker import TOMBSTONE
from tidegate.producer.messages import ChangeMessage
from tidegate.schemas.errors import (
    ConsumerError,
    InvariantViolation,
    TidegateError,
    UnreachableError,
    invariant,
)
from tidegate.schemas.order_key import OrderKey
from tidegate.schemas.progress import SlotWatermark
from tidegate.spark_consumer.batch.effect_loop import EffectLoop
from tidegate.spark_consumer.batch.ports import Parts
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles, newest_state
from tidegate.spark_consumer.checkpoint.schema_store import SchemaStore
from tidegate.spark_consumer.checkpoint.writers import Writers
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.file_names import PLANS
from tidegate.spark_consumer.core.limits import Limits
from tidegate.spark_consumer.core.plan import Plan
from tidegate.spark_consumer.errors import (
    ChangesNotConserved,
    CheckpointConflict,
    ConflictingCopies,
    DataTopicChanged,
    SegmentDamaged,
    StreamPartitionIncomplete,
    TransactionIncomplete,
    WriterReplaced,
)
from tidegate.spark_consumer.sinks.manifest import first_manifest, newest_manifest, read_manifest


class SupersededError(Exception):
    """The run has ended in a way that the run explains: replaced, or a request failed."""


class Consumer:
    """One run; `step` does the next thing, `SupersededError` ends it."""

    def __init__(self, world, checkpoint: Checkpoint, limits: Limits) -> None:
        self._world = world
        self._random: Random = world.random
        self._checkpoint = checkpoint
        self._disturbance = checkpoint.disturbance
        if checkpoint.has_mirror is None:
            checkpoint.has_mirror = not world.weather.mirror_joins
        self._limits = limits
        self._subscription = Subscription(world.names)
        self._topics: set[str] = set()
        self._gate = checkpoint.gate(self._note_plan)
        self._ended: Exception | None = None
        self._begun_us = 0
        self._work = self._run()

    @property
    def is_superseded(self) -> bool:
        try:
            self._gate.require_writer()
        except WriterReplaced:
            return True
        return False

    def step(self) -> None:
        """Do the next thing; raises what a failure that nothing explains raises."""
        if self._ended is not None:
            raise self._ended
        disturbance = self._disturbance
        if disturbance is not None:
            disturbance.is_quiet = self._world.is_healing
            disturbance.enter(self)
        try:
            next(self._work)
        except (UnreachableError, ConcurrentCommit) as error:
            self._world.tell("consumer", "fault", f"the run ended: {error!r}")
            raise SupersededError from error
        except (SchemaMismatch, TypeError, ValueError) as error:
            # What a user would see as a traceback.
            raise TidegateError(f"{type(error).__name__}: {error}") from error
        finally:
            if disturbance is not None:
                disturbance.leave()

    def step_beside(self) -> bool:
        """Do the next thing while another process stands still; return whether this one lives."""
        if self._ended is None:
            try:
                self.step()
            except Exception as error:  # noqa: BLE001 - raised by the next `step`
                self._ended = error
        return self._ended is None

    def _run(self) -> Iterator[None]:
        """Start the query, and start it again where a replaced run has written late."""
        while True:
            writer = self._gate.take()
            self._require_only_writer(writer)
            yield
            parts = self._parts(writer)
            yield
            try:
                yield from self._query(parts)
            except CheckpointConflict as conflict:
                if self.is_superseded:
                    raise SupersededError from conflict
                self._world.tell("consumer", "fault", "a replaced run wrote late")
            self._gate = self._checkpoint.gate(self._note_plan)

    def _query(self, parts: Parts) -> Iterator[None]:
        """Do what Spark does: it reads its logs when a query starts, and then only adds to them."""
        checkpoint = self._checkpoint
        batch = checkpoint.committed + 1
        before = checkpoint.offsets.get(batch - 1, {})
        ends = checkpoint.offsets.get(batch)
        while not self._lets_a_mirror_join():
            if ends is None:
                ends = yield from self._next_ends(before)
                if ends == before:
                    ends = None
                    yield
                    continue
                self._require_new(batch not in checkpoint.offsets, batch)
                checkpoint.offsets[batch] = ends
            yield
            yield from self._batch(batch, before, ends, parts)
            yield  # the state is stored, and Spark does not know of it yet
            self._require_new(batch > checkpoint.committed, batch)
            checkpoint.committed = batch
            checkpoint.offsets.pop(batch - 2, None)
            batch, before, ends = batch + 1, ends, None
            yield

    def _lets_a_mirror_join(self) -> bool:
        world, checkpoint = self._world, self._checkpoint
        if checkpoint.has_mirror:
            return False
        chance = 1.0 if world.is_healing else world.weather.mirror_joins
        if self.is_superseded or self._random.random() >= chance:
            return False
        newest = newest_state(self._gate)
        if newest is not None and newest.stream_has_ended:
            return False  # no batch follows with which it could join, and it is refused
        world.tell("consumer", "fault", "a mirror joins")
        checkpoint.has_mirror = True
        return True

    def _parts(self, writer: int) -> Parts:
        checkpoint, disturbance = self._checkpoint, self._disturbance
        files = GateFiles(self._gate)
        identity = files.identify(self._world.names, output="output", new_id=lambda: "query")
        sinks: tuple[ChangelogModel | HandedModel | MirrorModel, ...] = (
            ChangelogModel(checkpoint.changelog, disturbance),
            HandedModel(checkpoint.handed, disturbance),
            MirrorModel(checkpoint.mirror, disturbance, checkpoint.changelog),
        )
        sinks = sinks if checkpoint.has_mirror else sinks[:2]
        for sink in sinks:
            sink.open(query_id=identity.query_id, release_max=files.release_max(sink.name))
        return Parts(
            files=files,
            schemas=SchemaStore(self._gate, Registry(self._world.registry, disturbance)),
            sinks=sinks,
            output=checkpoint.output(self._gate),
            subscription=self._subscription,
            query_id=identity.query_id,
            limits=self._limits,
            code="code",
            topic_ids=self._world.topic_ids,
            writer=writer,
            now_us=self._now_us,
        )

    def _require_only_writer(self, writer: int) -> None:
        runs = self._checkpoint.runs
        for number in runs:
            former = Writers(StoreClient(self._checkpoint.store, "gate", None))
            former.number = number
            with suppress(WriterReplaced):
                former.require()
                raise InvariantViolation("a former run is not refused", run=number)
        invariant(writer > max(runs, default=0), "a run's number was taken before", run=writer)
        runs.append(writer)

    def _now_us(self) -> int:
        self._begun_us = self._world.now_us
        return self._begun_us

    @staticmethod
    def _require_new(is_new: bool, batch: int) -> None:
        """Spark's logs take each batch once."""
        if not is_new:
            raise CheckpointConflict(
                "Multiple streaming queries are concurrently using the log", batch=batch
            )

    def _next_ends(self, before: Ends) -> Iterator[None]:
        """Cut the next micro-batch anywhere; topics are discovered when they are."""
        world, random = self._world, self._random
        ends: Ends = {topic: dict(of) for topic, of in before.items()}
        self._topics |= set(before)
        topics = [*world.data_topics, world.names.progress]
        if not world.is_healing:
            random.shuffle(topics)
        for topic in topics:
            if topic not in self._topics and topic != world.names.progress:
                if random.random() < 0.3 and not world.is_healing:
                    continue
                self._topics.add(topic)
            world.ground.require_same(topic, before.get(topic, {}))
            for number in range(world.broker.topic_partitions(topic)):
                begin = self._begin(topic, number, before)
                stable = world.broker.logs[topic, number].stable_end
                end = max(begin, stable)
                if not world.is_healing and random.random() < world.weather.lag:
                    end = begin
                elif not world.is_healing and random.random() < 0.6:
                    end = random.randint(begin, end)
                ends.setdefault(topic, {})[number] = end
            yield
        return ends

    def _begin(self, topic: str, number: int, before: Ends) -> int:
        """Return where a topic partition is read on, as Spark's Kafka source does.

        A query without offsets begins with what retention has left, and says nothing.  After that
        it refuses what has expired, also in a topic partition that it has just discovered.
        """
        world, firsts = self._world, self._checkpoint.firsts
        known = before.get(topic, {}).get(number)
        if known is None:
            is_first = self._checkpoint.committed < 0 and not before
            known = firsts.get((topic, number))
            if known is None:
                known = world.ground.begins_at(topic, number) if is_first else 0
                firsts[topic, number] = known
        world.ground.require_kept(topic, number, known)
        return known

    def _batch(self, batch: int, begins: Ends, ends: Ends, parts: Parts) -> Iterator[None]:
        checkpoint = self._checkpoint
        read = self._rows(begins, ends)
        if checkpoint.losses is not None:
            read = checkpoint.losses.read(read)
        read = list(read)
        rows = MemoryRows(
            read, list(self._progress(begins, ends)),
            segments=self._checkpoint.segments, late=self._checkpoint.late,
            disturbance=self._disturbance,
            # Every third run lacks delta-rs, whatever the plan says.
            collects=bool((self._gate.writers.number or 0) % 3),
        )  # fmt: skip
        parts = replace(parts, complete_from_us=self._complete_from_us())
        loop = EffectLoop(batch, rows, end_offsets=ends, parts=parts)
        for step in loop.steps():
            self._world.tell("consumer", "step", step)
            if self._checkpoint.damage is not None:
                self._checkpoint.damage.step(self._checkpoint.segments)
            yield
        require_handed(checkpoint.handed, batch, read)
        if loop.frontier is not None:
            self._world.measure_frontier(loop.frontier)
            self._require_stored(loop.frontier, loop.state)
            self._world.ground.note_batch(batch, loop.frontier.topic_ids)
        self._require_state(loop.state)
        self._require_manifests(loop.state)
        self._note_mirror(loop.state)
        self._world.measure_files()

    def _complete_from_us(self) -> int | None:
        skipped = self._world.history.skipped
        times_us = (OrderKey.decode(key).commit_timestamp_us for key in skipped)
        return max(times_us, default=None)

    def _require_stored(self, frontier: Frontier, state: State) -> None:
        if self.is_superseded:
            return  # its successor may have deleted it
        stored = GateFiles(self._gate).frontier(str(state.frontier), self._subscription)
        invariant(
            stored is not None
            and stored.frontier.watermark() == frontier.watermark()
            and stored.frontier.gaps == frontier.gaps,
            "the stored frontier is another one",
            batch=state.batch,
        )

    def _require_state(self, state: State) -> None:
        stored = GateFiles(self._gate).state(state.batch)
        invariant(
            self.is_superseded or stored == state,
            "the stored state is another one",
            batch=state.batch,
        )

    def _require_manifests(self, state: State) -> None:
        if self.is_superseded:
            return
        output = StoreClient(self._checkpoint.store, "output", None)
        kept = range(first_manifest(output), state.next_release)
        invariant(
            not state.next_release or len(kept) >= min(self._limits.releases_kept, kept.stop),
            "too many manifests were dropped",
            kept=kept,
        )
        mirrors = {state.mirrored} if state.next_release else set()
        for release in {*kept[:1], *kept[len(kept) // 2 :][:1], *kept[-1:], *mirrors}:
            manifest = read_manifest(output, release)
            found = None
            if manifest is not None:
                found = newest_manifest(output, watermark_us=manifest.through_us)
            invariant(found is not None and found == manifest, "a manifest is lost", kept=kept)

    def _note_mirror(self, state: State) -> None:
        """Note where the mirrors stand, unless a successor may have gone on already."""
        newest = state.next_release - 1
        if newest < 0 or self.is_superseded or "mirror" not in state.sinks:
            return
        decided_us, every_us = self._checkpoint.decided[state.batch]
        mirror = self._checkpoint.mirror_release(newest)
        sight = MirrorSight(
            state.batch, decided_us, every_us, newest, mirror, has_ended=state.stream_has_ended
        )
        self._world.history.mirror_sights.append(sight)
        if mirror is not None and mirror < newest:
            self._world.tell("consumer", "fault", "the mirror stands at an older release")

    def _note_plan(self, name: str, content: Any) -> None:
        """Note each plan at the moment when it is stored: the gate's claims of the watermark."""
        if name.startswith(f"{PLANS}/"):
            plan = Plan.restore(content)
            self._world.tell("consumer", "event", plan)
            for step in plan.steps:
                self._world.tell("consumer", "plans", step)
            every_us = self._limits.cadence.every_us
            self._checkpoint.decided[plan.batch] = (self._begun_us, every_us)
            attempt = self._gate.writers.number or 0
            self._world.claimed(Claim(plan.batch, attempt, plan.through_us, plan.end_offsets))

    def _rows(self, begins: Ends, ends: Ends) -> Iterator[DataRow]:
        for topic in self._world.data_topics:
            self._world.ground.require_same(topic, ends.get(topic, {}))
            for number, end in ends.get(topic, {}).items():
                if (topic, number) not in self._world.broker.logs:
                    continue
                begin = self._begin(topic, number, begins)
                for entry in self._world.broker.logs[topic, number].read(begin, end):
                    if entry.value is TOMBSTONE:  # `kafka_columns` drops what has no value
                        continue
                    message: ChangeMessage = entry.value
                    yield DataRow(
                        message.order_key, topic, number, entry.offset, message.key, message.value,
                        signed(message.origin),
                    )  # fmt: skip

    def _progress(self, begins: Ends, ends: Ends) -> Iterator[list[ProgressRow]]:
        """Yield portions: each goes on where the one before it ended, in every slot."""
        topic = self._world.names.progress
        rows: list[ProgressRow] = []
        newest: dict[tuple[int, bytes], int] = {}
        for slot, end in ends.get(topic, {}).items():
            begin = begins.get(topic, {}).get(slot, 0)
            for entry in self._world.broker.logs[topic, slot].read(begin, end):
                if entry.value is not TOMBSTONE:
                    rows.append(ProgressRow(slot, entry.offset, entry.value))
                newest[slot, entry.key] = entry.offset
        if self._random.random() < self._world.thinning:
            # A large batch is thinned to the newest record of each key, and some of the minutes.
            kept = {(slot, offset) for (slot, _), offset in newest.items()}
            rows = _without_minutes([row for row in rows if (row.slot, row.offset) in kept])
        by_slot = {slot: iter([row for row in rows if row.slot == slot]) for slot in self._slots()}
        self._random.shuffle(rows)
        interleaved = [next(by_slot[row.slot]) for row in rows]
        size = 1 + len(rows) % 7
        for begin in range(0, len(rows), size):
            yield interleaved[begin : begin + size][::-1]

    def _slots(self) -> range:
        return range(self._world.broker.topic_partitions(self._world.names.progress))


def _without_minutes(rows: list[ProgressRow]) -> list[ProgressRow]:
    """Leave out every second minute of each slot, neither the first nor the last."""
    minutes: dict[int, dict[int, None]] = {}
    for row in rows:
        if isinstance(row.record.body, SlotWatermark):
            minutes.setdefault(row.slot, {})[row.record.body.minute] = None
    gone = {(slot, minute) for slot, of in minutes.items() for minute in [*of][1:-1:2]}
    return [
        row
        for row in rows
        if not isinstance(row.record.body, SlotWatermark)
        or (row.slot, row.record.body.minute) not in gone
    ]


REFUSALS = (
    ChangesNotConserved,
    ConflictingCopies,
    DataTopicChanged,
    SegmentDamaged,
    StreamPartitionIncomplete,
    TransactionIncomplete,
)  # a restart refuses again


def is_explained(world, error: ConsumerError) -> bool:
    damage, losses = world.checkpoint.damage, world.checkpoint.losses
    match error:
        case ConflictingCopies():
            return world.copies.are_damaged
        case DataTopicChanged() | ChangesNotConserved():
            # A replay follows its plan, and what it reads of the new topic is something else.
            return any(map(world.ground.has_changed, world.data_topics))
        case StreamPartitionIncomplete():
            return losses is not None and error.fields["origin"] in losses.origins
        case TransactionIncomplete():
            return losses is not None and losses.transaction == error.fields["transaction"]
        case _:
            return damage is not None and damage.is_done

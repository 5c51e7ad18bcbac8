"""One consumer process: Spark's micro-batches around the gate's production core.

A batch reads whatever its end offsets say, at the moment when it reads: a replay after a compaction
gets other progress rows than the first attempt did.  Work is cut into single effects, so that the
process can be killed, or superseded, between any two of them, also between two sinks of one
release.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from tests.simulation.checkpoint import Checkpoint, DataRow, Ends
from tests.simulation.history import Claim, Released
from tidegate.producer.messages import ChangeMessage
from tidegate.schemas.order_key import first_key_after
from tidegate.spark_consumer.core import batch_effects as do
from tidegate.spark_consumer.core import batch_events as on
from tidegate.spark_consumer.core.batch_run import BatchRun
from tidegate.spark_consumer.core.batch_state import State
from tidegate.spark_consumer.core.files import SEGMENTS, frontier_file, plan_file, state_file
from tidegate.spark_consumer.core.frontier import Frontier, ProgressRow
from tidegate.spark_consumer.core.gate import Census, Limits
from tidegate.spark_consumer.core.plan import (
    CompactSegments,
    Plan,
    ReleaseBounds,
    SetLateAside,
    StoreSegment,
    WriteRelease,
)
from tidegate.spark_consumer.core.release import Distribution
from tidegate.spark_consumer.core.subscription import Subscription

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Consumer"]


class Consumer:
    """See the module; `step` does the next thing, `SupersededError` ends it."""

    def __init__(self, world: World, checkpoint: Checkpoint, limits: Limits) -> None:
        self._world = world
        self._random: Random = world.random
        self._checkpoint = checkpoint
        self._limits = limits
        self._epoch = checkpoint.take_over()
        self._subscription = Subscription(world.names)
        self._topics: set[str] = set()
        self._work = self._batches()

    @property
    def is_superseded(self) -> bool:
        """Whether another consumer has taken the checkpoint over."""
        return self._epoch != self._checkpoint.epoch

    def step(self) -> None:
        next(self._work)

    # ------------------------------------------------------------ Spark

    def _batches(self) -> Iterator[None]:
        checkpoint = self._checkpoint
        while True:
            batch = checkpoint.committed + 1
            if batch not in checkpoint.offsets:
                ends = yield from self._next_ends(checkpoint.offsets.get(batch - 1, {}))
                if ends == checkpoint.offsets.get(batch - 1):
                    yield
                    continue
                checkpoint.require(self._epoch)
                checkpoint.offsets[batch] = ends
            yield
            yield from self._run(batch, checkpoint.offsets[batch])
            yield  # the state is stored, and Spark does not know of it yet
            checkpoint.require(self._epoch)
            checkpoint.committed = batch
            checkpoint.offsets.pop(batch - 2, None)
            yield

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
            for number in range(world.topic_partitions_of(topic)):
                begin = ends.get(topic, {}).get(number, 0)
                stable = world.broker.logs[topic, number].stable_end
                end = max(begin, stable)
                if not world.is_healing and random.random() < world.weather.lag:
                    end = begin
                elif not world.is_healing and random.random() < 0.6:
                    end = random.randint(begin, end)
                ends.setdefault(topic, {})[number] = end
            yield
        return ends

    # ------------------------------------------------------------ one batch

    def _run(self, batch: int, ends: Ends) -> Iterator[None]:
        world = self._world
        run = BatchRun(
            batch=batch, prefix=world.names.prefix, query_id="query",
            subscription=self._subscription, limits=self._limits, code="code",
        )  # fmt: skip
        begins = self._checkpoint.offsets.get(batch - 1, {})
        rows: list[DataRow] | None = None
        event: on.BatchEvent | None = on.BatchBegun(ends)
        while event is not None:
            world.tell("consumer", "event", event)
            effects = run.handle(event)
            run.check_invariants()
            event = None
            for effect in effects:
                yield
                world.tell("consumer", "effect", effect)
                if rows is None and isinstance(effect, _NEED_ROWS):
                    rows = list(self._rows(begins, ends))
                if isinstance(effect, WriteRelease):
                    yield from self._release(effect.bounds, batch, rows or [])
                else:
                    event = self._carry_out(effect, batch, begins, ends, rows or []) or event

    def _carry_out(
        self, effect: do.BatchEffect, batch: int, begins: Ends, ends: Ends, rows: list[DataRow]
    ) -> on.BatchEvent | None:
        checkpoint = self._checkpoint
        if not isinstance(effect, _ONLY_READ):
            checkpoint.require(self._epoch)
        match effect:
            case do.LoadState():
                stored = checkpoint.read(self._state_file(effect.batch))
                return on.StateLoaded(None if stored is None else State.restore(stored))
            case do.DeleteFiles():
                for name in effect.names:
                    checkpoint.files.pop(name, None)
                    checkpoint.segments.pop(name.removeprefix(f"{SEGMENTS}/"), None)
            case do.LoadPlan():
                stored = checkpoint.read(plan_file(effect.batch))
                return on.PlanLoaded(None if stored is None else Plan.restore(stored))
            case do.LoadFrontier():
                stored = checkpoint.read(frontier_file(effect.name))
                found = None if stored is None else Frontier.restore(stored, self._subscription)
                return on.FrontierLoaded(found)
            case do.ReadProgress():
                return on.ProgressRead(tuple(self._progress(begins, ends)))
            case do.TakeCensus():
                return on.CensusTaken(_census(rows, effect.after_us, effect.through_us))
            case do.StoreSchemas():
                pass
            case do.StoreFrontier():
                checkpoint.write(frontier_file(effect.name), effect.frontier.snapshot())
                self._world.measure_frontier(effect.frontier)
            case do.StorePlan():
                checkpoint.create(plan_file(effect.plan.batch), effect.plan.snapshot())
                self._world.claimed(
                    Claim(batch, self._epoch, effect.plan.through_us, effect.plan.end_offsets)
                )
            case do.StoreState():
                checkpoint.write(state_file(effect.state.batch), effect.state.snapshot())
                self._world.measure_state(effect.state, len(checkpoint.files))
                return on.StateStored()
            case SetLateAside():
                bound = first_key_after(effect.through_us)
                checkpoint.late[batch] = [row for row in rows if row.order_key < bound]
            case StoreSegment():
                one = effect.segment
                inside = _within(rows, one.min_us - 1, one.max_us)
                checkpoint.segments[one.name] = sorted(inside, key=_order)
            case CompactSegments():
                joined = [
                    row for name in effect.compaction.inputs for row in checkpoint.segments[name]
                ]
                kept = [row for row in joined if row.order_key >= first_key_after(effect.after_us)]
                checkpoint.segments[effect.compaction.output.name] = sorted(kept, key=_order)
        return None

    def _release(self, bounds: ReleaseBounds, batch: int, rows: list[DataRow]) -> Iterator[None]:
        """Make a release as `spark.segments` does, and write it to every sink in turn."""
        checkpoint = self._checkpoint
        found = list(_within(rows, bounds.after_us, bounds.through_us))
        for name in bounds.segments:
            found += _within(checkpoint.segments[name], bounds.after_us, bounds.through_us)
        ordered = sorted(self._unique(found), key=_order)
        checkpoint.changelog.write(
            Released(
                bounds.number, batch, bounds.after_us, bounds.through_us,
                tuple(row.order_key for row in ordered),
            )
        )  # fmt: skip
        yield
        mirror = checkpoint.mirror.write(bounds.number, bounds.through_us, ordered)
        if mirror is not None:
            self._world.mirrored(mirror)

    @staticmethod
    def _state_file(batch: int) -> str:
        return state_file(batch)

    @staticmethod
    def _unique(rows: list[DataRow]) -> list[DataRow]:
        """Return each change once: of copies the first by topic partition and offset."""
        unique: dict[bytes, DataRow] = {}
        for row in sorted(rows, key=_place):
            unique.setdefault(row.order_key, row)
        return list(unique.values())

    # ------------------------------------------------------------ reading

    def _rows(self, begins: Ends, ends: Ends) -> Iterator[DataRow]:
        for topic in self._world.data_topics:
            for number, end in ends.get(topic, {}).items():
                begin = begins.get(topic, {}).get(number, 0)
                for entry in self._world.broker.logs[topic, number].read(begin, end):
                    message: ChangeMessage = entry.value
                    _, columns = ast.literal_eval(message.value.decode())
                    yield DataRow(
                        message.order_key, topic, number, entry.offset,
                        message.key, message.mod.decode(), tuple(columns.items()),
                    )  # fmt: skip

    def _progress(self, begins: Ends, ends: Ends) -> Iterator[ProgressRow]:
        topic = self._world.names.progress
        rows: list[ProgressRow] = []
        newest: dict[tuple[int, bytes], int] = {}
        for slot, end in ends.get(topic, {}).items():
            begin = begins.get(topic, {}).get(slot, 0)
            for entry in self._world.broker.logs[topic, slot].read(begin, end):
                rows.append(ProgressRow(slot, entry.offset, entry.value))
                newest[slot, entry.key] = entry.offset
        if self._random.random() < 0.2:
            # A large batch is thinned to the newest record of each key.
            kept = set(newest.items())
            rows = [
                row
                for row in rows
                if any(slot == row.slot and offset == row.offset for (slot, _), offset in kept)
            ]
        self._random.shuffle(rows)
        return iter(rows)


_NEED_ROWS = (do.TakeCensus, SetLateAside, WriteRelease, StoreSegment)
_ONLY_READ = (do.LoadState, do.LoadPlan, do.LoadFrontier, do.ReadProgress, do.TakeCensus)


def _order(row: DataRow) -> bytes:
    return row.order_key


def _place(row: DataRow) -> tuple[str, int, int]:
    return row.topic, row.topic_partition, row.offset


def _within(rows: list[DataRow], after_us: int, through_us: int) -> Iterator[DataRow]:
    low, high = first_key_after(after_us), first_key_after(through_us)
    return (row for row in rows if low <= row.order_key < high)


def _census(rows: list[DataRow], after_us: int, through_us: int) -> Census:
    late_bound = first_key_after(after_us)
    times = [row.commit_timestamp_us for row in rows]
    due = sorted(us for us in times if after_us < us <= through_us)
    early = sorted(us for us in times if us > max(after_us, through_us))
    return Census(
        late_rows=sum(row.order_key < late_bound for row in rows),
        due=_distribution(due),
        early=_distribution(early),
        early_min_us=early[0] if early else None,
        early_max_us=early[-1] if early else None,
    )


def _distribution(times_us: list[int]) -> Distribution:
    """Four quantiles, so that a cut lies elsewhere than exact counting would put it."""
    if not times_us:
        return Distribution(0, ())
    last = len(times_us) - 1
    return Distribution(len(times_us), tuple(times_us[last * part // 4] for part in range(1, 5)))

"""Every choice of moments for a few micro-batches, over everything that a fleet may show a reader.

A reader changes nothing for the fleet.  So instead of a consumer in every interleaving, the search
takes what the fleet's topics show, one picture after the other, and runs the gate's production core
at any two of them and at the end.  Pictures that different interleavings have in common are looked
at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.checking import CHECKERS
from tests.simulation.checkpoint import Checkpoint
from tests.simulation.consumer import Consumer
from tests.simulation.exhaustive.sameness import Names, copied
from tests.simulation.exhaustive.script import BEGIN_US, NAMES, SLOTS, TABLE, TOPIC, Script
from tests.simulation.exhaustive.stage import FixedAnswers
from tests.simulation.history import Claim, History, Published, Violation
from tidegate.lineage.subscription import Subscription
from tidegate.producer.memory.broker import Entry, Place
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.topics import TopicNames
from tidegate.spark_consumer.checkpoint.gate_files import GateFiles
from tidegate.spark_consumer.core.file_names import state_file
from tidegate.spark_consumer.core.limits import Limits

_LIMITS = Limits(release_rows_max=2, segment_rows_max=2, segments_max=2, compaction_rows_max=6)
_CHECKED = (
    "nothing_lost",
    "nothing_twice",
    "commit_order",
    "whole_transactions",
    "watermark",
    "mirrored_rows",
    "soundness",
)


@dataclass(frozen=True, slots=True)
class Picture:
    """What every topic partition shows a `read_committed` reader at a moment."""

    records: Mapping[Place, tuple[Entry, ...]]

    def end(self, place: Place) -> int:
        """Return where a reader stands that has read everything; markers say nothing to it."""
        shown = self.records[place]
        return shown[-1].offset + 1 if shown else 0

    def key(self, names: Names) -> int:
        return names.of(
            tuple(
                tuple((entry.offset, names.of_record(entry.value)) for entry in shown)
                for shown in self.records.values()
            )
        )


@dataclass(frozen=True, slots=True)
class _ShownLog:
    entries: tuple[Entry, ...]
    stable_end: int

    def read(self, begin: int, end: int) -> Iterator[Entry]:
        return (entry for entry in self.entries if begin <= entry.offset < end)


@dataclass(slots=True)
class _Gate:
    """A consumer between two batches: all that is left of it is what it stored."""

    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint(has_mirror=True))
    claims: list[Claim] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def key(self) -> tuple[Any, ...]:
        """Return what the next batches depend on, but not in which portions it came about."""
        checkpoint = self.checkpoint
        batch = checkpoint.committed
        state = checkpoint.read(state_file(batch)) or {}
        kept = {segment["name"] for segment in state.get("segments", ())}
        # A repeated attempt stores its rows a second time; a release takes each once.
        waiting = sorted(
            {
                row.order_key
                for name in kept
                for row in checkpoint.segments[name]
                if row.commit_timestamp_us > state["watermark_us"]
            }
        )
        released = tuple(key for one in checkpoint.released() for key in one.order_keys)
        name, found = state.get("frontier"), None
        if name is not None:
            files = GateFiles(checkpoint.gate(lambda _name, _content: None))
            found = files.frontier(name, Subscription(NAMES))
        frontier = None if found is None else json.dumps([*found.frontier.items_since(None)])
        return (
            str(checkpoint.offsets.get(batch)),
            state.get("watermark_us"),
            tuple(waiting),
            released,
            frontier,
            len(checkpoint.late),
        )


class _Reader:
    """Stands where a consumer expects its world: one picture, and no chance."""

    is_healing = True
    thinning = 0.0
    now_us = BEGIN_US
    names: TopicNames = NAMES
    data_topics = (TOPIC,)
    skipped: frozenset[bytes] = frozenset()

    def __init__(self, picture: Picture, gate: _Gate, topic_partitions: int) -> None:
        self.random = FixedAnswers()
        self.broker = self.registry = self.ground = self.history = self
        self.mirror_sights: list[Any] = []
        self.logs = {
            place: _ShownLog(shown, picture.end(place)) for place, shown in picture.records.items()
        }
        self._gate, self._topic_partitions = gate, topic_partitions

    def topic_partitions(self, topic: str) -> int:
        return SLOTS if topic == NAMES.progress else self._topic_partitions

    def topic_ids(self, topics: Sequence[str]) -> dict[str, str | None]:
        return {}

    def begins_at(self, topic: str, number: int) -> int:
        return 0

    def nothing(self, *_: Any) -> None:
        """Nothing is lost here, and nobody takes notes."""

    require_kept = require_same = note_batch = tell = measure_frontier = measure_files = nothing

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        return {TABLE.key_id: TABLE.key_schema, **TABLE.schemas}[schema_id]

    def claimed(self, claim: Claim) -> None:
        self._gate.claims.append(claim)


class Gates:
    """Runs batches, each that differs once."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.batches = 0
        self._pictures: list[Picture] = []
        self._gates: dict[tuple[Any, ...], int] = {}
        self._known: list[_Gate] = []
        self._after: dict[tuple[int, int], int] = {}
        first = _Gate()
        self._number(first)

    def _number(self, gate: _Gate) -> int:
        key = gate.key()
        number = self._gates.get(key)
        if number is None:
            number = self._gates[key] = len(self._known)
            self._known.append(gate)
        return number

    def search(
        self, pictures: list[Picture], following: list[set[int]], ends: Iterable[int], batches: int
    ) -> Iterator[tuple[int, dict[str, list[Violation]]]]:
        """Run up to `batches` batches at any pictures on any way, and one at each way's end.

        Yields the picture and what was found, where something was.
        """
        self._pictures = pictures
        is_end = set(ends)
        todo = [(0, 0, 0)]
        seen = {todo[0]}
        while todo:
            picture, gate, done = todo.pop()
            nexts = [(other, gate, done) for other in following[picture]]
            if done < batches:
                number, found = self._run(picture, gate)
                if found:
                    yield picture, found
                    continue
                nexts.append((picture, number, done + 1))
            if picture in is_end:
                number, found = self._run(picture, gate)
                found = found or self._unhealed(number)
                if found:
                    yield picture, found
            for one in nexts:
                if one not in seen:
                    seen.add(one)
                    todo.append(one)

    @property
    def states(self) -> int:
        return len(self._known)

    def _unhealed(self, number: int) -> dict[str, list[Violation]]:
        reached_us = max((claim.watermark_us for claim in self._known[number].claims), default=-1)
        if reached_us >= self._script.horizon_us:
            return {}
        text = f"at the end the watermark is {self._script.horizon_us - reached_us} µs behind"
        return {"liveness": [Violation(text)]}

    def _run(self, picture: int, number: int) -> tuple[int, dict[str, list[Violation]]]:
        """Run a batch after a gate's state; return the number of the state after it."""
        known = self._after.get((picture, number))
        if known is not None:
            return known, {}
        shown, before = self._pictures[picture], self._known[number]
        ends = before.checkpoint.offsets.get(before.checkpoint.committed)
        if ends == self._ends(shown):
            self._after[picture, number] = number
            return number, {}
        gate = self._batch(shown, before, steps=None)
        found = self._found(shown, gate)
        if self._script.scenario.consumer_crashes and not found:
            found = self._crash_everywhere(shown, before, gate)
        if found:
            return number, found
        after = self._after[picture, number] = self._number(gate)
        return after, {}

    def _crash_everywhere(
        self, shown: Picture, before: _Gate, undisturbed: _Gate
    ) -> dict[str, list[Violation]]:
        """Kill the consumer between any two of the batch's effects, and start another one."""
        steps = 1
        while True:
            killed = self._batch(shown, before, steps=steps)
            if killed.checkpoint.committed > before.checkpoint.committed:
                return {}
            gate = self._batch(shown, killed, steps=None)
            found = self._found(shown, gate)
            if not found and gate.key() != undisturbed.key():
                found = {"replay": [Violation(f"killed after {steps} steps the batch is another")]}
            if found:
                return found
            steps += 1

    def _batch(self, shown: Picture, before: _Gate, *, steps: int | None) -> _Gate:
        self.batches += 1
        gate: _Gate = copied(before, {})
        checkpoint = gate.checkpoint
        reader = _Reader(shown, gate, self._script.scenario.topic_partitions)
        try:
            consumer = Consumer(reader, checkpoint, _LIMITS)
            while checkpoint.committed == before.checkpoint.committed and steps != 0:
                consumer.step()
                steps = None if steps is None else steps - 1
        except TidegateError as error:
            gate.broken.append(f"consumer: {type(error).__name__}: {error}")
        return gate

    def _ends(self, shown: Picture) -> dict[str, dict[int, int]]:
        ends: dict[str, dict[int, int]] = {}
        for place in shown.records:
            ends.setdefault(place[0], {})[place[1]] = shown.end(place)
        return ends

    def _found(self, shown: Picture, gate: _Gate) -> dict[str, list[Violation]]:
        history = History(
            start_us=BEGIN_US, slots=SLOTS, progress_topic=NAMES.progress,
            committed=list(self._script.committed),
            published=[
                Published(
                    *place, entry.offset, entry.value.order_key, entry.value.key,
                    origin=entry.value.origin,
                )
                for place, entries in shown.records.items()
                if place[0] == TOPIC
                for entry in entries
            ],
            claims=gate.claims, released=gate.checkpoint.released(),
            late=[row.order_key for rows in gate.checkpoint.late.values() for row in rows],
            mirrors=gate.checkpoint.mirrors(NAMES.data), broken=gate.broken,
        )  # fmt: skip
        found = {name: list(CHECKERS[name](history)) for name in _CHECKED}
        return {name: violations for name, violations in found.items() if violations}

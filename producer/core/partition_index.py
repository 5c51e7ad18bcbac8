"""An index of a worker's stream partitions, and the schedule of their queries.

Both are updated as stream partitions change.  A stream partition that changes enters itself in
`PartitionIndex.changed`; the next query of the index updates it for these only.  So an event costs
work in proportion to what it changes, however many stream partitions the worker owns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.lineage.keyed_heap import KeyedHeap
from tidegate.producer.core.lifecycle import PartitionChange, PartitionState, SlotPhase
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.schemas.errors import TidegateError, invariant
from tidegate.schemas.topics import slot_of

OPEN_QUERIES_MAX = 10_000
"""The number that one worker's core was measured with: a limit, not a target."""
_LOOK_EVERY_US = 100_000
"""How often turns and drift are compared; a free query is reassigned at once."""
_PAUSE_MIN_US = 1_000_000
"""Least time of a pause, unless it holds up the slowest: each end costs a query."""
_MOVABLE = frozenset(
    {
        PartitionState.SCHEDULED,
        PartitionState.QUEUED,
        PartitionState.RUNNING,
        PartitionState.PAUSED,
    }
)
"""The states in which this worker can move the watermark by reading."""


class Decision(NamedTuple):
    """A change of one stream partition."""

    token: str
    change: PartitionChange


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """How many queries run, and for how long."""

    open_max: int = OPEN_QUERIES_MAX
    """How many queries run at the same time, not counting the initial query."""
    turn_us: int = 5_000_000
    """A query runs at least this long before it yields to another."""
    drift_us_max: int = 0
    """How far one stream partition may be read ahead of the fleet's slowest; 0: any distance."""


class QueryScheduler:
    """The stream partitions of a worker that have a query or wait for one.

    At most `open_max` queries run.  The other due stream partitions are QUEUED, and the one with
    the lowest read watermark starts first: the watermark waits for it, and its position expires
    first.  A queued stream partition stays in its slot's snapshots, so it holds the watermark as a
    running one does.

    Queries have no end, so a full set of them would exclude the others forever.  A query that has
    had its turn is stopped once a queued stream partition has a lower watermark than its own; the
    highest watermark goes first.  A turn is over when it has lasted `turn_us` and has moved the
    stream partition: a turn without progress would be spent again and again.

    With `drift_us_max` a stream partition that is read further than this ahead of the slowest one
    is PAUSED: its records could not be released, and would only wait in the gate.  It returns its
    query, and is queued again once it is ahead by half of that or less.  The slowest one of the
    fleet counts: in this worker the least read watermark, in the others the least published one
    (`others_us`), in both cases among those that their worker can move.  A stream partition that is
    STOPPED, or waits for its parents, holds up no other.  The slowest one is never paused, so it
    moves on, and the others with it.

    Every stream partition gets a turn: the watermark of a queued one does not move, and a running
    one moves on or returns its query, because a failed query waits before it is repeated and a
    silent one counts as failed.  So the running ones get ahead of the queued ones.

    The scheduler's state comes from `put` and `discard`.  `decide` does not change the state: its
    caller carries out a decision, reports the change with `put` or `discard`, and asks for the next
    one.
    """

    def __init__(self, limits: SchedulerLimits) -> None:
        self.others_us: int | None = None
        """The least published watermark in other workers' slots; None if it is unknown."""
        self._limits = limits
        self._queued = KeyedHeap()
        """By read watermark."""
        self._running: dict[str, int] = {}
        """The read watermark of each running stream partition."""
        self._began_with: dict[str, int] = {}
        """The read watermark at which each running query started."""
        self._turns = KeyedHeap()
        """Running stream partitions by the time when their turn is checked."""
        self._served = KeyedHeap()
        """Running stream partitions after their turn; the highest read watermark comes first."""
        self._moved: set[str] = set()
        """Members of `_served` that have moved since the last check."""
        self._paused = KeyedHeap()
        """By read watermark."""
        self._paused_since: dict[str, int] = {}
        self._movable = KeyedHeap()
        """By read watermark; used, like the next two, only with a limit of the drift."""
        self._ahead = KeyedHeap()
        """Running stream partitions; the highest read watermark comes first."""
        self._reads: dict[str, int] = {}
        """Stream partitions that have moved since `_movable` and `_ahead` were updated."""
        self._look_at_us = 0

    # ------------------------------------------------------------ changes

    def put(self, token: str, state: PartitionState, read_us: int) -> None:
        """Record a stream partition's state and read watermark."""
        if state is PartitionState.RUNNING:
            self._running[token] = read_us
            if token in self._served.keys:
                self._moved.add(token)
        elif token in self._running:
            self._end(token)
        if state is PartitionState.QUEUED:
            self._queued.set(token, read_us)
        else:
            self._queued.discard(token)
        if not self._limits.drift_us_max:
            return
        if state is PartitionState.PAUSED:
            self._paused.set(token, read_us)
        else:
            self._paused.discard(token)
            self._paused_since.pop(token, None)
        if state in _MOVABLE:
            self._reads[token] = read_us
        else:
            self._reads.pop(token, None)
            self._movable.discard(token)

    def discard(self, token: str) -> None:
        """Remove a stream partition, if it is known."""
        self._queued.discard(token)
        self._paused.discard(token)
        self._paused_since.pop(token, None)
        self._movable.discard(token)
        self._reads.pop(token, None)
        if token in self._running:
            self._end(token)

    def _end(self, token: str) -> None:
        del self._running[token]
        self._began_with.pop(token, None)
        self._turns.discard(token)
        self._served.discard(token)
        self._moved.discard(token)
        self._ahead.discard(token)

    # ------------------------------------------------------------ decisions

    def decide(self, now_us: int) -> Decision | None:
        """Return the next decision; None: nothing more until time passes or something changes."""
        decision = self._give_query(now_us)
        if decision is None and now_us >= self._look_at_us:
            decision = self._align(now_us) or self._end_turn(now_us)
            if decision is None:
                self._look_at_us = now_us + _LOOK_EVERY_US
        return decision

    def _give_query(self, now_us: int) -> Decision | None:
        first = self._queued.first()
        if first is None or len(self._running) >= self._limits.open_max:
            return None
        read_us, token = first
        slowest_us = self._slowest_us()
        if slowest_us is not None and read_us > slowest_us + self._limits.drift_us_max:
            return self._pause(token, now_us)
        self._began_with[token] = read_us
        self._turns.set(token, now_us + self._limits.turn_us)
        return Decision(token, PartitionChange.QUERY_STARTED)

    # ------------------------------------------------------------ drift

    def _slowest_us(self) -> int | None:
        """Return the least watermark of the fleet; None if the worker has nothing to compare."""
        for token, read_us in self._reads.items():
            self._movable.set(token, read_us)
            if token in self._running:
                self._ahead.set(token, -read_us)
        self._reads.clear()
        first = self._movable.first()
        if first is None:
            return None
        return first[0] if self.others_us is None else min(first[0], self.others_us)

    def _align(self, now_us: int) -> Decision | None:
        slowest_us, drift_us = self._slowest_us(), self._limits.drift_us_max
        if slowest_us is None:
            return None
        furthest = self._ahead.first()
        if furthest is not None and -furthest[0] > slowest_us + drift_us:
            return self._pause(furthest[1], now_us)
        return self._resume(slowest_us, now_us)

    def _pause(self, token: str, now_us: int) -> Decision:
        self._paused_since[token] = now_us
        return Decision(token, PartitionChange.PAUSED)

    def _resume(self, slowest_us: int, now_us: int) -> Decision | None:
        first = self._paused.first()
        if first is None or first[0] > slowest_us + self._limits.drift_us_max // 2:
            return None
        read_us, token = first
        is_over = now_us >= self._paused_since[token] + _PAUSE_MIN_US
        is_due = is_over or read_us <= slowest_us
        return Decision(token, PartitionChange.RESUMED) if is_due else None

    # ------------------------------------------------------------ turns

    def _end_turn(self, now_us: int) -> Decision | None:
        first = self._queued.first()
        if first is None:
            return None
        self._look(now_us)
        furthest = self._served.first()
        if furthest is not None and first[0] < -furthest[0]:
            return Decision(furthest[1], PartitionChange.TURN_ENDED)
        return None

    def _look(self, now_us: int) -> None:
        """Update the turns that are over, and the read watermarks of queries after their turn."""
        for token in self._turns.pop_through(now_us):
            if self._running[token] > self._began_with[token]:
                self._served.set(token, -self._running[token])
            else:
                self._turns.set(token, now_us + self._limits.turn_us)
        for token in self._moved:
            self._served.set(token, -self._running[token])
        self._moved.clear()

    def check_invariants(self, partitions: Mapping[str, tuple[PartitionState, int]]) -> None:
        """Raise InvariantViolation unless the scheduler agrees with (state, read watermark)."""
        for state, held_tokens in (
            (PartitionState.QUEUED, self._queued.keys),
            (PartitionState.RUNNING, self._running),
            (PartitionState.PAUSED, self._paused.keys),
        ):
            expected = {
                token: read_us for token, (actual, read_us) in partitions.items() if actual is state
            }
            message = f"scheduler differs in what is {state.name}"
            differing = sorted(held_tokens.items() ^ expected.items())
            invariant(held_tokens == expected, message, tokens=differing)
        running = self._running.keys()
        has_turn = self._turns.keys.keys() | self._served.keys.keys()
        invariant(has_turn == running, "a query without a turn", tokens=sorted(running ^ has_turn))
        is_bounded = len(running) <= self._limits.open_max
        invariant(is_bounded, "more queries than may run", running=len(running))
        if self._limits.drift_us_max:
            self._slowest_us()
            reads = {
                token: read_us
                for token, (state, read_us) in partitions.items()
                if state in _MOVABLE
            }
            differing = sorted(reads.items() ^ self._movable.keys.items())
            invariant(not differing, "scheduler differs in what can move", tokens=differing)
            ahead = {token: -read_us for token, read_us in self._ahead.keys.items()}
            invariant(ahead == self._running, "scheduler differs in what is ahead", ahead=ahead)
            is_noted = self._paused_since.keys() == self._paused.keys.keys()
            invariant(is_noted, "a pause without a beginning", paused=sorted(self._paused.keys))


class _Facts(NamedTuple):
    """The indexed values of one stream partition."""

    state: PartitionState
    has_news: bool
    pending_bytes: int
    published_us: int
    read_us: int
    retry_at_us: int

    @classmethod
    def of(cls, partition: StreamPartition) -> _Facts:
        return cls(
            partition.state,
            partition.has_news,
            partition.pending_bytes,
            partition.published.watermark_us,
            partition.read.watermark_us,
            partition.retry_at_us,
        )


class PartitionIndex:
    """The stream partitions of a worker, by their needs; `slots` is the number of all slots.

    `check_invariants` computes everything again from the slots and compares.
    """

    def __init__(self, slots: int, limits: SchedulerLimits | None = None) -> None:
        self._slots = slots
        limits = limits or SchedulerLimits()
        self.limits_drift = limits.drift_us_max > 0
        """Whether the scheduler compares stream partitions with the slowest one."""
        self._scheduler = QueryScheduler(limits)
        self.changed: dict[str, StreamPartition] = {}
        """The stream partitions that changed since the last query of the index, by token."""
        self._facts: dict[str, _Facts] = {}
        self._news: dict[int, dict[str, StreamPartition]] = {}
        self._pending_bytes = 0
        self._states: Counter[PartitionState] = Counter()
        self._stopped: dict[str, TidegateError] = {}
        self._published = KeyedHeap()
        self._scheduled = KeyedHeap()
        """SCHEDULED stream partitions by the time of their next query."""

    # ------------------------------------------------------------ questions

    def news(self, slot: int) -> Mapping[str, StreamPartition]:
        """Return the stream partitions of a slot that have something to publish, by token."""
        self._update()
        return self._news.get(slot, {})

    @property
    def pending_bytes(self) -> int:
        """The bytes that were read and are not published."""
        self._update()
        return self._pending_bytes

    @property
    def states(self) -> Mapping[PartitionState, int]:
        """The number of stream partitions in each state; 0 for a state that is missing."""
        self._update()
        return self._states

    @property
    def stopped(self) -> Mapping[str, TidegateError]:
        """The stopped stream partitions, each with its error."""
        self._update()
        return self._stopped

    @property
    def watermark_us(self) -> int | None:
        """The least published watermark; None without a stream partition."""
        self._update()
        first = self._published.first()
        return None if first is None else first[0]

    def take_due(self, now_us: int) -> list[str]:
        """Return the SCHEDULED stream partitions whose next query is due, each once."""
        self._update()
        return self._scheduled.pop_through(now_us)

    def decide(self, now_us: int) -> Decision | None:
        """Return the query to start or stop next; None if there is none until something changes."""
        self._update()
        return self._scheduler.decide(now_us)

    # ------------------------------------------------------------ changes

    def align_with(self, others_us: int | None) -> None:
        """Set the least watermark of other workers' slots, for the limit of the drift."""
        self._scheduler.others_us = others_us

    def remove(self, partitions: Iterable[StreamPartition]) -> tuple[tuple[str, int], ...]:
        """Remove the stream partitions of a slot that is gone; return their pending bytes."""
        pending = []
        for partition in partitions:
            if partition.pending_bytes:
                pending.append((partition.child.token, partition.pending_bytes))
            self.changed.pop(partition.child.token, None)
            self._replace(partition, None)
        return tuple(pending)

    def _update(self) -> None:
        while self.changed:
            _, partition = self.changed.popitem()
            is_gone = partition.state is PartitionState.GONE
            self._replace(partition, None if is_gone else _Facts.of(partition))

    def _replace(self, partition: StreamPartition, new: _Facts | None) -> None:
        """Replace the values of a stream partition; None if it no longer belongs to the worker."""
        token = partition.child.token
        slot = slot_of(token, self._slots)
        old = self._facts.pop(token, None)
        if old is not None:
            self._states[old.state] -= 1
            self._pending_bytes -= old.pending_bytes
        if new is not None:
            self._facts[token] = new
            self._states[new.state] += 1
            self._pending_bytes += new.pending_bytes
        news = self._news.setdefault(slot, {})
        if new is not None and new.has_news:
            news[token] = partition
        else:
            news.pop(token, None)
        if partition.stopped_by is not None and new is not None:
            self._stopped[token] = partition.stopped_by
        else:
            self._stopped.pop(token, None)
        if new is None:
            self._published.discard(token)
        else:
            self._published.set(token, new.published_us)
        if new is not None and new.state is PartitionState.SCHEDULED:
            self._scheduled.set(token, new.retry_at_us)
        else:
            self._scheduled.discard(token)
        if new is None:
            self._scheduler.discard(token)
        else:
            self._scheduler.put(token, new.state, new.read_us)

    def check_invariants(self, slots: Iterable[Slot]) -> None:
        """Raise InvariantViolation if the index differs from the slots."""
        self._update()
        slots = list(slots)
        partitions = {token: p for slot in slots for token, p in slot.tokens.items()}
        facts = {token: _Facts.of(partition) for token, partition in partitions.items()}
        for token in facts.keys() | self._facts.keys():
            is_equal = facts.get(token) == self._facts.get(token)
            invariant(is_equal, "index differs from its stream partition", token=token)
        for slot in slots:
            news = {token for token, partition in slot.tokens.items() if partition.has_news}
            is_equal = self._news.get(slot.number, {}).keys() == news
            invariant(is_equal, "index differs in what has news", slot=slot.number)
            self._check_scheduled(slot)
        size = sum(values.pending_bytes for values in facts.values())
        invariant(self._pending_bytes == size, "index differs in pending bytes", size=size)
        states = Counter(values.state for values in facts.values())
        invariant(+self._states == states, "index differs in the counts of states", states=states)
        stopped = {t for t, p in partitions.items() if p.state is PartitionState.STOPPED}
        invariant(self._stopped.keys() == stopped, "index differs in what stopped", stopped=stopped)
        least_us = min((values.published_us for values in facts.values()), default=None)
        invariant(self.watermark_us == least_us, "index differs in the watermark", least=least_us)
        reads = {token: (values.state, values.read_us) for token, values in facts.items()}
        self._scheduler.check_invariants(reads)

    def _check_scheduled(self, slot: Slot) -> None:
        if slot.phase is not SlotPhase.OWNED:
            return
        for token, partition in slot.tokens.items():
            is_scheduled = partition.state is PartitionState.SCHEDULED
            is_listed = self._scheduled.keys.get(token) == partition.retry_at_us
            invariant(is_listed == is_scheduled, "index differs in what is scheduled", token=token)

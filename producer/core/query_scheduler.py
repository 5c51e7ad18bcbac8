"""Which stream partitions of a worker have a query while others wait for one.

At most `open_max` queries run.  What is due beyond them is QUEUED, and the stream partition that is
furthest behind starts first: it is the one that the watermark waits for, and the one whose position
expires first.  A queued stream partition stays in its slot's snapshots, so it holds the watermark
as a running one does.

Queries have no end of their own, so a full set of them would keep the others out for good.  A query
that has had its turn is stopped once a queued stream partition is further behind than its own; the
one that is furthest ahead goes first.  A turn is over when it has lasted `turn_us` and has brought
the stream partition forward: a turn that brought nothing would be spent again and again.

With `drift_us_max` a stream partition that is read further than this ahead of the slowest one is
PAUSED: what it would read could not be released, and would only wait in the gate.  It gives its
query back, and is queued again once it is ahead by half of that or less.  The slowest is that of
the fleet: of this worker the least read watermark, of the others the least published one
(`others_us`), in both cases among those that their worker can move: what is STOPPED, or waits for
its parents, holds nobody up.  The slowest one itself is never paused, so it moves on, and with it
what the others wait for.

Why everyone gets a turn: what is queued stands still, and what runs moves on or gives its query
back, because one that fails waits before it is repeated and one that is silent counts as failed.
So what runs gets ahead of what is queued.

The scheduler knows what `put` and `discard` say.  `decide` changes nothing that they have to say
again: its caller carries out a decision, reports the change, and asks for the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from tidegate.lineage.keyed_heap import KeyedHeap
from tidegate.producer.core.lifecycle import PartitionChange, PartitionState
from tidegate.schemas.errors import invariant

OPEN_QUERIES_MAX = 10_000
"""As many as one worker's core was measured with; a bound, and not what to aim at."""
_LOOK_EVERY_US = 100_000
"""How often turns and drift are compared; a free query is given away at once."""
_PAUSE_MIN_US = 1_000_000
"""A pause is not shorter, unless it holds up the slowest: each end of one costs a query."""
_MOVABLE = frozenset(
    {
        PartitionState.SCHEDULED,
        PartitionState.QUEUED,
        PartitionState.RUNNING,
        PartitionState.PAUSED,
    }
)
"""Those whose watermark this worker can move by reading."""


class Decision(NamedTuple):
    """What happens to one stream partition."""

    token: str
    change: PartitionChange


@dataclass(frozen=True, slots=True)
class SchedulerLimits:
    """How many queries run, and for how long."""

    open_max: int = OPEN_QUERIES_MAX
    """How many queries run at the same time, the initial query not counted."""
    turn_us: int = 5_000_000
    """A query runs at least so long before it makes way for another."""
    drift_us_max: int = 0
    """How far one stream partition may be read ahead of the fleet's slowest; 0: any distance."""


class QueryScheduler:
    """The stream partitions of a worker that have a query or wait for one."""

    def __init__(self, limits: SchedulerLimits) -> None:
        """Start without stream partitions."""
        self.others_us: int | None = None
        """The least published watermark in other workers' slots, as far as it is known."""
        self._limits = limits
        self._queued = KeyedHeap()
        """By read watermark."""
        self._running: dict[str, int] = {}
        """The read watermark of each."""
        self._began_with: dict[str, int] = {}
        """The read watermark that each running query started from."""
        self._turns = KeyedHeap()
        """Running ones by the time when their turn is looked at."""
        self._served = KeyedHeap()
        """Running ones that have had their turn; the one that is furthest ahead comes first."""
        self._moved: set[str] = set()
        """Those of `_served` that have moved since the last look."""
        self._paused = KeyedHeap()
        """By read watermark."""
        self._paused_since: dict[str, int] = {}
        self._movable = KeyedHeap()
        """By read watermark, as are those below; only with a limit of the drift."""
        self._ahead = KeyedHeap()
        """Running ones; the one that is furthest ahead comes first."""
        self._reads: dict[str, int] = {}
        """Those that have moved since `_movable` and `_ahead` were brought up to date."""
        self._look_at_us = 0

    # ------------------------------------------------------------ changes

    def put(self, token: str, state: PartitionState, read_us: int) -> None:
        """Take note of a stream partition's state and of how far it is read."""
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
        """Forget a stream partition, if it is known."""
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
        """Find out whose turn is over, and how far those are that had theirs."""
        for token in self._turns.pop_through(now_us):
            if self._running[token] > self._began_with[token]:
                self._served.set(token, -self._running[token])
            else:
                self._turns.set(token, now_us + self._limits.turn_us)
        for token in self._moved:
            self._served.set(token, -self._running[token])
        self._moved.clear()

    def check_invariants(self, known: Mapping[str, tuple[PartitionState, int]]) -> None:
        """Raise InvariantViolation unless the scheduler agrees with (state, read watermark)."""
        for state, held in (
            (PartitionState.QUEUED, self._queued.keys),
            (PartitionState.RUNNING, self._running),
            (PartitionState.PAUSED, self._paused.keys),
        ):
            found = {token: read_us for token, (one, read_us) in known.items() if one is state}
            message = f"scheduler differs in what is {state.name}"
            invariant(held == found, message, tokens=sorted(held.items() ^ found.items()))
        running = self._running.keys()
        has_turn = self._turns.keys.keys() | self._served.keys.keys()
        invariant(has_turn == running, "a query without a turn", tokens=sorted(running ^ has_turn))
        is_bounded = len(running) <= self._limits.open_max
        invariant(is_bounded, "more queries than may run", running=len(running))
        if self._limits.drift_us_max:
            self._slowest_us()
            reads = {token: read_us for token, (one, read_us) in known.items() if one in _MOVABLE}
            differing = sorted(reads.items() ^ self._movable.keys.items())
            invariant(not differing, "scheduler differs in what can move", tokens=differing)
            ahead = {token: -read_us for token, read_us in self._ahead.keys.items()}
            invariant(ahead == self._running, "scheduler differs in what is ahead", ahead=ahead)
            is_noted = self._paused_since.keys() == self._paused.keys.keys()
            invariant(is_noted, "a pause without a beginning", paused=sorted(self._paused.keys))

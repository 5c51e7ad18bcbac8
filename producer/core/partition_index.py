"""What a worker has to find among its stream partitions, kept up to date as they change.

A stream partition that changes enters itself in `changed`; the next question brings the index up to
date for those, and for no other.  So an event costs work in proportion to what it changes, however
many stream partitions the worker owns.  `check_invariants` computes everything again from the slots
and compares.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidegate.lineage.keyed_heap import KeyedHeap
from tidegate.producer.core.lifecycle import PartitionState, SlotPhase
from tidegate.producer.core.query_scheduler import Decision, QueryScheduler, SchedulerLimits
from tidegate.producer.core.slot import Slot
from tidegate.producer.core.stream_partition import StreamPartition
from tidegate.schemas.errors import TidegateError, invariant
from tidegate.schemas.topics import slot_of


class _Facts(NamedTuple):
    """What the index holds of one stream partition."""

    state: PartitionState
    has_news: bool
    pending_bytes: int
    published_us: int
    read_us: int
    retry_at_us: int
    parked_keys: int

    @classmethod
    def of(cls, partition: StreamPartition) -> _Facts:
        return cls(
            partition.state,
            partition.has_news,
            partition.pending_bytes,
            partition.published.watermark_us,
            partition.read.watermark_us,
            partition.retry_at_us,
            len(partition.published_parked.keys),
        )


class PartitionIndex:
    """The stream partitions of a worker, by what they need; `slots` is how many slots there are."""

    def __init__(self, slots: int, limits: SchedulerLimits | None = None) -> None:
        """Start without stream partitions."""
        self._slots = slots
        limits = limits or SchedulerLimits()
        self.limits_drift = limits.drift_us_max > 0
        """Whether the scheduler compares stream partitions with the slowest one."""
        self._scheduler = QueryScheduler(limits)
        self.changed: dict[str, StreamPartition] = {}
        """Those that changed since the last question, by token."""
        self._facts: dict[str, _Facts] = {}
        self._news: dict[int, dict[str, StreamPartition]] = {}
        self._pending_bytes = 0
        self._parked_keys = 0
        self._states: Counter[PartitionState] = Counter()
        self._stopped: dict[str, TidegateError] = {}
        self._published = KeyedHeap()
        self._scheduled = KeyedHeap()
        """SCHEDULED ones by the time of their next query."""

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
    def parked_keys(self) -> int:
        """The parked keys, each as often as a stream partition has it."""
        self._update()
        return self._parked_keys

    @property
    def states(self) -> Mapping[PartitionState, int]:
        """How many stream partitions are in each state; 0 for a state that is missing."""
        self._update()
        return self._states

    @property
    def stopped(self) -> Mapping[str, TidegateError]:
        """The stopped stream partitions, and what stopped each."""
        self._update()
        return self._stopped

    @property
    def watermark_us(self) -> int | None:
        """The least published watermark; None without a stream partition."""
        self._update()
        first = self._published.first()
        return None if first is None else first[0]

    def take_due(self, now_us: int) -> list[str]:
        """Return the SCHEDULED stream partitions whose next query is due, each of them once."""
        self._update()
        return self._scheduled.pop_through(now_us)

    def decide(self, now_us: int) -> Decision | None:
        """Return which query starts or stops next; None: no other until something changes."""
        self._update()
        return self._scheduler.decide(now_us)

    # ------------------------------------------------------------ changes

    def align_with(self, others_us: int | None) -> None:
        """Let the least watermark of other workers' slots count for the limit of the drift."""
        self._scheduler.others_us = others_us

    def remove(self, partitions: Iterable[StreamPartition]) -> tuple[tuple[str, int], ...]:
        """Forget the stream partitions of a slot that is gone; return their pending bytes."""
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
        """Replace what is known of a stream partition; None: it is no longer the worker's."""
        token = partition.child.token
        slot = slot_of(token, self._slots)
        old = self._facts.pop(token, None)
        if old is not None:
            self._states[old.state] -= 1
            self._pending_bytes -= old.pending_bytes
            self._parked_keys -= old.parked_keys
        if new is not None:
            self._facts[token] = new
            self._states[new.state] += 1
            self._pending_bytes += new.pending_bytes
            self._parked_keys += new.parked_keys
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
        """Raise InvariantViolation if the index differs from what the slots hold."""
        self._update()
        slots = list(slots)
        held = {token: p for slot in slots for token, p in slot.tokens.items()}
        facts = {token: _Facts.of(partition) for token, partition in held.items()}
        for token in facts.keys() | self._facts.keys():
            is_equal = facts.get(token) == self._facts.get(token)
            invariant(is_equal, "index differs from its stream partition", token=token)
        for slot in slots:
            news = {token for token, partition in slot.tokens.items() if partition.has_news}
            is_equal = self._news.get(slot.number, {}).keys() == news
            invariant(is_equal, "index differs in what has news", slot=slot.number)
            self._check_scheduled(slot)
        size = sum(one.pending_bytes for one in facts.values())
        invariant(self._pending_bytes == size, "index differs in pending bytes", size=size)
        keys = sum(one.parked_keys for one in facts.values())
        invariant(self._parked_keys == keys, "index differs in parked keys", keys=keys)
        states = Counter(one.state for one in facts.values())
        invariant(+self._states == states, "index differs in the counts of states", states=states)
        stopped = {t for t, p in held.items() if p.state is PartitionState.STOPPED}
        invariant(self._stopped.keys() == stopped, "index differs in what stopped", stopped=stopped)
        least_us = min((one.published_us for one in facts.values()), default=None)
        invariant(self.watermark_us == least_us, "index differs in the watermark", least=least_us)
        reads = {token: (one.state, one.read_us) for token, one in facts.items()}
        self._scheduler.check_invariants(reads)

    def _check_scheduled(self, slot: Slot) -> None:
        if slot.phase is not SlotPhase.OWNED:
            return
        for token, partition in slot.tokens.items():
            is_scheduled = partition.state is PartitionState.SCHEDULED
            is_listed = self._scheduled.keys.get(token) == partition.retry_at_us
            invariant(is_listed == is_scheduled, "index differs in what is scheduled", token=token)

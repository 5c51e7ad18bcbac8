"""Workers that are broken on purpose: which stream partitions have a query, and which wait."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Mutant
from tidegate.lineage import slot_tokens
from tidegate.producer.core import query_scheduler
from tidegate.producer.core.events import FleetRead
from tidegate.producer.core.fleet_alignment import FleetAlignment
from tidegate.producer.core.heartbeat import HeartbeatWriter
from tidegate.producer.core.lifecycle import PartitionState
from tidegate.producer.core.query_scheduler import _MOVABLE, Decision, QueryScheduler
from tidegate.producer.memory.log import Outcome
from tidegate.producer.memory.progress_follower import MemoryProgressFollower

__all__ = ["BROKEN_SCHEDULERS"]

_slowest = HeartbeatWriter._slowest


def _slowest_that_is_read(self: HeartbeatWriter, tokens: Any, publications: Any) -> Any:
    """Leave out what waits for a query, unless there is nothing else."""
    read = {t: p for t, p in tokens.items() if p.state is not PartitionState.QUEUED}
    if not read:
        return _slowest(self, tokens, publications)
    kept = list(self._by_watermark)
    found = _slowest(self, read, {t: p for t, p in publications.items() if t in read})
    self._by_watermark = kept
    return found


_decide = QueryScheduler.decide


def _decide_once_for_each(self: QueryScheduler, now_us: int) -> Decision | None:
    """Take a stream partition from the queue once, and never again."""
    taken = self.__dict__.setdefault("taken", set())
    first = self._queued.first()
    if first is not None and first[1] in taken:
        return None
    decision = _decide(self, now_us)
    taken.update([] if decision is None else [decision.token])
    return decision


def _no_turn_is_over(self: QueryScheduler, now_us: int) -> None:
    pass


def _nothing_resumes(self: QueryScheduler, slowest_us: int, now_us: int) -> None:
    return None


def _nothing_elsewhere(self: FleetAlignment, current_at_us: int, now_us: int) -> int | None:
    return None


_read_slot, _end_of_slot = MemoryProgressFollower._read, MemoryProgressFollower._end


def _is_last_and_read(self: MemoryProgressFollower, slot: int) -> bool:
    return bool(slot and slot == max(self._positions) and self._positions[slot])


def _read_the_last_slot_once(self: MemoryProgressFollower, slot: int) -> None:
    if not _is_last_and_read(self, slot):
        _read_slot(self, slot)


def _end_where_it_was_read(self: MemoryProgressFollower, slot: int) -> int:
    """Take the last slot's end of the first time for its end."""
    is_last = _is_last_and_read(self, slot)
    return self._positions[slot] if is_last else _end_of_slot(self, slot)


def _read_what_is_open(self: MemoryProgressFollower, slot: int) -> None:
    """Read records of transactions that may be aborted still."""
    log = self._broker.logs[self._topic, slot]
    with patch.object(log, "open", {}), ExitStack() as stack:
        for entry in log.entries:
            if entry.transaction is not None and entry.transaction.outcome is Outcome.OPEN:
                stack.enter_context(patch.object(entry.transaction, "outcome", Outcome.COMMITTED))
        _read_slot(self, slot)


_handle = FleetAlignment.handle


def _keep_what_moved_once(self: FleetAlignment, event: FleetRead, now_us: int) -> None:
    """Hold on to a slot in which nothing can move any more."""
    kept = {slot: us for slot, us in event.lowest_us.items() if us is not None}
    _handle(self, FleetRead(kept, event.is_current), now_us)


BROKEN_SCHEDULERS = (
    Mutant(
        "a queued stream partition left out of the watermark",
        "watermark",
        ((HeartbeatWriter, "_slowest", _slowest_that_is_read),),
    ),
    Mutant(
        "a stream partition that is taken from the queue once",
        "liveness",
        ((QueryScheduler, "decide", _decide_once_for_each),),
    ),
    Mutant(
        "a query that keeps its place for good",
        "query_turns",
        ((QueryScheduler, "_look", _no_turn_is_over),),
    ),
    Mutant(
        "a pause that never ends",
        "query_turns",
        ((QueryScheduler, "_resume", _nothing_resumes),),
    ),
    Mutant(
        "a drift that is compared with the own slowest only",
        "fleet_drift",
        ((FleetAlignment, "_elsewhere_us", _nothing_elsewhere),),
    ),
    Mutant(
        "a stopped stream partition that pauses those of other workers",
        "others_advance",
        ((slot_tokens, "can_move", lambda _token: True),),
    ),
    Mutant(
        "a stopped stream partition that pauses the others",
        "others_advance",
        ((query_scheduler, "_MOVABLE", frozenset({*_MOVABLE, PartitionState.STOPPED})),),
    ),
    Mutant(
        "a follower that reads the last slot once",
        "fleet_views",
        (
            (MemoryProgressFollower, "_read", _read_the_last_slot_once),
            (MemoryProgressFollower, "_end", _end_where_it_was_read),
        ),
    ),
    Mutant(
        "a view of the fleet that counts what is not committed",
        "fleet_views",
        ((MemoryProgressFollower, "_read", _read_what_is_open),),
    ),
    Mutant(
        "a slot in which nothing moves any more kept in the view",
        "fleet_views",
        ((FleetAlignment, "handle", _keep_what_moved_once),),
    ),
)

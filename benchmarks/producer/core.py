"""The core alone: what one event costs in a worker that owns few or many stream partitions."""

from __future__ import annotations

import time
from collections.abc import Callable

from tidegate.producer.core import effects as do
from tidegate.producer.core import events as on
from tidegate.producer.core.events import Now
from tidegate.producer.core.stream_identity import StreamIdentity
from tidegate.producer.core.transaction_cycle import WorkerLimits
from tidegate.producer.core.worker import Worker
from tidegate.producer.messages import PublishableRecord
from tidegate.schemas.progress import ProgressRecord, SlotProgress, TokenSnapshot
from tidegate.schemas.topics import slot_of

_SLOTS = 16
_START_US = 1_700_000_000_000_000
_NOW = Now(0, _START_US)


def handling(owned: int, changes: int) -> Callable[[], float]:
    """Return a function that handles events with one record each, and returns its CPU seconds.

    They are of all stream partitions in turn, between two transactions.
    """
    worker = _worker([f"token-{number}-0123456789abcdef0123456789" for number in range(owned)])
    queries = _take_over(worker)
    served = 0

    def run() -> float:
        nonlocal served
        events = []
        for number in range(served, served + changes):
            query = queries[number % owned]
            record = PublishableRecord(_START_US + number, "tx", "00000000", ())
            events.append(on.RecordsRead(query.token, query.query_id, [record], 1))
        served += changes
        began = time.thread_time()
        for event in events:
            worker.handle(event, now=_NOW)
        return time.thread_time() - began

    return run


def reading_worker(*, stream_partitions: int) -> Worker:
    """Return a worker that owns all slots and reads so many stream partitions."""
    worker = _worker([f"token-{number}" for number in range(stream_partitions)])
    _take_over(worker)
    return worker


def _worker(tokens: list[str]) -> Worker:
    """Return a worker that is reading all its slots, with these stream partitions in them."""
    identity = StreamIdentity("stream", "GOOGLE_STANDARD_SQL", "group", _SLOTS, "id", ())
    limits = WorkerLimits(commit_interval_us=10**12, commit_bytes_max=1 << 40)
    worker = Worker(name="w", epoch="e", identity=identity, limits=limits)
    worker.handle(on.RootSlotRead((), is_at_end=True), now=_NOW)  # or else no query starts
    recoveries = worker.handle(on.SlotsAssigned(tuple(range(_SLOTS))), now=_NOW)
    started = identity.started(start_ns=_START_US * 1_000, end_ns=None, children=())
    worker.handle(on.StreamStartFound(ProgressRecord("e", "w", started)), now=_NOW)
    homes: dict[int, list[TokenSnapshot]] = {slot: [] for slot in range(_SLOTS)}
    for token in tokens:
        snapshot = TokenSnapshot(token, _START_US * 1_000, (), ("",), _START_US - 1, (), ())
        homes[slot_of(token, _SLOTS)].append(snapshot)
    for effect in recoveries:
        if isinstance(effect, do.RecoverSlot):
            slot, incarnation = effect.slot, effect.incarnation
            body = SlotProgress(slot, 1, 0, -1, (), tuple(homes[slot]))
            start = on.SlotRecoveryStarted(slot, incarnation, committed_offset=0, end_offset=2)
            worker.handle(start, now=_NOW)
            record = ProgressRecord("e", "w", body)
            worker.handle(on.ProgressRead(slot, incarnation, 0, record), now=_NOW)
    return worker


def _take_over(worker: Worker) -> list[do.StartQuery]:
    """Let the worker own its slots and commit their first snapshots; return its queries."""
    effects: list[do.Effect] = []
    for number, slot in list(worker.slots.items()):
        event = on.SlotPositionAdvanced(number, slot.incarnation, 2)
        effects += worker.handle(event, now=_NOW)
        while worker.transaction is not None:
            offsets = dict.fromkeys(worker.transaction.heartbeats, 2)
            effects += worker.handle(on.Delivered({}, offsets), now=_NOW)
            if any(isinstance(effect, do.CommitTransaction) for effect in effects[-1:]):
                effects += worker.handle(on.TransactionCommitted(), now=_NOW)
    return [effect for effect in effects if isinstance(effect, do.StartQuery)]

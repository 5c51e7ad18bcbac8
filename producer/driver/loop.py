"""The loop of one worker: carries events to its core and the core's effects to the ports.

One thread does all of it, so that the core sees one order of events; readers share another thread,
and only fill the inbox.  A rebalance arrives inside a poll of the group: revoked slots are
committed before the poll returns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TypeAlias

import structlog

from tidegate.producer.core import events as on
from tidegate.producer.core.worker import Worker
from tidegate.producer.driver.effect_runner import EffectRunner
from tidegate.producer.driver.runtime import SystemClock, SystemThreads
from tidegate.producer.ports import (
    Clock,
    Membership,
    OpenReader,
    Publisher,
    StreamStartFinder,
    Threads,
)
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.instants import US_PER_SECOND
from tidegate.schemas.progress import DataTopic

_log = structlog.get_logger()

_Output: TypeAlias = on.ReaderOutput | on.TableFound

_IDLE_S = 0.02
_GATHER_S = 0.003
"""Pause between the first output that ends a wait and the removal of all outputs: one wake-up of
this thread and one round for each message cost a fifth of all CPU time where messages are small."""
_QUIET_US = 60 * US_PER_SECOND
"""How long after an interruption of reading the same one counts as a new one."""
_OUTPUTS_MAX = 10_000
_JOINED_MAX = 100
"""Most outputs that are joined: the loop polls the group between batches of outputs."""


class Inbox:
    """A queue from the readers and the translation to the loop; the byte budget bounds it.

    If the loop cannot keep up, separately delivered records of one query are joined: the core then
    handles them once instead of once for each output.  They only move past records of other
    queries, with which they have no order.

    `discard` is called with every output that is not taken before `close`, or comes after it.
    """

    def __init__(
        self, *, discard: Callable[[_Output], None], threads: Threads | None = None
    ) -> None:
        self._discard = discard
        self._is_closed = False
        self._waiting: deque[_Output] = deque()
        self._joined: deque[_Output] = deque()
        """The outputs to take first: all that waited at one moment."""
        self._changed = (threads or SystemThreads()).condition()

    def put(self, output: _Output) -> None:
        """Append an output; does not block."""
        with self._changed:
            if not self._is_closed:
                self._waiting.append(output)
                self._changed.notify_all()
                return
        self._discard(output)

    def close(self) -> None:
        """Discard the waiting outputs, and those of readers that end late."""
        with self._changed:
            self._is_closed = True
            left = (*self._joined, *self._waiting)
            self._joined.clear()
            self._waiting.clear()
        for output in left:
            self._discard(output)

    def wait(self, timeout_s: float) -> bool:
        """Wait until there is an output; return whether there is one."""
        with self._changed:
            if not self._joined and not self._waiting:
                self._changed.wait_for(self._has_any, timeout_s)
            return len(self) > 0

    def take(self) -> _Output | None:
        """Return the oldest output, joined with later records of its query; None if none waits."""
        with self._changed:
            if not self._joined:
                self._joined.extend(joined(self._waiting))
                self._waiting.clear()
            return self._joined.popleft() if self._joined else None

    def __len__(self) -> int:
        """Return the number of waiting outputs."""
        return len(self._joined) + len(self._waiting)

    def _has_any(self) -> bool:
        return bool(self._waiting)


def joined(outputs: Iterable[_Output]) -> list[_Output]:
    """Return the outputs with records of one query joined, unless another output is between."""
    runs: list[list[on.RecordsRead] | _Output] = []
    growing: dict[tuple[str, int], list[on.RecordsRead]] = {}
    for output in outputs:
        if not isinstance(output, on.RecordsRead):
            growing.clear()
            runs.append(output)
            continue
        query = output.token, output.query_id
        run = growing.get(query)
        if run is None or len(run) == _JOINED_MAX:
            run = growing[query] = []
            runs.append(run)
        run.append(output)
    return [_joined_run(run) if isinstance(run, list) else run for run in runs]


def _joined_run(run: list[on.RecordsRead]) -> on.RecordsRead:
    first = run[0]
    if len(run) == 1:
        return first
    items = [item for output in run for item in output.items]
    size_bytes = sum(output.size_bytes for output in run)
    return on.RecordsRead(first.token, first.query_id, items, size_bytes)


class FleetWorker:
    """One worker's process: its core, its ports, its threads.

    `run` works until it is drained or an error stops it.  A program with its own loop calls
    `start`, then `step` until it returns False, then `close`.  The object is also the listener of
    its membership (`ports.GroupListener`), which `attach` sets.

    All methods except `request_drain` and `add_table` are for one thread.  `observe` is called
    after every event, on the loop's thread.  A revoked slot that is not released within
    `revoke_patience_s` counts as lost.
    """

    def __init__(
        self,
        worker: Worker,
        *,
        publisher: Publisher,
        open_reader: OpenReader,
        open_stream_start: Callable[[], StreamStartFinder],
        release_budget: Callable[[Iterable[tuple[str, int]]], None],
        clock: Clock | None = None,
        threads: Threads | None = None,
        revoke_patience_s: float = 60.0,
        observe: Callable[[on.Event, Worker], None] = lambda _event, _worker: None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._publisher = publisher
        self._release_budget = release_budget
        self._inbox = Inbox(discard=self._discard, threads=threads)
        self._runner = EffectRunner(
            worker,
            publisher=publisher,
            open_reader=open_reader,
            open_stream_start=open_stream_start,
            deliver=self._inbox.put,
            release_budget=release_budget,
            clock=self._clock,
            observe=observe,
        )
        self._revoke_patience_us = round(revoke_patience_s * US_PER_SECOND)
        self._requested: on.DrainRequested | None = None
        self._absent_in_search = 0
        """The last search whose end was reported without a result."""
        self._interruptions: dict[str, tuple[on.ReadInterrupted, int]] = {}
        """By resource: the last interruption and its time, until reading recovers."""

    def attach(self, membership: Membership) -> None:
        """Set the worker's group membership, whose listener is this object."""
        self._runner.attach(membership)

    def request_drain(self, *, leaves_group: bool = False) -> None:
        """Make `run` commit the read records and return; safe in a signal handler.

        With `leaves_group` other workers get the worker's slots at once, not only after its session
        has timed out.
        """
        self._requested = on.DrainRequested(leaves_group=leaves_group)

    def add_table(self, topic: DataTopic) -> None:
        """Pass a later table's topic to the core before its records; any thread may call it."""
        self._inbox.put(on.TableFound(topic))

    def run(self) -> None:
        """Work until drained or stopped; raises the error that stopped it."""
        try:
            self.start()
            while self.step():
                pass
        finally:
            self.close()
        if self._runner.error is not None:
            raise self._runner.error

    def start(self) -> None:
        """Start the producer and join the group; raises UnreachableError."""
        self._publisher.start()
        self._runner.membership.start()

    def step(self) -> bool:
        """Do one round: the group and its slots, the readers' output, the passing of time.

        Waits a moment for readers if nothing happened; blocks longer only inside a port and while
        revoked slots are committed.  Returns False once the worker has stopped.
        """
        runner = self._runner
        if self._requested is not None:
            requested, self._requested = self._requested, None
            runner.process(requested)
            return not runner.is_stopped
        for event in runner.membership.poll(0.0):
            self._note_interruption(event)
            runner.process(event)
        self._look_for_stream_start()
        self._read_inbox()
        runner.process(on.Ticked(has_read_inbox=len(self._inbox) == 0))
        return not runner.is_stopped

    def process(self, event: on.Event) -> None:
        """Pass the caller's event to the core, between two calls of `step`."""
        self._runner.process(event)

    @property
    def error(self) -> TidegateError | None:
        """The error that stopped the worker; None while it works, and after a drain."""
        return self._runner.error

    def close(self, *, leaves_group: bool = False) -> None:
        """Stop the readers, end the membership, release the producer.

        Slots that are still held are given up uncommitted, and their read records are dropped.  The
        worker keeps its place in the group, unless `leaves_group` or its drain demands otherwise.
        """
        leaves_group = leaves_group or self._runner.leaves_group
        # One part that fails to close must not keep the others open.
        with ExitStack() as last_first:
            last_first.callback(self._publisher.close)
            last_first.callback(self._runner.membership.close, leaves_group=leaves_group)
            last_first.callback(self._runner.held.clear)
            last_first.callback(self._inbox.close)
            last_first.callback(self._runner.close)

    def _discard(self, output: on.ReaderOutput | on.TableFound) -> None:
        """Release the bytes of an output that is not read; called on any thread."""
        if isinstance(output, on.RecordsRead):
            self._release_budget([(output.token, output.size_bytes)])

    def _note_interruption(self, event: on.Event) -> None:
        """Log an interruption of reading a resource, once while it stays the same.

        A minute without one counts as recovery: often only positions are read, not records.
        """
        if isinstance(event, on.ProgressRead):
            self._interruptions.clear()
        elif isinstance(event, on.ReadInterrupted):
            now_us = self._clock.monotonic_us()
            former, at_us = self._interruptions.get(event.resource, (None, now_us))
            self._interruptions[event.resource] = event, now_us
            if former == event and now_us - at_us < _QUIET_US:
                return
            _log.warning("reading interrupted", resource=event.resource, reason=event.reason)

    def _look_for_stream_start(self) -> None:
        finder = self._runner.stream_start
        if finder is None:
            return
        runner = self._runner
        record, at_end = finder.poll()
        if record is not None:
            finder.close()
            runner.stream_start = None
            runner.process(on.StreamStartFound(record))
        elif at_end and self._absent_in_search != runner.search_id:
            self._absent_in_search = runner.search_id
            runner.process(on.StreamStartAbsent(runner.search_id))

    def _read_inbox(self) -> None:
        """Take all waiting outputs; wait a moment if there are none."""
        if not len(self._inbox) and self._inbox.wait(_IDLE_S):
            self._clock.sleep(_GATHER_S)
        for _ in range(_OUTPUTS_MAX):
            output = self._inbox.take()
            if output is None:
                return
            if isinstance(output, on.QueryFailed):
                _log.warning("query failed", token=output.token, error=str(output.error))
            self._runner.process(output)

    # ------------------------------------------------------------ the group's listener

    def slots_assigned(self, slots: tuple[int, ...]) -> None:
        """Take over slots; called inside `Membership.poll`."""
        _log.info("slots assigned", slots=slots)
        self._runner.held.update(slots)
        self._runner.process(on.SlotsAssigned(slots))

    def slots_revoked(self, slots: tuple[int, ...]) -> None:
        """Commit and stop everything of the slots; return when they may be reassigned."""
        _log.info("slots revoked", slots=slots)
        runner = self._runner
        held_slots = tuple(slot for slot in slots if slot in runner.held)
        if not held_slots:
            return
        give_up_at_us = self._clock.monotonic_us() + self._revoke_patience_us
        runner.process(on.SlotsRevoked(held_slots))
        while runner.held.intersection(held_slots) and not runner.is_stopped:
            if self._clock.monotonic_us() > give_up_at_us:
                runner.held.difference_update(held_slots)
                runner.process(on.SlotsLost(held_slots))
                return
            self._clock.sleep(_IDLE_S)
            runner.process(on.Ticked(has_read_inbox=False))

    def slots_lost(self, slots: tuple[int, ...]) -> None:
        """Drop everything of the slots; other workers may own them already."""
        runner = self._runner
        held_slots = tuple(slot for slot in slots if slot in runner.held)
        runner.held.difference_update(held_slots)
        if held_slots:
            _log.warning("slots lost", slots=held_slots)
            runner.process(on.SlotsLost(held_slots))

"""The base of queries that poll for new records; `ports.RunningQuery`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from tidegate.producer.ports import Clock, Tasks
from tidegate.producer.records import DataChangeRecord, HeartbeatRecord, StreamRecord
from tidegate.schemas.errors import TidegateError
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND

_RECORD_BYTES = 600
"""Memory of a record without its texts: the added columns, and Python's objects."""
_VALUE_BYTES = 64
"""Size of a value without its text, or of a value that is not a text."""


class RecordsResponse:
    """Records that were already read, as one response; implements `ports.Response`."""

    def __init__(self, records: Sequence[StreamRecord], *, held_bytes: int = 0) -> None:
        """`held_bytes` are the bytes that the query holds for the next records."""
        self._records = list(records)
        self._held_bytes = held_bytes
        self.size_bytes = sum(record_bytes(record) for record in self._records)

    def decode(self) -> tuple[list[StreamRecord], int]:
        """Return the records, and the bytes that stay held."""
        return self._records, self._held_bytes


class WaitingQuery(ABC):
    """Calls `step` in a thread until it returns records, and waits in between.

    Without records it returns a heartbeat after each interval, so that it is not silent.
    """

    def __init__(self, *, tasks: Tasks, clock: Clock, heartbeat_ms: int) -> None:
        self.clock = clock
        self._tasks = tasks
        self._changed = tasks.signal()
        self._heartbeat_us = heartbeat_ms * 1_000
        self._is_cancelled = False
        self._next: RecordsResponse | None = None
        self._failure: TidegateError | None = None
        self._stepping = threading.Lock()
        self._idle_until_us = 0
        """By the monotonic clock: no step has anything to do before this time."""
        self._silent_since_us: int | None = None
        """By the monotonic clock: since when nothing was returned; None before the first step."""

    @property
    def needed_bytes(self) -> int:
        """Bytes that the next step may hold at once; a step that needs any waits for them."""
        return 0

    @property
    def held_bytes(self) -> int:
        """Bytes that are held between two steps."""
        return 0

    @property
    @abstractmethod
    def earliest_us(self) -> int:
        """The first open time, which heartbeats report."""

    @abstractmethod
    def step(self) -> tuple[Sequence[StreamRecord], int]:
        """Do work that may block; return its records, or until when there is nothing to do.

        That time is of the monotonic clock.
        """

    def stop(self) -> None:  # noqa: B027 - some have nothing open
        """Close open files; called after the query was cancelled, possibly more than once."""

    def fail_with(self, error: TidegateError) -> None:
        """Raise an error once the records before it were returned."""
        self._failure = error

    async def next_size(self) -> int | None:
        """Wait for records, or for a step that needs bytes; None after `cancel`."""
        self._next = None
        if self._silent_since_us is None:
            self._silent_since_us = self.clock.monotonic_us()
        while not self._was_cancelled():
            if self._failure is not None:
                raise self._failure
            records: Sequence[StreamRecord] = ()
            if self.clock.monotonic_us() >= self._idle_until_us:
                needed = self.needed_bytes
                if needed:
                    return max(needed - self.held_bytes, 0)
                records = await self._stepped()
            if records := records or self._heartbeats():
                self._next = RecordsResponse(records, held_bytes=self.held_bytes)
                self._silent_since_us = self.clock.monotonic_us()
                return self._next.size_bytes
            quiet_us = self.clock.monotonic_us() - self._silent_since_us
            await self._wait(self._idle_until_us, self._heartbeat_us - quiet_us)
        return None

    async def receive(self) -> RecordsResponse:
        """Return the records whose size was returned, or those of the step that has its bytes."""
        if self._next is None:
            records = await self._stepped() or self._heartbeats()
            if records:
                self._silent_since_us = self.clock.monotonic_us()
            return RecordsResponse(records, held_bytes=self.held_bytes)
        return self._next

    async def _stepped(self) -> Sequence[StreamRecord]:
        records, self._idle_until_us = await self._tasks.in_thread(self._undisturbed)
        return records

    def _heartbeats(self) -> Sequence[StreamRecord]:
        """Return a heartbeat if nothing was returned for an interval."""
        silent_since_us = self._silent_since_us or 0
        if self.clock.monotonic_us() - silent_since_us < self._heartbeat_us:
            return ()
        return [HeartbeatRecord(self.earliest_us * NS_PER_US)]

    def cancel(self) -> None:
        """End the query."""
        self._is_cancelled = True
        self._changed.notify()
        if self._stepping.acquire(blocking=False):  # otherwise the running step releases open files
            try:
                self.stop()
            finally:
                self._stepping.release()

    def _undisturbed(self) -> tuple[Sequence[StreamRecord], int]:
        with self._stepping:
            if self._was_cancelled():
                return [], 0
            try:
                return self.step()
            finally:
                if self._was_cancelled():
                    self.stop()

    def _was_cancelled(self) -> bool:
        return self._is_cancelled

    async def _wait(self, until_us: int, longest_us: int) -> None:
        pause_us = min(until_us - self.clock.monotonic_us(), longest_us)
        if pause_us > 0:
            await self._changed.wait_for(self._was_cancelled, pause_us / US_PER_SECOND)


def record_bytes(record: StreamRecord) -> int:
    """Return the approximate memory of a record until it is translated."""
    if not isinstance(record, DataChangeRecord):
        return 64
    values = [value for mod in record.mods for part in mod for value in part.values()]
    texts = sum(len(value) for value in values if isinstance(value, str))
    return _RECORD_BYTES + _VALUE_BYTES * len(values) + texts

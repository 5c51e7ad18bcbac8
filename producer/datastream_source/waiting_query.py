"""What queries share that look for something new again and again; `ports.RunningQuery`."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tidegate.producer.records import DataChangeRecord, HeartbeatRecord
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.producer.ports import Clock, Tasks
    from tidegate.producer.records import StreamRecord
    from tidegate.schemas.errors import TidegateError

__all__ = ["RecordsResponse", "WaitingQuery"]

_RECORD_BYTES = 600
"""Of a record beside its texts: the columns that are added, and Python's objects."""


class RecordsResponse:
    """Records that were read already, as one response; implements `ports.Response`."""

    def __init__(self, records: Sequence[StreamRecord]) -> None:
        self._records = list(records)
        self.size_bytes = sum(_size_bytes(one) for one in self._records)

    def decode(self) -> tuple[list[StreamRecord], int]:
        """Return the records; nothing is unfinished."""
        return self._records, 0


class WaitingQuery(ABC):
    """Calls `step` beside the other readers until it returns something, and waits in between.

    Without anything new it returns a heartbeat after each interval, so that it is not silent.
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
        """By the monotonic clock: until then a step would find nothing to do."""

    @property
    @abstractmethod
    def earliest_us(self) -> int:
        """The first time that is open: what a heartbeat says."""

    @abstractmethod
    def step(self) -> tuple[Sequence[StreamRecord], int]:
        """Do something that may block; return its records, or until when there is nothing to do.

        That time is one of the monotonic clock.
        """

    def stop(self) -> None:  # noqa: B027 - some have nothing open
        """Release what is open; called when the query was cancelled, more than once."""

    def fail_with(self, error: TidegateError) -> None:
        """Raise an error once the records before it were returned."""
        self._failure = error

    async def next_size(self) -> int | None:
        """Wait for records; None after `cancel`."""
        silent_since_us = self.clock.monotonic_us()
        while not self._was_cancelled():
            if self._failure is not None:
                raise self._failure
            records: Sequence[StreamRecord] = ()
            if self.clock.monotonic_us() >= self._idle_until_us:
                records, self._idle_until_us = await self._tasks.in_thread(self._undisturbed)
            waited_us = self.clock.monotonic_us() - silent_since_us
            if not records and waited_us >= self._heartbeat_us:
                records = [HeartbeatRecord(self.earliest_us * NS_PER_US)]
            if records:
                self._next = RecordsResponse(records)
                return self._next.size_bytes
            await self._wait(self._idle_until_us, self._heartbeat_us - waited_us)
        return None

    async def receive(self) -> RecordsResponse:
        """Return the records whose size was returned."""
        assert self._next is not None, "`next_size` comes first"  # noqa: S101 - see the port
        return self._next

    def cancel(self) -> None:
        """End the query."""
        self._is_cancelled = True
        self._changed.notify()
        if self._stepping.acquire(blocking=False):  # else the step that runs releases what is open
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


def _size_bytes(record: StreamRecord) -> int:
    if not isinstance(record, DataChangeRecord):
        return 64
    values = (value for mod in record.mods for part in mod for value in part.values())
    return _RECORD_BYTES + sum(len(value) for value in values if isinstance(value, str))

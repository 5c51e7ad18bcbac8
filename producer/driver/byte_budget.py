"""The bytes that all readers of a worker may hold together, from the moment that they arrive.

Before a reader receives a message it asks for room for what may come (`expect`), and waits while
what is on its way fills a quarter of the budget.  Before it decodes the message it asks for the
bytes that came (`take`); these are held until the worker releases them, after its commit.  If what
becomes of the message is larger, it asks for the difference before it delivers it.  What comes on
top of these are the copies that are made while a message is received and decoded;
`benchmarks/results/producer.md` has a measurement.

Both lines are first come, first served.  An amount larger than the budget is admitted when it is
next and nothing is held that a commit would release; readers that wait with part of a value, or
with records to deliver, hold their bytes, and no commit would release those.

A query that is silent keeps its room for a moment only: there are many of them, and few that have
much to say.  If many silent ones receive large messages in the same moment, all of these are held:
gRPC receives the whole of a message that was asked for, and a question cannot be taken back.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.producer.driver.clock import SystemClock
from tidegate.schemas.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.ports import Clock, Signal, Tasks

__all__ = ["ByteBudget", "Expectation"]

_ARRIVING_PART = 4
_FIRST_PART = 16
_EXPECTED_FOR_US = 250_000
_FIRST_EXPECTED_FOR_US = 5_000_000
"""A query's first message takes longer, and only its silence tells that it is not large."""
_LOOK_AGAIN_S = 1.0


def _do_nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class Expectation:
    """Room for one message; `size` is 0 once it ended."""

    size: int
    until_us: int
    is_first: bool


@dataclass(slots=True, eq=False)
class _Waiter:
    """A reader in a line; `carried` are the bytes that it holds while it waits."""

    size: int | None
    """None: as much as is usual when it is its turn."""
    carried: int
    is_cancelled: Callable[[], bool]
    changed: Signal | None = None
    """None for one that is admitted at once."""
    is_admitted: bool = False

    def notify(self) -> None:
        if self.changed is not None:
            self.changed.notify()


class ByteBudget:
    """A shared number of bytes; tasks expect and take, any thread may release.

    `is_cancelled` is asked before a reader waits, at intervals, and after `wake`; `on_wait` is
    called once, before a reader waits.
    """

    def __init__(self, bytes_max: int, *, tasks: Tasks, clock: Clock | None = None) -> None:
        self._bytes_max = bytes_max
        self._tasks = tasks
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._taken = 0
        self._carried = 0
        """Those of the taken bytes that waiting readers hold."""
        self._arriving = 0
        """Bytes that are expected, or have arrived and are not taken yet."""
        self._expected: deque[Expectation] = deque()
        self._first: deque[Expectation] = deque()
        """The same of queries that have received nothing yet."""
        self._to_expect: deque[_Waiter] = deque()
        self._to_take: deque[_Waiter] = deque()
        self._usual = max(1, bytes_max // _FIRST_PART)

    @property
    def taken(self) -> int:
        """The bytes that are held now."""
        with self._lock:
            return self._taken

    # ------------------------------------------------------------ receiving

    async def expect(
        self,
        size: int | None,
        *,
        is_cancelled: Callable[[], bool],
        carried: int = 0,
        on_wait: Callable[[], None] = _do_nothing,
    ) -> Expectation | None:
        """Ask for room for the next message; wait until there is some.

        `size` is a guess, None without one; `carried` are bytes that the caller has taken and not
        delivered.  Returns None once `is_cancelled` holds.
        """
        guess = await self._pass(self._to_expect, size, carried, is_cancelled, on_wait)
        if guess is None:
            return None
        is_first = size is None
        patience_us = _FIRST_EXPECTED_FOR_US if is_first else _EXPECTED_FOR_US
        expectation = Expectation(guess, self._clock.monotonic_us() + patience_us, is_first)
        with self._lock:
            (self._first if is_first else self._expected).append(expectation)
        return expectation

    def end(self, expectation: Expectation) -> None:
        """Return the room of a message that did not come."""
        with self._lock:
            self._arriving -= expectation.size
            expectation.size = 0
            self._admit()

    async def take(
        self,
        size: int,
        *,
        is_cancelled: Callable[[], bool],
        expectation: Expectation | None = None,
        carried: int = 0,
        on_wait: Callable[[], None] = _do_nothing,
    ) -> bool:
        """Take the bytes of a message that came; wait until they fit.

        Returns False, with nothing taken, once `is_cancelled` holds.
        """
        with self._lock:
            self._arriving += size
            if expectation is not None:
                self._arriving -= expectation.size
                expectation.size = 0
                if expectation.is_first:
                    self._usual = max(size, self._usual // 2, 1)
        is_taken = await self._pass(self._to_take, size, carried, is_cancelled, on_wait)
        if is_taken is not None:
            return True
        with self._lock:
            self._arriving -= size
            self._admit()
        return False

    # ------------------------------------------------------------ holding

    def release(self, size: int) -> None:
        """Return bytes; raises InvariantViolation if fewer were taken."""
        with self._lock:
            self._taken -= size
            invariant(self._taken >= 0, "more bytes were released than taken", size=size)
            self._admit()

    def wake(self) -> None:
        """Make every waiting reader that was cancelled leave its line."""
        with self._lock:
            waiting = (*self._to_expect, *self._to_take)
        for waiter in waiting:
            if waiter.is_cancelled():
                waiter.notify()

    # ------------------------------------------------------------ the lines

    async def _pass(
        self,
        line: deque[_Waiter],
        size: int | None,
        carried: int,
        is_cancelled: Callable[[], bool],
        on_wait: Callable[[], None],
    ) -> int | None:
        """Stand in a line until it is this reader's turn; return its size, None if cancelled."""
        if is_cancelled():
            return None
        waiter = _Waiter(size, carried, is_cancelled)
        with self._lock:
            line.append(waiter)
            self._carried += carried
            self._admit()
            if waiter.is_admitted:
                return waiter.size
            waiter.changed = changed = self._tasks.signal()
        on_wait()
        return waiter.size if await self._wait(line, waiter, changed) else None

    async def _wait(self, line: deque[_Waiter], waiter: _Waiter, changed: Signal) -> bool:
        """Wait for a reader's turn; return False, out of the line, once it is cancelled."""

        def is_over() -> bool:
            return waiter.is_admitted or waiter.is_cancelled()

        while True:
            await changed.wait_for(is_over, _LOOK_AGAIN_S)
            with self._lock:
                self._admit()  # an expectation may have ended meanwhile
                if waiter.is_admitted:
                    return True
                if waiter.is_cancelled():
                    line.remove(waiter)
                    self._carried -= waiter.carried
                    self._admit()
                    return False

    def _admit(self) -> None:
        """Admit the heads of both lines for as long as there is room; the lock is held."""
        self._end_expectations()
        while self._to_take and self._may_take(size := self._size(self._to_take[0])):
            self._arriving -= size
            self._taken += size
            self._leave(self._to_take, size)
        while self._to_expect and self._may_expect(size := self._size(self._to_expect[0])):
            self._arriving += size
            self._leave(self._to_expect, size)

    def _size(self, waiter: _Waiter) -> int:
        return self._usual if waiter.size is None else waiter.size

    def _leave(self, line: deque[_Waiter], size: int) -> None:
        waiter = line.popleft()
        self._carried -= waiter.carried
        waiter.size, waiter.is_admitted = size, True
        waiter.notify()

    def _may_take(self, size: int) -> bool:
        return self._taken + size <= self._bytes_max or self._taken == self._carried

    def _may_expect(self, size: int) -> bool:
        if self._to_take:
            return False
        room = self._bytes_max // _ARRIVING_PART - self._arriving
        return size <= room or not self._arriving

    def _end_expectations(self) -> None:
        now_us = self._clock.monotonic_us()
        for line in (self._expected, self._first):
            while line and (not line[0].size or line[0].until_us <= now_us):
                expectation = line.popleft()
                if expectation.size and expectation.is_first:
                    self._usual = max(self._usual // 2, 1)
                self._arriving -= expectation.size
                expectation.size = 0

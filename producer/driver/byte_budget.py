"""The bytes that all readers of a worker may hold together, from before they arrive.

A reader asks for the bytes of a message when it knows the message's size, before it lets the
message come (`take`); these are held until the worker releases them, after its commit.  If what
becomes of the message is larger, it asks for the difference before it delivers it.  What comes on
top of these is what each stream receives ahead, and the copies that are made while a message is
received and decoded; `benchmarks/results/producer.md` has a measurement.

First come, first served.  An amount larger than the budget is admitted when it is next and nothing
is held that a commit would release; readers that wait with part of a value, or with records to
deliver, hold their bytes, and no commit would release those.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.schemas.errors import invariant

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.ports import Signal, Tasks

__all__ = ["ByteBudget"]

_LOOK_AGAIN_S = 1.0


def _do_nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A reader in the line; `carried` are the bytes that it holds while it waits."""

    size: int
    carried: int
    is_cancelled: Callable[[], bool]
    changed: Signal | None = None
    """None for one that is admitted at once."""
    is_admitted: bool = False

    def notify(self) -> None:
        if self.changed is not None:
            self.changed.notify()


class ByteBudget:
    """A shared number of bytes; tasks take, any thread may release.

    `is_cancelled` is asked before a reader waits, at intervals, and after `wake`; `on_wait` is
    called once, before a reader waits.
    """

    def __init__(self, bytes_max: int, *, tasks: Tasks) -> None:
        self._bytes_max = bytes_max
        self._tasks = tasks
        self._lock = threading.Lock()
        self._taken = 0
        self._carried = 0
        """Those of the taken bytes that waiting readers hold."""
        self._waiting: deque[_Waiter] = deque()

    @property
    def taken(self) -> int:
        """The bytes that are held now."""
        with self._lock:
            return self._taken

    async def take(
        self,
        size: int,
        *,
        is_cancelled: Callable[[], bool],
        carried: int = 0,
        on_wait: Callable[[], None] = _do_nothing,
    ) -> bool:
        """Take bytes; wait until they fit.

        `carried` are bytes that the caller has taken and not delivered.  Returns False, with
        nothing taken, once `is_cancelled` holds.
        """
        if is_cancelled():
            return False
        waiter = _Waiter(size, carried, is_cancelled)
        with self._lock:
            self._waiting.append(waiter)
            self._carried += carried
            self._admit()
            if waiter.is_admitted:
                return True
            waiter.changed = changed = self._tasks.signal()
        on_wait()
        return await self._wait(waiter, changed)

    def release(self, size: int) -> None:
        """Return bytes; raises InvariantViolation if fewer were taken."""
        with self._lock:
            self._taken -= size
            invariant(self._taken >= 0, "more bytes were released than taken", size=size)
            self._admit()

    def wake(self) -> None:
        """Make every waiting reader that was cancelled leave the line."""
        with self._lock:
            waiting = tuple(self._waiting)
        for waiter in waiting:
            if waiter.is_cancelled():
                waiter.notify()

    # ------------------------------------------------------------ the line

    async def _wait(self, waiter: _Waiter, changed: Signal) -> bool:
        """Wait for a reader's turn; return False, out of the line, once it is cancelled."""

        def is_over() -> bool:
            return waiter.is_admitted or waiter.is_cancelled()

        while True:
            await changed.wait_for(is_over, _LOOK_AGAIN_S)
            with self._lock:
                if waiter.is_admitted:
                    return True
                if waiter.is_cancelled():
                    self._waiting.remove(waiter)
                    self._carried -= waiter.carried
                    self._admit()
                    return False

    def _admit(self) -> None:
        """Admit the head of the line for as long as there is room; the lock is held."""
        while self._waiting and self._may_take(self._waiting[0].size):
            self._leave()

    def _leave(self) -> None:
        waiter = self._waiting.popleft()
        self._taken += waiter.size
        self._carried -= waiter.carried
        waiter.is_admitted = True
        waiter.notify()

    def _may_take(self, size: int) -> bool:
        return self._taken + size <= self._bytes_max or self._taken == self._carried

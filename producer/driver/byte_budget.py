"""The bytes that all readers of a worker may hold together, from before they arrive.

A reader asks for the bytes of a message when it knows the message's size, before it lets the
message come (`take`); these are held until the worker releases them, after its commit.  If what
becomes of the message is larger, it asks for the difference before it delivers it.  What comes on
top of these is what each stream receives ahead, and the copies that are made while a message is
received and decoded; `benchmarks/results/producer.md` has a measurement.

`core.budget_line` decides who is next; here its decisions reach the readers' tasks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from tidegate.producer.core.budget_line import BudgetLine, Request
from tidegate.producer.ports import Signal, Tasks

_LOOK_AGAIN_S = 1.0


def _do_nothing() -> None:
    """Do nothing."""


class _Turn:
    """What one reader waits for."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self.is_cancelled = is_cancelled
        self.is_admitted = False
        self.changed: Signal | None = None
        """None for one that is admitted at once."""

    def notify(self) -> None:
        if self.changed is not None:
            self.changed.notify()


class ByteBudget:
    """A shared number of bytes; tasks take, any thread may release.

    `is_cancelled` is asked before a reader waits, at intervals, and after `wake`; `on_wait` is
    called once, before a reader waits.
    """

    def __init__(self, bytes_max: int, *, tasks: Tasks) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self._line = BudgetLine(bytes_max)
        self._turns: dict[Request, _Turn] = {}
        """The turns of those that wait."""

    @property
    def taken(self) -> int:
        """The bytes that are held now."""
        with self._lock:
            return self._line.taken

    async def take(
        self,
        token: str,
        size: int,
        *,
        is_cancelled: Callable[[], bool],
        carried: int = 0,
        on_wait: Callable[[], None] = _do_nothing,
    ) -> bool:
        """Take bytes for a reader of the stream partition `token`; wait until it is its turn.

        `carried` are bytes that the caller has taken and not delivered.  Returns False, with
        nothing taken, once `is_cancelled` holds.
        """
        if is_cancelled():
            return False
        request, turn = Request(token, size, carried), _Turn(is_cancelled)
        with self._lock:
            self._turns[request] = turn
            self._line.ask(request)
            self._admit()
            if turn.is_admitted:
                return True
            turn.changed = changed = self._tasks.signal()
        on_wait()
        return await self._wait(request, turn, changed)

    def release(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Return bytes, (token, bytes) each; raises InvariantViolation if fewer were taken."""
        with self._lock:
            self._line.release(sizes)
            self._admit()

    def wake(self) -> None:
        """Make every waiting reader that was cancelled leave the line."""
        with self._lock:
            turns = tuple(self._turns.values())
        for turn in turns:
            if turn.is_cancelled():
                turn.notify()

    # ------------------------------------------------------------ waiting

    async def _wait(self, request: Request, turn: _Turn, changed: Signal) -> bool:
        """Wait for a reader's turn; return False, out of the line, once it is cancelled."""

        def is_over() -> bool:
            return turn.is_admitted or turn.is_cancelled()

        while True:
            await changed.wait_for(is_over, _LOOK_AGAIN_S)
            with self._lock:
                if turn.is_admitted:
                    return True
                if turn.is_cancelled():
                    del self._turns[request]
                    self._line.withdraw(request)
                    self._admit()
                    return False

    def _admit(self) -> None:
        """Admit all whose turn it is; the lock is held."""
        while (request := self._line.admit()) is not None:
            turn = self._turns.pop(request)
            turn.is_admitted = True
            turn.notify()

"""The bytes that all readers of a worker may hold together, reserved before they arrive.

A reader asks for the bytes of a message when it knows the message's size, before it receives the
message (`take`); they stay reserved until the worker releases them, after its commit.  If the
decoded message is larger, the reader asks for the difference before it delivers it.

Not counted are the bytes that each stream receives ahead, and the copies that are made while a
message is received and decoded; `benchmarks/results/producer.md` has a measurement.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tidegate.producer.ports import Signal, Tasks
from tidegate.schemas.errors import invariant

_SHARES_MAX = 64
"""A share is never less than this part of the budget, so no more can be over theirs at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Bytes that a reader of the stream partition `token` waits for; it already holds `carried`."""

    token: str
    size: int
    carried: int = 0


@dataclass(slots=True)
class _Account:
    """One stream partition's bytes."""

    taken: int = 0
    carried: int = 0
    """The taken bytes that its waiting readers hold."""
    requests: int = 0

    @property
    def delivered(self) -> int:
        """Bytes that no waiting reader holds: delivered, or soon to be."""
        return self.taken - self.carried


class BudgetLine:
    """The admission of readers to a number of bytes.

    First come, first served, with one exception: a reader is passed over while its stream partition
    has delivered more than its share and a reader of another one waits that has not.  The share is
    an equal part for each stream partition that holds bytes or waits for them, but at least 1/64 of
    the budget.  So one that always has more does not hold nearly all of the budget while the others
    wait for commits.  If no other waits it may hold all of it.

    A request that is passed over keeps its place, and a commit releases what its stream partition
    delivered: so it is first again after its own bytes were committed, however many others ask.
    Bytes that a waiting reader holds itself do not count for the share: no commit releases them.

    An amount larger than the budget is admitted when it is next and nothing is held that a commit
    would release; readers that wait with part of a value, or with records to deliver, hold their
    bytes, and no commit would release those.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.taken = 0
        self.carried = 0
        """The taken bytes that waiting readers hold."""
        self._line: deque[Request] = deque()
        self._accounts: dict[str, _Account] = {}

    @property
    def waiting(self) -> tuple[Request, ...]:
        """The waiting requests, in the order of arrival."""
        return tuple(self._line)

    @property
    def share(self) -> int:
        """The bytes above which a stream partition is passed over by others within their share."""
        return self.bytes_max // min(max(len(self._accounts), 1), _SHARES_MAX)

    def delivered(self, token: str) -> int:
        """Return the bytes of a stream partition that count for its share."""
        account = self._accounts.get(token)
        return 0 if account is None else account.delivered

    def ask(self, request: Request) -> None:
        """Put a request at the end of the line."""
        account = self._accounts.setdefault(request.token, _Account())
        account.requests += 1
        account.carried += request.carried
        self.carried += request.carried
        self._line.append(request)

    def withdraw(self, request: Request) -> None:
        """Remove a request from the line that was not admitted."""
        self._line.remove(request)
        self._forget(request)

    def release(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Return bytes of stream partitions; raises InvariantViolation if fewer were taken."""
        for token, size in sizes:
            account = self._accounts.setdefault(token, _Account())
            account.taken -= size
            self.taken -= size
            invariant(account.taken >= 0, "more bytes released than taken", token=token, size=size)
            self._settle(token, account)

    def admit(self) -> Request | None:
        """Admit the next request and take its bytes; None if there is none or it does not fit."""
        request = self._next()
        if request is None or not self.may_take(request.size):
            return None
        if request is self._line[0]:
            self._line.popleft()
        else:
            self._line.remove(request)
        self._accounts[request.token].taken += request.size
        self.taken += request.size
        self._forget(request)
        return request

    def may_take(self, size: int) -> bool:
        """Whether the next request is admitted if it asks for this many bytes."""
        return self.taken + size <= self.bytes_max or self.taken == self.carried

    # ------------------------------------------------------------ inside

    def _next(self) -> Request | None:
        """Return the first request within its share; if there is none, the first request."""
        share = self.share
        for request in self._line:
            if self._accounts[request.token].delivered <= share:
                return request
        return self._line[0] if self._line else None

    def _forget(self, request: Request) -> None:
        account = self._accounts[request.token]
        account.requests -= 1
        account.carried -= request.carried
        self.carried -= request.carried
        self._settle(request.token, account)

    def _settle(self, token: str, account: _Account) -> None:
        if not account.taken and not account.requests:
            self._accounts.pop(token, None)


_LOOK_AGAIN_S = 1.0


def _do_nothing() -> None:
    """Do nothing."""


class _Turn:
    """The wait of one reader."""

    def __init__(self, is_cancelled: Callable[[], bool]) -> None:
        self.is_cancelled = is_cancelled
        self.is_admitted = False
        self.changed: Signal | None = None
        """None for a reader that is admitted at once."""

    def notify(self) -> None:
        if self.changed is not None:
            self.changed.notify()


class ByteBudget:
    """A shared number of bytes; tasks take, any thread may release.

    `is_cancelled` is called before a reader waits, at intervals, and after `wake`; `on_wait` is
    called once, before a reader waits.
    """

    def __init__(self, bytes_max: int, *, tasks: Tasks) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self._line = BudgetLine(bytes_max)
        self._turns: dict[Request, _Turn] = {}
        """The turns of waiting readers."""

    @property
    def taken(self) -> int:
        """The bytes that are taken now."""
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
        nothing taken, once `is_cancelled` returns true.
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
        """Make cancelled waiting readers leave the line."""
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
        """Admit all requests whose turn it is; the caller holds the lock."""
        while (request := self._line.admit()) is not None:
            turn = self._turns.pop(request)
            turn.is_admitted = True
            turn.notify()

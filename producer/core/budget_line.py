"""Who is admitted next to the bytes that all readers of a worker may hold together.

First come, first served, with one exception: a reader is passed over while its stream partition has
delivered more than its share and a reader of another one waits that has not.  The share is an equal
one of the stream partitions that hold bytes or wait for them, so one that always has more does not
hold nearly all of the budget while the others wait for commits.  If no other waits it may hold
all of it.

What is passed over keeps its place, and a commit releases what its stream partition delivered: so
it is first again after its own bytes were committed, however many others ask.  Bytes that a waiting
reader holds itself count for no share, since no commit releases them.

An amount larger than the budget is admitted when it is next and nothing is held that a commit would
release; readers that wait with part of a value, or with records to deliver, hold their bytes, and
no commit would release those.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.schemas.errors import invariant

_SHARES_MAX = 64
"""At most so many are beyond their share, and passed over, at a time."""


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """Bytes that a reader of the stream partition `token` waits for; it holds `carried` already."""

    token: str
    size: int
    carried: int = 0


@dataclass(slots=True)
class _Account:
    """One stream partition's bytes."""

    taken: int = 0
    carried: int = 0
    """Those of the taken bytes that its waiting readers hold."""
    requests: int = 0

    @property
    def delivered(self) -> int:
        """Bytes that no waiting reader holds: delivered ones, or soon to be."""
        return self.taken - self.carried


class BudgetLine:
    """A number of bytes, what each stream partition holds of it, and who waits."""

    def __init__(self, bytes_max: int) -> None:
        """Start with nothing taken."""
        self.bytes_max = bytes_max
        self.taken = 0
        self.carried = 0
        """Those of the taken bytes that waiting readers hold."""
        self._line: deque[Request] = deque()
        self._accounts: dict[str, _Account] = {}

    @property
    def waiting(self) -> tuple[Request, ...]:
        """Who waits, in the order of asking."""
        return tuple(self._line)

    @property
    def share(self) -> int:
        """The bytes beyond which a stream partition lets those pass that hold less."""
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
        """Take a request that was not admitted out of the line."""
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
        """Admit the next request, its bytes taken; None if nobody waits or the next has no room."""
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
        """Whether the next request is admitted if it asks for so many bytes."""
        return self.taken + size <= self.bytes_max or self.taken == self.carried

    # ------------------------------------------------------------ inside

    def _next(self) -> Request | None:
        """Return the first within its share; if all are beyond theirs, the first."""
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

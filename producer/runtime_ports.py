"""The producer's ports to time, threads and tasks, which the simulation schedules itself."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Protocol, TypeAlias, TypeVar

_T = TypeVar("_T")
_Run: TypeAlias = "Callable[[], Coroutine[Any, Any, _T]]"


class Clock(Protocol):
    """Tells the time and waits; any thread may call it."""

    def monotonic_us(self) -> int:
        """Return microseconds since an arbitrary moment; never less than before."""
        ...

    def wall_us(self) -> int:
        """Return microseconds since 1970; may step backwards or forwards."""
        ...

    def sleep(self, seconds: float) -> None:
        """Block for about `seconds`."""
        ...


class Condition(Protocol):
    """A lock, and a way to wait for a change of what it protects; see `threading.Condition`."""

    def __enter__(self) -> bool:
        """Take the lock."""
        ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None:
        """Release the lock."""
        ...

    def wait_for(self, predicate: Callable[[], bool], timeout: float | None = None) -> bool:
        """Release the lock until `predicate` holds or `timeout` seconds passed; return which."""
        ...

    def notify_all(self) -> None:
        """Make every waiting thread look at its predicate again; the lock is held."""
        ...


class Threads(Protocol):
    """Makes conditions between threads."""

    def condition(self) -> Condition:
        """Return a new condition with a lock of its own."""
        ...


class Signal(Protocol):
    """A way for tasks to wait for a change."""

    async def wait_for(self, predicate: Callable[[], bool], timeout_s: float | None = None) -> bool:
        """Wait until `predicate` holds or `timeout_s` passed; return which."""
        ...

    def notify(self) -> None:
        """Make every waiting task look at its predicate again; any thread may call it."""
        ...


class Tasks(Protocol):
    """Starts tasks and makes what they wait with."""

    def start(self, run: _Run[None], *, name: str) -> None:
        """Run `run()` beside the caller; any thread may call it.  `run` raises nothing."""
        ...

    def signal(self) -> Signal:
        """Return a new signal for tasks started here."""
        ...

    async def in_thread(self, call: Callable[[], _T]) -> _T:
        """Return what `call` returns, or raise what it raises; it may block."""
        ...

"""Threads and conditions as the driver uses them, so that a test may schedule them itself.

The driver starts threads and waits through these ports only, and never holds a lock while it calls
another port.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Condition", "RunningThread", "SystemThreads", "Threads"]


class RunningThread(Protocol):
    """A thread that was started."""

    def join(self, timeout: float | None = None) -> None:
        """Block until the thread ended, for at most `timeout` seconds."""
        ...

    def is_alive(self) -> bool:
        """Tell whether the thread still runs."""
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
    """Makes threads and conditions."""

    def start(self, run: Callable[[], None], *, name: str) -> RunningThread:
        """Run `run` beside the caller; the process may end without waiting for it."""
        ...

    def condition(self) -> Condition:
        """Return a new condition with a lock of its own."""
        ...


class SystemThreads:
    """Threads of the operating system."""

    def start(self, run: Callable[[], None], *, name: str) -> RunningThread:
        """Start a daemon thread."""
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def condition(self) -> Condition:
        """Return a `threading.Condition`."""
        return threading.Condition()

"""Conditions as the loop uses them, so that a test may schedule its waiting itself.

The loop waits through these ports only, and never holds a lock while it calls another port.  What
runs beside it: `tasks.py`.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Condition", "SystemThreads", "Threads"]


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


class SystemThreads:
    """Threads of the operating system."""

    def condition(self) -> Condition:
        """Return a `threading.Condition`."""
        return threading.Condition()

"""What readers and translation delivered and the loop has not taken yet, in that order."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias

from tidegate.producer.driver.threads import SystemThreads

if TYPE_CHECKING:
    from collections.abc import Callable

    from tidegate.producer.core.events import ReaderOutput, TableFound
    from tidegate.producer.ports import Threads

    _Output: TypeAlias = ReaderOutput | TableFound

__all__ = ["Inbox"]


class Inbox:
    """A queue from the readers to the loop; the byte budget bounds it.

    `discard` is called with every output that is not taken before `close`, or comes after it.
    """

    def __init__(
        self, *, discard: Callable[[_Output], None], threads: Threads | None = None
    ) -> None:
        self._discard = discard
        self._is_closed = False
        self._waiting: deque[_Output] = deque()
        self._changed = (threads or SystemThreads()).condition()

    def put(self, output: _Output) -> None:
        """Append; does not block."""
        with self._changed:
            if not self._is_closed:
                self._waiting.append(output)
                self._changed.notify_all()
                return
        self._discard(output)

    def close(self) -> None:
        """Discard what waits, and whatever a reader that ends late still delivers."""
        with self._changed:
            self._is_closed = True
            left, self._waiting = self._waiting, deque()
        for output in left:
            self._discard(output)

    def take(self, *, timeout_s: float) -> _Output | None:
        """Return the oldest output; None if there is none within `timeout_s`."""
        with self._changed:
            if not self._waiting and timeout_s:
                self._changed.wait_for(self._has_any, timeout_s)
            return self._waiting.popleft() if self._waiting else None

    def __len__(self) -> int:
        """Return how many outputs wait."""
        return len(self._waiting)

    def _has_any(self) -> bool:
        return bool(self._waiting)

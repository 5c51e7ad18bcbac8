"""What readers and translation delivered and the loop has not taken yet, in that order.

Where the loop cannot keep up, records of one query that were delivered apart are taken as one: the
core then does once what it does for each output.  They never move past anything but records of
other queries, with which they have no order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TypeAlias

from tidegate.producer.core.events import ReaderOutput, RecordsRead, TableFound
from tidegate.producer.driver.threads import SystemThreads
from tidegate.producer.ports import Threads

_Output: TypeAlias = ReaderOutput | TableFound


_JOINED_MAX = 100
"""Outputs at most; the loop looks at the group between two numbers of outputs."""


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
        self._joined: deque[_Output] = deque()
        """What is taken first: all that waited at some time."""
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
            left = (*self._joined, *self._waiting)
            self._joined.clear()
            self._waiting.clear()
        for output in left:
            self._discard(output)

    def wait(self, timeout_s: float) -> bool:
        """Wait until something waits here; return whether it does."""
        with self._changed:
            if not self._joined and not self._waiting:
                self._changed.wait_for(self._has_any, timeout_s)
            return len(self) > 0

    def take(self) -> _Output | None:
        """Return the oldest output, joined with later records of its query; None if none waits."""
        with self._changed:
            if not self._joined:
                self._joined.extend(joined(self._waiting))
                self._waiting.clear()
            return self._joined.popleft() if self._joined else None

    def __len__(self) -> int:
        """Return how many outputs wait."""
        return len(self._joined) + len(self._waiting)

    def _has_any(self) -> bool:
        return bool(self._waiting)


def joined(outputs: Iterable[_Output]) -> list[_Output]:
    """Return the outputs with records of one query joined, unless another output stands between."""
    runs: list[list[RecordsRead] | _Output] = []
    growing: dict[tuple[str, int], list[RecordsRead]] = {}
    for output in outputs:
        if not isinstance(output, RecordsRead):
            growing.clear()
            runs.append(output)
            continue
        query = output.token, output.query_id
        run = growing.get(query)
        if run is None or len(run) == _JOINED_MAX:
            run = growing[query] = []
            runs.append(run)
        run.append(output)
    return [_one(run) if isinstance(run, list) else run for run in runs]


def _one(run: list[RecordsRead]) -> RecordsRead:
    first = run[0]
    if len(run) == 1:
        return first
    items = [item for output in run for item in output.items]
    return RecordsRead(first.token, first.query_id, items, sum(one.size_bytes for one in run))

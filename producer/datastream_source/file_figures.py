"""What a worker has met in files, for metrics: counts since its start, and how far it is.

Queries report from threads, and metrics are set from the loop: every method may be called from any
thread.  What is read again after a restart or an aborted transaction is counted again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the query of one object is."""

    unread: int
    """Files that were listed and not read to their ends."""
    open_since_us: int
    """Where the first minute begins with files that were not read, else the first open one."""


class FileFigures:
    """The figures of all objects that one worker reads."""

    def __init__(self) -> None:
        """Start with nothing counted."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._progress: dict[object, Progress] = {}

    def add(self, counts: Mapping[str, int]) -> None:
        """Add what a query has met since it last did; names are those of `ObjectReading.counts`."""
        with self._lock:
            self._counts.update(counts)

    def report(self, query: object, progress: Progress) -> None:
        """Take how far a query is; holds until `forget`."""
        with self._lock:
            self._progress[query] = progress

    def forget(self, query: object) -> None:
        """Take that a query has ended."""
        with self._lock:
            self._progress.pop(query, None)

    def counts(self) -> dict[str, int]:
        """Return the counts by name."""
        with self._lock:
            return dict(self._counts)

    def progress(self) -> Progress | None:
        """Return the unread files of all queries and the earliest open minute; None without one."""
        with self._lock:
            found = list(self._progress.values())
        if not found:
            return None
        return Progress(sum(one.unread for one in found), min(one.open_since_us for one in found))

"""The search for the record that opened the epoch, and what proves that the record is missing.

A search that ends without a finding proves nothing by itself: the record may have been committed
behind what the search had read.  An owner writes a snapshot only after it has read the record.  So
once a slot shows a snapshot, or the offset of a fence, the record is in the log, and a search that
begins after that finds it, or it was deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegate.producer.core.effects import FindStreamStart
from tidegate.producer.core.slot import Slot

_PATIENCE_US = 10_000_000
"""How long a search that is under way may still take before another one is started."""


class StreamStartSearch:
    """The searches of one worker, until one of them finds the record."""

    def __init__(self) -> None:
        """Start without a search."""
        self._searches = 0
        self._proved_us: int | None = None
        """When a slot first proved that the record was committed."""
        self._proving: int | None = None
        """The search that began after that."""

    def begin(self) -> list[FindStreamStart]:
        """Return the first search; nothing if there was one already."""
        return [] if self._searches else [self._next()]

    def poll(self, slots: Iterable[Slot], *, now_us: int) -> list[FindStreamStart]:
        """Return the search that decides, if it is time for it; the record is not found yet."""
        if self._proving is not None:
            return []
        if self._proved_us is None:
            if any(slot.proves_stream_start for slot in slots):
                self._proved_us = now_us
            return []
        if now_us - self._proved_us < _PATIENCE_US:
            return []
        search = self._next()
        self._proving = search.search_id
        return [search]

    def is_decided_by(self, search_id: int) -> bool:
        """Whether the record is missing if this search ended without it."""
        return search_id == self._proving

    def _next(self) -> FindStreamStart:
        self._searches += 1
        return FindStreamStart(self._searches)

"""How far a backfill is, by the tokens that a stream began with and those that are open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tidegate.producer.backfill.read_partition import is_of_backfill, reading_of
from tidegate.producer.backfill.table_run import place_of
from tidegate.schemas.progress import StreamStarted


@dataclass(frozen=True, slots=True)
class BackfillProgress:
    """A backfill that goes on."""

    rows: int
    """The rows of all its tables, as they were when the stream began."""
    published: int
    """How many of these are published."""
    seconds_left: float | None = None
    """At the rate since the status before; None in the first one, and where nothing came."""


def backfill_progress(
    started: StreamStarted, open_tokens: Iterable[str], *, changes: int, rate: float | None
) -> BackfillProgress | None:
    """Return how far the backfill is; None without one, and once it is done.

    Until it is done nothing but rows is published: `changes`, so many in a second as `rate` says.
    """
    if not any(is_of_backfill(token) and place_of(token) is None for token in open_tokens):
        return None
    ranges = [reading_of(child.token) for child in started.children]
    rows = sum(one.rows for one in ranges if one is not None)
    left = rows - changes
    return BackfillProgress(rows, changes, round(left / rate, 1) if rate and left >= 0 else None)

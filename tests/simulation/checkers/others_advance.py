"""A stream partition that Spanner refuses holds up its descendants and no other."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    for token in history.held_up:
        yield Violation("held up although Spanner refuses others only", token)

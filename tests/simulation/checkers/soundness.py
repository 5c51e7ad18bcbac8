"""No core contradicts itself or refuses what a correct fleet writes."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    for text in history.broken:
        yield Violation(text)

"""After healing everything comes: nothing is broken, and the watermark passes the last commit."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    for text in history.unhealed:
        yield Violation(text)

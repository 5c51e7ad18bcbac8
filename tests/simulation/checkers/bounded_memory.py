"""What the cores keep is bounded, and what they took they give back."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    for size in history.sizes:
        if size.largest > size.bound:
            yield Violation(f"{size.what}: {size.largest}, at most {size.bound} are allowed")

"""P5: the changelog has, for each change, the columns that Spanner captured, with their values."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    for change in history.within:
        found = history.captured.get(change.order_key)
        if found is None or change.columns is None:
            continue
        if dict(found) != dict(change.columns):
            text = f"captured {dict(change.columns)}, the changelog holds {dict(found)}"
            yield Violation(text, change.order_key)

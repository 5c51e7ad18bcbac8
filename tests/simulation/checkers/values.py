"""What a data record says is what was committed: kind, key, columns, and each value."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation

__all__ = ["check"]


def check(history: History) -> Iterator[Violation]:
    committed = {change.order_key: change for change in history.committed}
    for record in history.published:
        if record.is_copy:
            continue  # no worker wrote it
        change = committed.get(record.order_key)
        if change is None or change.columns is None or record.columns is None:
            continue
        said = (record.topic, record.key, record.mod, dict(record.columns))
        meant = (change.topic, change.key, change.mod, dict(change.columns))
        if said != meant:
            yield Violation(f"says {said} where {meant} was committed", record.order_key)

"""Behind each DELETE stands its tombstone, in the same transaction; nothing else has one."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    """Compare each change with the record behind it, and find tombstones without a DELETE."""
    for change in history.published:
        if change.has_tombstone is None or change.is_copy:
            continue
        if change.has_tombstone != (history.tombstones and change.mod == "D"):
            what = "a tombstone" if change.has_tombstone else "no tombstone"
            yield Violation(f"{what} behind a change of kind {change.mod}", change.order_key)
    for topic, number, offset in history.lone_tombstones:
        yield Violation(f"a tombstone that follows no change of its key: {topic}/{number}@{offset}")

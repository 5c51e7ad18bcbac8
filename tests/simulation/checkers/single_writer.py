"""P1: nobody but the slot's owner publishes for it, and every commit was fenced for all its slots.

A slot's snapshots are the proof in the log: each follows the one before it, revision by revision.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.progress import SlotChanges, SlotProgress


def check(history: History) -> Iterator[Violation]:
    for commit in history.fenced:
        if not commit.has_checked:
            yield Violation(f"{commit.worker} committed without a fence (event {commit.at})")
        foreign = sorted(commit.covers - commit.owned)
        if foreign:
            yield Violation(f"{commit.worker} wrote for foreign slots {foreign} ({commit.at})")
        bare = sorted(commit.covers - commit.offset_slots)
        if bare:
            yield Violation(f"{commit.worker}'s fence lacks slots {bare} ({commit.at})")
        if commit.after_fence:
            yield Violation(
                f"{commit.worker} produced {commit.after_fence} behind its fence ({commit.at})"
            )
    revisions: dict[int, int] = {}
    for entry in history.progress:
        body = entry.record.body
        if not isinstance(body, SlotProgress | SlotChanges) or body.chunk:
            continue
        expected = revisions.get(entry.slot, 0) + 1
        revisions[entry.slot] = body.revision
        if body.revision != expected:
            text = f"slot {entry.slot}: revision {body.revision} where {expected} was due"
            yield Violation(f"{text}, by {entry.record.worker}")

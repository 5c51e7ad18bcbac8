"""What a reader believes of a slot is what the slot said: its vector at a revision, in full."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.progress import SlotChanges, SlotProgress, SlotWatermark

_Vector = dict[tuple[str, int], int]


def check(history: History) -> Iterator[Violation]:
    """Compare each snapshot that a reader put into effect with the sum of what was written."""
    said: dict[tuple[int, int], _Vector] = {}
    for entry in history.progress:
        body = entry.record.body
        if isinstance(body, SlotProgress | SlotChanges | SlotWatermark):
            vector = {(one.topic, one.topic_partition): one.offset for one in body.vector}
            said.setdefault((body.slot, body.revision), {}).update(vector)
    sums: dict[tuple[int, int], _Vector] = {}
    newest: dict[int, _Vector] = {}
    for (slot, revision), entries in sorted(said.items()):
        sums[slot, revision] = newest[slot] = {**newest.get(slot, {}), **entries}
    for view in history.views:
        written = sums.get((view.slot, view.revision))
        if written is None:
            yield Violation(f"slot {view.slot}: a reader knows revision {view.revision}")
        elif dict(view.vector) != written:
            lacking = sorted(written.items() - dict(view.vector).items())
            yield Violation(
                f"slot {view.slot}: a reader took revision {view.revision} without {lacking}"
            )

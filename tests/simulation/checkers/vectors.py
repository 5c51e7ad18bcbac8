"""A slot's vector only grows, over all its owners: nothing that was written is left out of it."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation
from tidegate.schemas.progress import SlotChanges, SlotProgress, SlotWatermark

_Vector = dict[tuple[str, int], int]


def check(history: History) -> Iterator[Violation]:
    """Compare each whole vector, over all its chunks, with what the slot has said before it."""
    whole: dict[tuple[int, int], _Vector] = {}
    said: dict[tuple[int, int], _Vector] = {}
    for entry in history.progress:
        body = entry.record.body
        if not isinstance(body, SlotProgress | SlotChanges | SlotWatermark):
            continue
        vector = {(one.topic, one.topic_partition): one.offset for one in body.vector}
        said.setdefault((body.slot, body.revision), {}).update(vector)
        if not isinstance(body, SlotChanges):
            whole.setdefault((body.slot, body.revision), {}).update(vector)
    reached: dict[int, _Vector] = {}
    for (slot, revision), entries in sorted(said.items()):
        before = reached.setdefault(slot, {})
        found = whole.get((slot, revision), {**before, **entries})
        if any(found.get(place, -1) < offset for place, offset in before.items()):
            yield Violation(f"slot {slot}: the vector of revision {revision} lacks what was in it")
        before.update(entries)

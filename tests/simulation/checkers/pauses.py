"""Nothing is read in a pause, and nothing published of a slot whose owner says that it obeys."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation

_REDRIVE = "redrive"
"""The name of the process that puts parked changes back, which it may do in a pause."""


def check(history: History) -> Iterator[Violation]:
    """Go through the commits in their order, each under the last control before it."""
    yield from map(Violation, history.disobeyed)
    controls, said = list(history.controls), set[tuple[int, int]]()
    last = None
    for one in history.fenced:
        while controls and controls[0].at <= one.at:
            last = controls.pop(0)
        if last is not None and last.is_pause and one.worker != _REDRIVE:
            for slot in sorted(one.with_data):
                if (slot, last.number) in said:
                    yield Violation(f"{one.worker} published in slot {slot}, which is paused")
        said.update(one.paused)

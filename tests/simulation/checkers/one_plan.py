"""P5: a batch is planned once, whatever the number of runs that try it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    for batch, plans in Counter(claim.batch for claim in history.claims).items():
        if plans > 1:
            yield Violation(f"batch {batch} was planned {plans} times")

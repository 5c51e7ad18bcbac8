"""Value schemas only grow: a higher id has every field of a lower one, of the same type.

The registry of a world gives ids in the order of registration.  So the schema with the most fields
is the highest id, and a reader takes it for all values of a topic, whichever worker wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.history import History, Violation

__all__ = ["check"]


def check(history: History) -> Iterator[Violation]:
    for topic, schemas in history.value_schemas.items():
        for (lower, earlier), (higher, later) in pairwise(sorted(schemas.items())):
            lacking = sorted(name for name in earlier if later.get(name) != earlier[name])
            if lacking:
                yield Violation(f"{topic}: schema {higher} lacks {lacking} of schema {lower}")

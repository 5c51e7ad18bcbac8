"""P5: a manifest counts its release, and no table is behind what an earlier manifest names."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from tests.simulation.history import History, Violation


def check(history: History) -> Iterator[Violation]:
    """Look at the versions and sizes; `commit_order` compares numbers and bounds."""
    for before, one in pairwise(history.manifests):
        for table, version in before.versions.items():
            if one.versions.get(table, -1) < version:
                yield Violation(f"release {one.number}: {table} is behind version {version}")
    sizes = {release.number: len(release.order_keys) for release in history.released}
    for one in history.manifests:
        if one.rows != sizes.get(one.number, one.rows):
            yield Violation(f"manifest {one.number} counts {one.rows}, not {sizes[one.number]}")

"""What each sink took in a batch: releases, and the changes in them.

A mirror takes the releases of several batches at once, so what it has yet to take is kept between
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from tidegate.spark_consumer.core.cadence import MIRRORS
from tidegate.spark_consumer.core.plan import MergeMirror, Plan, WriteRelease

_NOTHING = -1
"""Where a mirror stands before its first release."""


class SinkWork:
    """Counts over the batches of one process."""

    def __init__(self) -> None:
        """Start without releases: those that earlier processes wrote have unknown sizes."""
        self._unmerged: dict[int, int] = {}

    def take(self, plan: Plan, changes_of: Mapping[int, int]) -> dict[str, tuple[int, int]]:
        """Return the releases and changes that each sink took while a plan was executed.

        `changes_of` has the number of changes of each of its releases.  The changes of a release
        that an earlier process wrote are missing from what a mirror took.
        """
        releases: dict[str, int] = defaultdict(int)
        changes: dict[str, int] = defaultdict(int)
        mirrors = [name for name in plan.sinks if name in MIRRORS]
        for step in plan.steps:
            match step:
                case WriteRelease():
                    number = step.bounds.number
                    if set(mirrors).difference(step.sinks):
                        self._unmerged[number] = changes_of[number]
                    for sink in step.sinks:
                        releases[sink] += 1
                        changes[sink] += changes_of[number]
                case MergeMirror():
                    for mirror in mirrors:
                        after = _NOTHING if mirror in step.joining else step.after
                        releases[mirror] += step.through - after
                        changes[mirror] += self._between(after, step.through)
                    kept = self._unmerged.items()
                    self._unmerged = {one: rows for one, rows in kept if one > step.through}
                case _:
                    pass
        return {sink: (releases[sink], changes[sink]) for sink in plan.sinks}

    def _between(self, after: int, through: int) -> int:
        return sum(rows for one, rows in self._unmerged.items() if after < one <= through)

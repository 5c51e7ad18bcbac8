"""With a limit of the drift nothing is read on far ahead of the fleet's slowest stream partition.

Counted is the time after the faults, in which each worker reads the progress topic all the time.
One response may carry a stream partition any distance ahead; what must not happen is that its
query goes on there.  A worker that does not know the fleet yet is not held to it.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation

_AHEAD_MAX_US = 1_000_000
"""Until the others have published, as one that is read again after a stop, and that was read."""


def check(history: History) -> Iterator[Violation]:
    for token, ahead_us in history.ahead.items():
        if ahead_us > _AHEAD_MAX_US:
            yield Violation(f"read too far ahead of the fleet's slowest for {ahead_us} µs", token)

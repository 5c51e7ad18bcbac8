"""A stream partition that waits for a query gets one, however many others want one.

Counted is the time after the faults, in which each worker goes on all the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation

_WAIT_MAX_US = 30_000_000
"""Some ten stream partitions before it, each with a turn of up to 2 s, or silent for 3 s."""


def check(history: History) -> Iterator[Violation]:
    for token, waited_us in history.queued.items():
        if waited_us > _WAIT_MAX_US:
            yield Violation(f"waited for a query for {waited_us} µs", token)

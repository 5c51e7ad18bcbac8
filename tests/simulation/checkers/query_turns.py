"""A stream partition that waits for a query gets one, and one that is paused goes on.

Counted is the time after the faults, in which each worker goes on all the time.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.history import History, Violation

_WAIT_MAX_US = 30_000_000
"""Some ten stream partitions before it, each with a turn of up to 2 s, or silent for 3 s."""
_PAUSE_MAX_US = 3_000_000
"""A pause may last a second longer than its reason."""


def check(history: History) -> Iterator[Violation]:
    for token, waited_us in history.queued.items():
        if waited_us > _WAIT_MAX_US:
            yield Violation(f"waited for a query for {waited_us} µs", token)
    for token, waited_us in history.paused.items():
        if waited_us > _PAUSE_MAX_US:
            yield Violation(f"paused without a reason for {waited_us} µs", token)

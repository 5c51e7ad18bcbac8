"""The two clocks of a worker: one for intervals, one for timestamps."""

from __future__ import annotations

import time

from tidegate.producer.core.events import Now
from tidegate.producer.ports import Clock

_NS_PER_US = 1_000


class SystemClock:
    """The clocks of the operating system."""

    def monotonic_us(self) -> int:
        """Return microseconds since the machine started, or a similar moment."""
        return time.monotonic_ns() // _NS_PER_US

    def wall_us(self) -> int:
        """Return microseconds since 1970."""
        return time.time_ns() // _NS_PER_US

    def sleep(self, seconds: float) -> None:
        """Block the calling thread."""
        time.sleep(seconds)


def now_on(clock: Clock) -> Now:
    """Read both clocks."""
    return Now(clock.monotonic_us(), clock.wall_us())

"""How often a log line may be written that an outage would repeat without end."""

from __future__ import annotations

from tidegate.schemas.instants import US_PER_SECOND


class LineRate:
    """Admits `burst` lines, and one more for each interval that passes; counts those left out."""

    def __init__(self, *, burst: int = 5, interval_us: int = 10 * US_PER_SECOND) -> None:
        """Start with the whole burst."""
        self._burst = burst
        self._interval_us = interval_us
        self._spent_until_us = 0
        """When the whole burst is available again, by the clock of `admit`."""
        self._left_out = 0

    def admit(self, now_us: int) -> int | None:
        """Return how many lines were left out since the last one; None: leave this one out too."""
        spent_until_us = max(self._spent_until_us, now_us) + self._interval_us
        if spent_until_us > now_us + self._burst * self._interval_us:
            self._left_out += 1
            return None
        self._spent_until_us = spent_until_us
        left_out, self._left_out = self._left_out, 0
        return left_out

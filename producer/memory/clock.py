"""A clock that only its owner advances; implements `ports.Clock`."""

from __future__ import annotations

_START_US = 1_700_000_000_000_000
_US_PER_SECOND = 1_000_000


class ManualClock:
    """Both clocks of a worker; `sleep` returns at once and advances the time."""

    def __init__(self, wall_us: int = _START_US) -> None:
        self._monotonic_us = 0
        self._wall_us = wall_us

    def monotonic_us(self) -> int:
        """Return the elapsed microseconds."""
        return self._monotonic_us

    def wall_us(self) -> int:
        """Return microseconds since 1970."""
        return self._wall_us

    def sleep(self, seconds: float) -> None:
        """Advance the time."""
        self.advance(round(seconds * _US_PER_SECOND))

    def advance(self, us: int) -> None:
        """Advance both clocks by `us` microseconds."""
        self._monotonic_us += us
        self._wall_us += us

    def step_wall(self, us: int) -> None:
        """Set the wall clock forwards or, with a negative number, back; no time passes."""
        self._wall_us += us

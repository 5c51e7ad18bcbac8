"""How long the steps of one batch take, added up by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping


class StepTimer:
    """A stopwatch that one step hands to the next."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Take a monotonic clock, in seconds."""
        self._clock = clock
        self._step: str | None = None
        self._since_s = 0.0
        self._seconds: dict[str, float] = defaultdict(float)

    def begin(self, step: str) -> None:
        """Begin a step; the one before it has ended."""
        now_s = self._clock()
        self._add(now_s)
        self._step, self._since_s = step, now_s

    def end(self) -> Mapping[str, float]:
        """End the last step; return the seconds of each, by name, in the order of their begin."""
        self._add(self._clock())
        self._step = None
        return dict(self._seconds)

    def _add(self, now_s: float) -> None:
        if self._step is not None:
            self._seconds[self._step] += now_s - self._since_s

"""How long a run waits for programs to work: as if each had the machine's cores for its own.

A program that does nothing for minutes is a fault; one that gets a tenth of a core is not.  So the
time that programs wait for a core does not count.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable


class Patience:
    """A time-out that passes more slowly while more processes want to run than there are cores."""

    def __init__(
        self,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        load: Callable[[], float] = lambda: os.getloadavg()[0],
        cores: int = os.cpu_count() or 1,
    ) -> None:
        """Begin to count."""
        self._left_s = seconds
        self._clock = clock
        self._load = load
        self._cores = cores
        self._at_s = clock()

    @property
    def is_over(self) -> bool:
        """Whether the time is up; to be asked often, since the load is that of the moment."""
        now_s = self._clock()
        share = min(self._cores / max(self._load(), 1e-9), 1.0)
        self._left_s -= (now_s - self._at_s) * share
        self._at_s = now_s
        return self._left_s < 0

"""How long calls have been rejected in a way that may pass.

A token may be revoked early, a clock may be wrong for a while, and a load balancer that is changed
may answer 401, 403 or 404 by itself.  What was accepted before is tried again for some minutes;
what never was is an error of the settings.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_PATIENCE_S = 300.0
_GAP_S = 120.0
"""Longer than the pauses between retries: after it another outage begins."""


class Rejections:
    """The rejected calls to one service since the last one that it accepted; thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Start without a call; `clock_s` is monotonic."""
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._was_accepted = False
        self._first_s: float | None = None
        self._last_s = 0.0

    def accept(self) -> None:
        """Record that the service answered a new call."""
        with self._lock:
            self._was_accepted, self._first_s = True, None

    def reject(self) -> bool:
        """Record a rejected call; return whether to give up.

        That is so if no call was ever accepted, or none for five minutes of attempts.
        """
        with self._lock:
            now_s = self._clock_s()
            if self._first_s is None or now_s - self._last_s > _GAP_S:
                self._first_s = now_s
            self._last_s = now_s
            return not self._was_accepted or now_s - self._first_s >= _PATIENCE_S

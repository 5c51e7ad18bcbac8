"""Whether a process is alive and ready, as its main loop says and probes ask."""

from __future__ import annotations

import time
from collections.abc import Callable

_STALLED_AFTER_S = 180.0
"""Longer than any wait for a broker within one step, which ends after about 100 s."""


class Health:
    """Written by the main loop, read by any thread.

    A process is alive while its loop steps; it is ready from `set_ready` to `set_not_ready`.
    """

    def __init__(
        self,
        *,
        stalled_after_s: float = _STALLED_AFTER_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start alive and not ready; `clock` returns seconds and never goes back."""
        self._stalled_after_s = stalled_after_s
        self._clock = clock
        self._stepped_at = clock()
        self._not_ready = "starting"
        self._warning = ""

    def step(self) -> None:
        """Note that the loop has come round."""
        self._stepped_at = self._clock()

    def set_ready(self) -> None:
        """The process does its work from now on."""
        self._not_ready = ""

    def set_not_ready(self, reason: str) -> None:
        """The process waits; `reason` is shown to probes."""
        self._not_ready = reason

    def set_warning(self, text: str) -> None:
        """Show a text to those who ask whether the process is ready; empty takes it back."""
        self._warning = text

    @property
    def warning(self) -> str:
        """What an operator should look at although the process is ready; empty for nothing."""
        return self._warning

    @property
    def fault(self) -> str:
        """Why the process is not alive; empty if it is."""
        elapsed_s = self._clock() - self._stepped_at
        return f"no step for {elapsed_s:.0f} s" if elapsed_s > self._stalled_after_s else ""

    @property
    def not_ready(self) -> str:
        """Why the process is not ready; empty if it is."""
        return self.fault or self._not_ready

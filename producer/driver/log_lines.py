"""Limits on log lines that an outage, or a common cause, would repeat without end."""

from __future__ import annotations

import threading

import structlog

from tidegate.producer.driver.runtime import SystemClock
from tidegate.producer.messages import ParkedChange
from tidegate.producer.ports import Clock
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339


class LineRate:
    """Admits `burst` lines, and one more after each interval; counts the lines left out."""

    def __init__(self, *, burst: int = 5, interval_us: int = 10 * US_PER_SECOND) -> None:
        self._burst = burst
        self._interval_us = interval_us
        self._spent_until_us = 0
        """When the whole burst is available again, by the clock of `admit`."""
        self._left_out = 0

    def admit(self, now_us: int) -> int | None:
        """Return the number of lines left out since the last one; None: leave this one out too."""
        spent_until_us = max(self._spent_until_us, now_us) + self._interval_us
        if spent_until_us > now_us + self._burst * self._interval_us:
            self._left_out += 1
            return None
        self._spent_until_us = spent_until_us
        left_out, self._left_out = self._left_out, 0
        return left_out


_INTERVAL_US = 60 * US_PER_SECOND
_log = structlog.get_logger()


class ParkedLog:
    """Logs changes that are being parked: one a minute for each cause; any thread may use it."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._rates: dict[tuple[str, str], LineRate] = {}

    def __call__(self, change: ParkedChange, key: str, commit_timestamp_us: int) -> None:
        """Log a change, unless a line of its topic and reason was written within a minute.

        `key` is the change's primary key, readable.
        """
        with self._lock:
            rate = self._rates.setdefault(
                (change.topic, change.reason), LineRate(burst=1, interval_us=_INTERVAL_US)
            )
            left_out = rate.admit(self._clock.monotonic_us())
        if left_out is not None:
            _log.warning(
                "change parked",
                topic=change.topic,
                key=key,
                commit_timestamp=format_rfc3339(commit_timestamp_us * NS_PER_US),
                reason=change.reason,
                error=change.error,
                token=change.token,
                left_out=left_out,
            )

"""Log lines about parked changes: one a minute for each cause, since a cause may park thousands."""

from __future__ import annotations

import threading

import structlog

from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.line_rate import LineRate
from tidegate.producer.messages import ParkedChange
from tidegate.producer.ports import Clock
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND, format_rfc3339

_INTERVAL_US = 60 * US_PER_SECOND
_log = structlog.get_logger()


class ParkedLog:
    """Logs changes that are being parked; any thread may use it."""

    def __init__(self, clock: Clock | None = None) -> None:
        """Start with a line for the first change of each cause."""
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._rates: dict[tuple[str, str], LineRate] = {}

    def __call__(self, change: ParkedChange, key: str, commit_timestamp_us: int) -> None:
        """Log a change, unless a line of its topic and reason was written within a minute.

        `key` is the change's primary key, for a person to read.
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

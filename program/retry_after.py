"""`Retry-After` of HTTP responses, honoured by the requests that follow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2

RETRY_LATER = frozenset({408, 425, 429})
"""Statuses below 500 that ask for the same request again, later."""
_SERVER_ERRORS = 500
WAIT_MAX_S = 60.0
"""A server that asks for more is asked again after this: its answer may be an hour old by then."""


def is_temporary(status: int) -> bool:
    """Whether the same request may succeed later: 408, 425, 429, and every 5xx."""
    return status in RETRY_LATER or status >= _SERVER_ERRORS


def asked_wait_s(header: str, now: datetime) -> float:
    """Return the wait that a `Retry-After` asks for, in its two forms, at most a minute.

    0 for anything else, and for a time that has passed.
    """
    text = header.strip()
    if text.isdecimal():
        return min(float(text[:9]), WAIT_MAX_S)
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return 0.0
    at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
    return min(max((at - now).total_seconds(), 0.0), WAIT_MAX_S)


class RetryAfter:
    """Hooks for one `httpx2.Client`: no request is sent before the time that the server named.

    Any thread may use the client; each waits in `before_request`, at most a minute.
    """

    def __init__(
        self,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait for nothing yet; `clock_s` is monotonic, `now` is the wall clock."""
        self._clock_s = clock_s
        self._now = now
        self._sleep = sleep
        self._not_before_s = 0.0
        self._lock = threading.Lock()

    def before_request(self, _request: httpx2.Request) -> None:
        """Block until the server may be asked again."""
        with self._lock:
            wait_s = self._not_before_s - self._clock_s()
        if wait_s > 0:
            self._sleep(wait_s)

    def after_response(self, response: httpx2.Response) -> None:
        """Remember when the server wants to be asked again, if its answer says so."""
        if not is_temporary(response.status_code):
            return
        wait_s = asked_wait_s(response.headers.get("Retry-After", ""), self._now())
        with self._lock:
            not_before_s = self._clock_s() + wait_s
            self._not_before_s = max(self._not_before_s, not_before_s)

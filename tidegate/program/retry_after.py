"""`Retry-After` of HTTP responses, honoured by the requests that follow."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

__all__ = ["RETRY_LATER", "RetryAfter", "is_temporary"]

RETRY_LATER = frozenset({408, 425, 429})
"""Statuses below 500 that ask for the same request again, later."""
_SERVER_ERRORS = 500
_WAIT_MAX_S = 60.0
"""A server that asks for more is asked again after this: its answer may be an hour old by then."""


def is_temporary(status: int) -> bool:
    """Whether the same request may succeed later: 408, 425, 429, and every 5xx."""
    return status in RETRY_LATER or status >= _SERVER_ERRORS


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
        wait_s = self._seconds(response.headers.get("Retry-After", "").strip())
        with self._lock:
            not_before_s = self._clock_s() + min(max(wait_s, 0.0), _WAIT_MAX_S)
            self._not_before_s = max(self._not_before_s, not_before_s)

    def _seconds(self, text: str) -> float:
        """Return the wait that a header asks for, in its two forms; 0 for anything else."""
        if text.isdecimal():
            return float(text[:9])
        try:
            at = parsedate_to_datetime(text)
        except ValueError:
            return 0.0
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return (at - self._now()).total_seconds()

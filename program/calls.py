"""Calls of services: stopped when they hang, repeated after a rejection, paced by `Retry-After`.

Some calls of librdkafka wait for an answer without end: after a broker was down, fencing has been
seen never to return.  A token may be revoked early, a clock may be wrong for a while, and a load
balancer that is being changed may answer 401, 403 or 404 by itself.  A service that accepted calls
before is tried again for some minutes; for one that never did the settings are wrong.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


class CallHangs(Exception):  # noqa: N818 - named for what happened; each caller turns it into its own outcome
    """The call has not returned; its `thread` is still waiting."""

    def __init__(self, thread: threading.Thread) -> None:
        super().__init__()
        self.thread = thread


def call_bounded(call: Callable[[], object], *, within_s: float) -> None:
    """Make a call in another thread and wait for its end, for `within_s` seconds at most.

    Raises what the call raises, and CallHangs.
    """
    answers: SimpleQueue[BaseException | None] = SimpleQueue()

    def make() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - raised where it was asked for
            answers.put(error)
        else:
            answers.put(None)

    thread = threading.Thread(target=make, name="kafka-call", daemon=True)
    thread.start()
    try:
        error = answers.get(timeout=within_s)
    except Empty:
        raise CallHangs(thread) from None
    if error is not None:
        raise error


_PATIENCE_S = 300.0
_GAP_S = 120.0
"""Longer than the pauses between retries: a rejection after it begins a new outage."""


class Rejections:
    """Rejected calls to one service since the last accepted one; thread-safe."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Start without any call; `clock_s` is monotonic."""
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

        Give up if no call was ever accepted, or if none was for five minutes of attempts.
        """
        with self._lock:
            now_s = self._clock_s()
            if self._first_s is None or now_s - self._last_s > _GAP_S:
                self._first_s = now_s
            self._last_s = now_s
            return not self._was_accepted or now_s - self._first_s >= _PATIENCE_S


RETRY_LATER = frozenset({408, 425, 429})
"""HTTP statuses below 500 after which the same request may be repeated later."""
_SERVER_ERRORS = 500
WAIT_MAX_S = 60.0
"""The longest wait: if a server asks for more, its answer may be outdated by then."""


def is_temporary(status: int) -> bool:
    """Whether the same request may succeed later: 408, 425, 429, and every 5xx."""
    return status in RETRY_LATER or status >= _SERVER_ERRORS


def asked_wait_s(header: str, now: datetime) -> float:
    """Return the wait in seconds that a `Retry-After` asks for, at most a minute.

    Both forms of the header are read; 0 for anything else and for a time in the past.
    """
    text = header.strip()
    if text.isdecimal():
        return min(float(text[:9]), WAIT_MAX_S)
    try:
        instant = parsedate_to_datetime(text)
    except (ValueError, OverflowError):  # OverflowError: a time zone far outside the clock
        return 0.0
    instant = instant if instant.tzinfo is not None else instant.replace(tzinfo=UTC)
    return min(max((instant - now).total_seconds(), 0.0), WAIT_MAX_S)


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
        """Start without a wait; `clock_s` is monotonic, `now` is the wall clock."""
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
        """Record when the server accepts the next request, if its answer names a time."""
        if not is_temporary(response.status_code):
            return
        wait_s = asked_wait_s(response.headers.get("Retry-After", ""), self._now())
        with self._lock:
            not_before_s = self._clock_s() + wait_s
            self._not_before_s = max(self._not_before_s, not_before_s)

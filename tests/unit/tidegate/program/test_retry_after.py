"""How long the requests after a response wait."""

from datetime import UTC, datetime

import httpx2
import pytest

from tidegate.program.retry_after import RetryAfter, is_temporary

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
REQUEST = httpx2.Request("GET", "http://127.0.0.1/")


def waited(status, header, *, passed_s=0.0):
    """Return the waits of two requests after a response and `passed_s` more seconds."""
    clock_s, waits = [5.0], []

    def sleep(seconds):
        waits.append(seconds)
        clock_s[0] += seconds

    pace = RetryAfter(clock_s=lambda: clock_s[0], now=lambda: NOW, sleep=sleep)
    pace.before_request(REQUEST)
    headers = {} if header is None else {"Retry-After": header}
    pace.after_response(httpx2.Response(status, headers=headers))
    clock_s[0] += passed_s
    pace.before_request(REQUEST)
    pace.before_request(REQUEST)
    return waits


@pytest.mark.parametrize(
    ("status", "header", "waits"),
    [
        (429, "7", [7.0]),
        (503, "7", [7.0]),
        (408, " 7 ", [7.0]),
        (425, "Sun, 01 Mar 2026 12:00:09 GMT", [9.0]),
        (429, "Sun, 01 Mar 2026 12:00:09 -0000", [9.0]),
        (429, "Sun, 01 Mar 2026 11:59:00 GMT", []),
        (429, "0", []),
        (429, None, []),
        (429, "soon", []),
        (429, "", []),
        (429, "-3", []),
        (429, "9" * 400, [60.0]),
        (503, "Wed, 01 Mar 2999 12:00:00 GMT", [60.0]),
        (200, "7", []),
        (404, "7", []),
    ],
)
def test_the_next_request_waits_as_long_as_the_server_asks(status, header, waits):
    assert waited(status, header) == waits


def test_time_that_has_passed_is_not_waited_for():
    assert waited(429, "7", passed_s=4.0) == [3.0]
    assert waited(429, "7", passed_s=8.0) == []


def test_what_may_pass():
    assert [status for status in range(200, 600) if is_temporary(status)] == [
        408,
        425,
        429,
        *range(500, 600),
    ]

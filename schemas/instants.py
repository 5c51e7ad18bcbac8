"""Points in time, as integers since 1970.

Nanoseconds for the starts and ends of queries, microseconds elsewhere.  Nanoseconds are always
rounded down to microseconds.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from tidegate.schemas.errors import SchemaError

NS_PER_US = 1_000
US_PER_MS = 1_000
US_PER_SECOND = 1_000_000
_NS_PER_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX = 80
_CANONICAL = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{0,8}[1-9])?Z", re.ASCII)
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


def parse_rfc3339_ns(text: str) -> int:
    """Return nanoseconds since 1970.

    Raises SchemaError for a text that is not an RFC 3339 timestamp of the years 1 to 9999 in UTC.
    """
    fraction = text[20:-1]
    if text[-1:] == "Z" and (
        len(text) == 20
        or (text[19:20] == "." and len(fraction) <= 9 and fraction.isdigit() and fraction.isascii())
    ):
        whole_ns = _whole_second_ns(text[:19])
        if whole_ns is not None:
            return whole_ns + int(fraction.ljust(9, "0"))
    return _parse(text)


@lru_cache(maxsize=4096)
def _whole_second_ns(text: str) -> int | None:
    """Parse a timestamp without its fraction and zone, in UTC; None if it is not one.

    Cached, because the commit times of a stream share their seconds.
    """
    try:
        return _parse(f"{text}Z")
    except SchemaError:
        return None


def _parse(text: str) -> int:
    message = "not an RFC 3339 timestamp"
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise SchemaError(message, text=text[:_SHOWN_MAX])
    seconds, fraction, zone = match.groups()
    try:
        local = datetime.fromisoformat(seconds + ("+00:00" if zone in "Zz" else zone))
        # An offset may lead outside the calendar, and such an instant could not be formatted.
        instant = local.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise SchemaError(message, text=text) from error
    elapsed = instant - _EPOCH
    elapsed_s = elapsed.days * 86_400 + elapsed.seconds
    return elapsed_s * _NS_PER_SECOND + int((fraction or "").ljust(9, "0"))


def format_rfc3339(instant_ns: int) -> str:
    """Return the RFC 3339 text in UTC, with as many digits as the instant needs (none, 6 or 9)."""
    seconds, rest = divmod(instant_ns, _NS_PER_SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    if rest == 0:
        return f"{text}Z"
    return f"{text}.{rest:09d}Z" if rest % NS_PER_US else f"{text}.{rest // NS_PER_US:06d}Z"


def canonical_rfc3339(text: str) -> str:
    """Return the canonical text of an instant: in UTC, with as many fractional digits as it needs.

    Raises the errors of `parse_rfc3339_ns`.
    """
    instant_ns = parse_rfc3339_ns(text)
    if _CANONICAL.fullmatch(text):
        return text
    integer, dot, fraction = format_rfc3339(instant_ns).removesuffix("Z").partition(".")
    return f"{integer}{dot}{fraction.rstrip('0')}Z"

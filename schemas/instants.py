"""Points in time, as integers since 1970.

Nanoseconds where a query starts from them, microseconds elsewhere.
Rounding from nanoseconds to microseconds is always down, so a watermark is never too early.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from tidegate.schemas.errors import SchemaError

__all__ = ["NS_PER_US", "US_PER_SECOND", "format_rfc3339", "parse_rfc3339_ns"]

NS_PER_US = 1_000
US_PER_SECOND = 1_000_000
_NS_PER_SECOND = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHOWN_MAX = 80
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


def parse_rfc3339_ns(text: str) -> int:
    """Return nanoseconds since 1970.

    Raises SchemaError if the text is no RFC 3339 timestamp, or not of the years 1 to 9999 in UTC.
    """
    message = "not an RFC 3339 timestamp"
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise SchemaError(message, text=text[:_SHOWN_MAX])
    seconds, fraction, zone = match.groups()
    try:
        local = datetime.fromisoformat(seconds + ("+00:00" if zone in "Zz" else zone))
        # An offset may lead out of the calendar, and nothing could be written back from there.
        instant = local.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise SchemaError(message, text=text) from error
    elapsed = instant - _EPOCH
    whole = elapsed.days * 86_400 + elapsed.seconds
    return whole * _NS_PER_SECOND + int((fraction or "").ljust(9, "0"))


def format_rfc3339(instant_ns: int) -> str:
    """Return the RFC 3339 text in UTC, with as many digits as the instant needs (none, 6 or 9)."""
    seconds, rest = divmod(instant_ns, _NS_PER_SECOND)
    text = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    if rest == 0:
        return f"{text}Z"
    return f"{text}.{rest:09d}Z" if rest % NS_PER_US else f"{text}.{rest // NS_PER_US:06d}Z"

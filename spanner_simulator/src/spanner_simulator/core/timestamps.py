"""Time as counted by the service, and the source of commit timestamps.

Commit timestamps are whole microseconds; timestamps in queries and in columns are nanoseconds.
`CommitClock` keeps the guarantee on which every reader depends: once a time is *closed* (a
heartbeat, a read or a child stream partition was returned for it), nothing commits at or before it
any more.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from functools import lru_cache

from spanner_simulator.errors import invalid_argument

_RFC3339 = re.compile(
    r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2}):(\d{2}):(\d{2})(?:\.(\d{1,9}))?"
    r"(?:([Zz])|([+-])(\d{2})(?::?(\d{2}))?)?",
    re.ASCII,
)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)
MIN_NS = -62_135_596_800 * 10**9
MAX_NS = 253_402_300_800 * 10**9 - 1


def parse_ns(text: str) -> int:
    """Nanoseconds since the epoch of an RFC 3339 text; without an offset it is UTC.

    Raises `SpannerError` (INVALID_ARGUMENT) for anything else.
    """
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise invalid_argument(f"Invalid timestamp: '{text}'")
    year, month, day, hour, minute, second, fraction, _, sign, off_h, off_m = match.groups()
    try:
        moment = dt.datetime(
            int(year),
            int(month),
            int(day),
            int(hour),
            int(minute),
            int(second),
            tzinfo=dt.UTC,
        )
    except ValueError as error:
        raise invalid_argument(f"Invalid timestamp: '{text}'") from error
    seconds = (moment - _EPOCH) // _SECOND
    if sign is not None:
        offset_s = int(off_h) * 3600 + int(off_m or 0) * 60
        seconds -= offset_s if sign == "+" else -offset_s
    nanoseconds = seconds * 10**9 + int((fraction or "").ljust(9, "0"))
    if not MIN_NS <= nanoseconds <= MAX_NS:
        raise invalid_argument(f"Timestamp out of range: '{text}'")
    return nanoseconds


@lru_cache(maxsize=4096)
def _second_text(seconds: int) -> str:
    moment = _EPOCH + _SECOND * seconds
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}"


def format_ns(timestamp_ns: int) -> str:
    """RFC 3339 with Z; the fraction has as many digits as it needs, as in the service."""
    seconds, fraction_ns = divmod(timestamp_ns, 10**9)
    if fraction_ns == 0:
        return f"{_second_text(seconds)}Z"
    return f"{_second_text(seconds)}.{fraction_ns:09d}".rstrip("0") + "Z"


def format_us(timestamp_us: int) -> str:
    """As `format_ns`, from microseconds."""
    return format_ns(timestamp_us * 1000)


@dataclass(slots=True)
class CommitClock:
    """Hands out commit timestamps; they are made only here."""

    last_commit_us: int = 0
    last_turn_us: int = 0
    last_schema_us: int = 0
    closed_us: int = 0

    @property
    def newest_us(self) -> int:
        """The time of the last event; slightly after now if the clock does not advance."""
        return max(self.last_commit_us, self.last_turn_us, self.last_schema_us)

    def next_us(self, now_us: int) -> int:
        """The timestamp for an event after everything committed or closed."""
        return max(now_us, self.last_commit_us + 1, self.closed_us + 1)

    def is_last_open(self) -> bool:
        """Whether another transaction may still get the last commit's timestamp."""
        return self.last_commit_us > self.closed_us

    def committed(self, commit_timestamp_us: int) -> None:
        """Record a commit; its timestamp was `next_us`, or the last one while still open."""
        self.last_commit_us = max(self.last_commit_us, commit_timestamp_us)

    def turned(self, timestamp_us: int) -> None:
        """Record a turn of stream partitions: later commits have its time or a later one."""
        self.last_turn_us = max(self.last_turn_us, timestamp_us)
        self.close(timestamp_us - 1)

    def schema_changed(self, timestamp_us: int) -> None:
        """Record a schema that applies from this time on: no commit at it uses the old one."""
        self.last_schema_us = max(self.last_schema_us, timestamp_us)
        self.close(timestamp_us)

    def close(self, timestamp_us: int) -> None:
        """Allow no more commits at or before this time."""
        self.closed_us = max(self.closed_us, timestamp_us)

    def read_now_us(self, now_us: int) -> int:
        """Close and return the time at which a strong read sees everything committed so far."""
        read_us = max(now_us, self.newest_us)
        self.close(read_us)
        return read_us

"""How times, durations and amounts are written on the pages."""

from __future__ import annotations

from datetime import UTC, datetime

from tidegate.schemas.instants import US_PER_SECOND

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"))


def instant(us: int | None) -> str:
    """Return a time to the second, in UTC."""
    if us is None:
        return "unknown"
    return datetime.fromtimestamp(us // US_PER_SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def duration(seconds: float | None) -> str:
    """Return a duration in its largest unit."""
    if seconds is None:
        return "unknown"
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def amount(count: float | None) -> str:
    """Return a number with its thousands apart."""
    return "unknown" if count is None else f"{count:,.0f}"

"""Functions of dates and timestamps; a timestamp is an int of nanoseconds since the epoch.

The default time zone is America/Los_Angeles, as in Spanner.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
import zoneinfo
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, TypeVar

from spanner_simulator.core.timestamps import MAX_NS, MIN_NS, format_ns
from spanner_simulator.errors import SpannerError, invalid_argument, out_of_range
from spanner_simulator.sql.functions.routines import postgres_reader, routine

T = TypeVar("T")

DEFAULT_ZONE: Final = "America/Los_Angeles"
_UNIT_NS: Final = {
    "NANOSECOND": 1, "MICROSECOND": 10**3, "MILLISECOND": 10**6, "SECOND": 10**9,
    "MINUTE": 60 * 10**9, "HOUR": 3600 * 10**9, "DAY": 86400 * 10**9,
}  # fmt: skip
_MONTHS: Final = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
_DAYS: Final = {"DAY": 1, "WEEK": 7}
_NUMBERS: Final[dict[str, Callable[[dt.date], int]]] = {
    "YEAR": lambda day: day.year,
    "QUARTER": lambda day: (day.month + 2) // 3,
    "MONTH": lambda day: day.month,
    "DAY": lambda day: day.day,
    "DAYOFWEEK": lambda day: day.isoweekday() % 7 + 1,
    "DAYOFYEAR": lambda day: day.timetuple().tm_yday,
}
DATE_PARTS: Final = frozenset((*_UNIT_NS, *_DAYS, *_NUMBERS, "DATE"))
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)
_MINUTE = dt.timedelta(minutes=1)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt ](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?"
    r"\s*([+-]\d{1,2}(?::?\d{2})?|[A-Za-z_]+(?:/[A-Za-z_0-9+-]+)*)?"
)
_DATE = re.compile(r"\s*(\d{1,4})-(\d{1,2})-(\d{1,2})\s*")
_OFFSET = re.compile(r"(?:UTC|utc)?([+-])(\d{1,2})(?::?(\d{2}))?")


@lru_cache(maxsize=256)
def zone(name: str) -> dt.tzinfo:
    """A time zone by name or offset; OUT_OF_RANGE for an unknown one."""
    match = _OFFSET.fullmatch(name)
    if match is not None:
        minutes = int(match[2]) * 60 + int(match[3] or 0)
        if minutes <= 14 * 60:
            return dt.timezone(dt.timedelta(minutes=-minutes if match[1] == "-" else minutes))
    elif name.upper() in ("UTC", "Z"):
        return dt.UTC
    else:
        try:
            return zoneinfo.ZoneInfo(name)
        except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise out_of_range(f"Invalid time zone: {name}")


def local_time(timestamp_ns: int, zone_name: str) -> tuple[dt.datetime, int]:
    """The wall clock at a time, to the second, and the nanoseconds beyond."""
    seconds, nanoseconds = divmod(timestamp_ns, 10**9)
    try:
        return (_EPOCH + _SECOND * seconds).astimezone(zone(zone_name)), nanoseconds
    except OverflowError:
        raise out_of_range(
            f"Timestamp {format_ns(timestamp_ns)} is out of range in time zone {zone_name}"
        ) from None


def _to_ns(moment: dt.datetime, nanoseconds: int, subject: str) -> int:
    try:
        timestamp_ns = (moment.astimezone(dt.UTC) - _EPOCH) // _SECOND * 10**9 + nanoseconds
    except OverflowError:
        raise out_of_range(f"Timestamp out of range: {subject}") from None
    return _checked(timestamp_ns, subject)


def _checked(timestamp_ns: int, subject: str) -> int:
    if not MIN_NS <= timestamp_ns <= MAX_NS:
        raise out_of_range(f"Timestamp out of range: {subject}")
    return timestamp_ns


@routine("HUGEINT", "VARCHAR")
def text_to_timestamp(text: str) -> int:
    """A timestamp's text in any of the forms of SQL."""
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        raise out_of_range(f"Invalid timestamp: '{text}'")
    year, month, day, hour, minute, second, fraction, place = match.groups()
    try:
        wall = dt.datetime(  # noqa: DTZ001  # the zone follows below
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)
        )
    except ValueError:
        raise out_of_range(f"Invalid timestamp: '{text}'") from None
    wall = wall.replace(tzinfo=zone(place or DEFAULT_ZONE))
    return _to_ns(wall, int((fraction or "").ljust(9, "0")), f"'{text}'")


@routine("VARCHAR", "HUGEINT", "VARCHAR")
def timestamp_text(timestamp_ns: int, zone_name: str) -> str:
    """CAST to STRING: as many digits of the fraction as needed, in groups of three."""
    try:
        local, nanoseconds = local_time(timestamp_ns, zone_name)
    except SpannerError:  # the same time, in a zone in which it has a year
        local, nanoseconds = local_time(timestamp_ns, "UTC")
    offset = local.utcoffset() or dt.timedelta()
    if offset % _MINUTE:  # the text has no seconds of an offset, and must give the same time
        local = local.astimezone(dt.timezone(_MINUTE * int(offset / _MINUTE)))
    fraction = f".{nanoseconds:09d}" if nanoseconds else ""
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{local.replace(tzinfo=None)}{fraction}{local.isoformat()[-6:].removesuffix(':00')}"


@routine("DATE", "VARCHAR")
def text_to_date(text: str) -> dt.date:
    """A date's text; a time of day after it is not allowed."""
    match = _DATE.fullmatch(text)
    try:
        if match is not None:
            return dt.date(int(match[1]), int(match[2]), int(match[3]))
    except ValueError:
        pass
    raise out_of_range(f"Invalid date: '{text}'")


pg_text_to_date = postgres_reader("date", "DATE")(text_to_date, name="pg_text_to_date")
pg_text_to_timestamp = postgres_reader("timestamp with time zone", "HUGEINT")(
    text_to_timestamp, name="pg_text_to_timestamp"
)


@routine("DATE", "HUGEINT", "VARCHAR")
def timestamp_date(timestamp_ns: int, zone_name: str) -> dt.date:
    """The date at a time in a zone."""
    return local_time(timestamp_ns, zone_name)[0].date()


@routine("HUGEINT", "DATE", "VARCHAR")
def date_timestamp(day: dt.date, zone_name: str) -> int:
    """Midnight of a date in a zone."""
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=zone(zone_name))
    return _to_ns(midnight, 0, str(day))


# -- arithmetic


def _part(parts: Mapping[str, T], part: str, function: str) -> T:
    if part not in parts:
        raise invalid_argument(f"{function} does not support the {part} date part")
    return parts[part]


@routine("HUGEINT", "HUGEINT", "BIGINT", "VARCHAR")
def timestamp_add(timestamp_ns: int, count: int, part: str) -> int:
    """TIMESTAMP_ADD."""
    added_ns = count * _part(_UNIT_NS, part, "TIMESTAMP_ADD")
    return _checked(timestamp_ns + added_ns, f"TIMESTAMP_ADD by {count} {part}")


@routine("BIGINT", "HUGEINT", "HUGEINT", "VARCHAR")
def timestamp_diff(one_ns: int, other_ns: int, part: str) -> int:
    """TIMESTAMP_DIFF: whole units, towards zero."""
    units = abs(one_ns - other_ns) // _part(_UNIT_NS, part, "TIMESTAMP_DIFF")
    if units >= 2**63:
        raise out_of_range(f"TIMESTAMP_DIFF in {part} precision causes overflow")
    return units if one_ns >= other_ns else -units


@routine("HUGEINT", "HUGEINT", "VARCHAR", "VARCHAR")
def timestamp_trunc(timestamp_ns: int, part: str, zone_name: str) -> int:
    """TIMESTAMP_TRUNC in a zone."""
    if part in ("NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE"):
        return timestamp_ns - timestamp_ns % _UNIT_NS[part]
    local, _ = local_time(timestamp_ns, zone_name)
    if part == "HOUR":
        return _to_ns(local.replace(minute=0, second=0), 0, "TIMESTAMP_TRUNC")
    midnight: int = date_timestamp(date_trunc_part(local.date(), part), zone_name)
    return midnight


@routine("DATE", "DATE", "BIGINT", "VARCHAR")
def date_add_part(day: dt.date, count: int, part: str) -> dt.date:
    """DATE_ADD; the last day of a month stays in its month."""
    try:
        if part in _MONTHS:
            months = day.year * 12 + day.month - 1 + count * _MONTHS[part]
            last = calendar.monthrange(months // 12, months % 12 + 1)[1]
            return dt.date(months // 12, months % 12 + 1, min(day.day, last))
        return day + dt.timedelta(days=count * _part(_DAYS, part, "DATE_ADD"))
    except (OverflowError, ValueError):
        raise out_of_range(f"Adding {count} {part} to date {day} causes overflow") from None


@routine("BIGINT", "DATE", "DATE", "VARCHAR")
def date_diff_part(date: dt.date, earlier_date: dt.date, part: str) -> int:
    """DATE_DIFF: the number of boundaries of the part between them."""
    date, earlier_date = date_trunc_part(date, part), date_trunc_part(earlier_date, part)
    if part in _MONTHS:
        months = (date.year - earlier_date.year) * 12 + date.month - earlier_date.month
        return months // _MONTHS[part]
    return (date - earlier_date).days // _part(_DAYS, part, "DATE_DIFF")


@routine("DATE", "DATE", "VARCHAR")
def date_trunc_part(day: dt.date, part: str) -> dt.date:
    """DATE_TRUNC; weeks begin on Sunday."""
    match part:
        case "WEEK":
            return dt.date.fromordinal(day.toordinal() - day.isoweekday() % 7)
        case "MONTH":
            return day.replace(day=1)
        case "QUARTER":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "YEAR":
            return day.replace(month=1, day=1)
        case _:
            return _part({"DAY": day}, part, "DATE_TRUNC")


@routine("BIGINT", "DATE", "VARCHAR")
def date_extract(day: dt.date, part: str) -> int:
    """EXTRACT from a DATE."""
    return _part(_NUMBERS, part, "EXTRACT")(day)


@routine("BIGINT", "HUGEINT", "VARCHAR", "VARCHAR")
def timestamp_extract(timestamp_ns: int, part: str, zone_name: str) -> int:
    """EXTRACT from a TIMESTAMP."""
    local, nanoseconds = local_time(timestamp_ns, zone_name)
    if part in ("SECOND", "MINUTE", "HOUR"):
        return int(getattr(local, part.lower()))
    if part.endswith("SECOND"):
        return nanoseconds // _UNIT_NS[part]
    return int(date_extract(local.date(), part))


@routine("BIGINT", "HUGEINT", "BIGINT")
def timestamp_unix(timestamp_ns: int, unit_ns: int) -> int:
    """UNIX_SECONDS and its like: downwards."""
    return timestamp_ns // unit_ns


@routine("HUGEINT", "BIGINT", "BIGINT")
def timestamp_of_unix(count: int, unit_ns: int) -> int:
    """TIMESTAMP_SECONDS and its like."""
    return _checked(count * unit_ns, str(count))

"""Functions of dates and timestamps; a timestamp is an int of nanoseconds since the epoch.

The default time zone is America/Los_Angeles, as Spanner's is. Weeks begin on Sunday, ISO weeks on
Monday.
"""

from __future__ import annotations

import calendar
import datetime as dt
import re
import zoneinfo
from functools import lru_cache
from typing import Final

from spanner_simulator.core.timestamps import MAX_NS, MIN_NS, format_ns
from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.sql.functions.routines import out_of_range, routine

DEFAULT_ZONE: Final = "America/Los_Angeles"
DATE_PARTS: Final = frozenset(
    (
        "NANOSECOND", "MICROSECOND", "MILLISECOND", "SECOND", "MINUTE", "HOUR", "DAY", "DAYOFWEEK",
        "DAYOFYEAR", "WEEK", "ISOWEEK", "MONTH", "QUARTER", "YEAR", "ISOYEAR", "DATE",
    )
)  # fmt: skip
_UNIT_NS: Final = {
    "NANOSECOND": 1, "MICROSECOND": 10**3, "MILLISECOND": 10**6, "SECOND": 10**9,
    "MINUTE": 60 * 10**9, "HOUR": 3600 * 10**9, "DAY": 86400 * 10**9,
}  # fmt: skip
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1)
_SECOND = dt.timedelta(seconds=1)
_MINUTE = dt.timedelta(minutes=1)
_TIMESTAMP = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt ](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?"
    r"\s*(?:([Zz])|([+-])(\d{1,2})(?::?(\d{2}))?|([A-Za-z_]+(?:/[A-Za-z_0-9+-]+)*))?"
)
_DATE = re.compile(r"\s*(\d{1,4})-(\d{1,2})-(\d{1,2})\s*")
_OFFSET = re.compile(r"(?:UTC|utc)?([+-])(\d{1,2})(?::(\d{2}))?")


@lru_cache(maxsize=256)
def zone(name: str) -> dt.tzinfo:
    """A time zone by name or offset; OUT_OF_RANGE for an unknown one."""
    found = _OFFSET.fullmatch(name)
    if found is not None:
        minutes = int(found[2]) * 60 + int(found[3] or 0)
        if minutes <= 14 * 60:
            return dt.timezone(dt.timedelta(minutes=-minutes if found[1] == "-" else minutes))
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


def _to_ns(moment: dt.datetime, nanoseconds: int, what: str) -> int:
    try:
        timestamp_ns = (moment.astimezone(dt.UTC) - _EPOCH) // _SECOND * 10**9 + nanoseconds
    except OverflowError:
        raise out_of_range(f"Timestamp out of range: {what}") from None
    return _checked(timestamp_ns, what)


def _checked(timestamp_ns: int, what: str) -> int:
    if not MIN_NS <= timestamp_ns <= MAX_NS:
        raise out_of_range(f"Timestamp out of range: {what}")
    return timestamp_ns


def text_to_timestamp(text: str, default_zone: str = DEFAULT_ZONE) -> int:
    """A timestamp's text in any of the forms that SQL takes."""
    found = _TIMESTAMP.fullmatch(text.strip())
    if found is None:
        raise out_of_range(f"Invalid timestamp: '{text}'")
    year, month, day, hour, minute, second, fraction, utc, sign, off_h, off_m, name = found.groups()
    try:
        wall = dt.datetime(  # noqa: DTZ001  # the zone follows below
            int(year), int(month), int(day), int(hour or 0), int(minute or 0), int(second or 0)
        )
    except ValueError:
        raise out_of_range(f"Invalid timestamp: '{text}'") from None
    if utc is not None:
        place: dt.tzinfo = dt.UTC
    elif sign is not None:
        minutes = int(off_h) * 60 + int(off_m or 0)
        place = dt.timezone(dt.timedelta(minutes=-minutes if sign == "-" else minutes))
    else:
        place = zone(name or default_zone)
    return _to_ns(wall.replace(tzinfo=place), int((fraction or "").ljust(9, "0")), f"'{text}'")


@routine("HUGEINT", "VARCHAR", "VARCHAR")
def timestamp_of_text(text: str, zone_name: str) -> int:
    """CAST to TIMESTAMP, and TIMESTAMP(text, zone)."""
    return text_to_timestamp(text, zone_name)


@routine("VARCHAR", "HUGEINT", "VARCHAR")
def timestamp_text(timestamp_ns: int, zone_name: str) -> str:
    """CAST to STRING: as many digits of the fraction as are needed in threes."""
    try:
        local, nanoseconds = local_time(timestamp_ns, zone_name)
    except SpannerError:  # the same time, in a zone where it has a year
        local, nanoseconds = local_time(timestamp_ns, "UTC")
    offset = local.utcoffset() or dt.timedelta()
    if offset % _MINUTE:  # the text has no seconds of an offset, and must mean the same time
        local = local.astimezone(dt.timezone(_MINUTE * int(offset / _MINUTE)))
    fraction = f".{nanoseconds:09d}" if nanoseconds else ""
    while fraction.endswith("000"):
        fraction = fraction[:-3]
    return f"{_date_time(local)}{fraction}{_offset(local, ':', always_minutes=False)}"


def _date_time(local: dt.datetime) -> str:
    return f"{local.year:04d}-{local:%m-%d %H:%M:%S}"


def _offset(local: dt.datetime, separator: str, *, always_minutes: bool) -> str:
    minutes = int((local.utcoffset() or dt.timedelta()).total_seconds() / 60)
    hours, rest = divmod(abs(minutes), 60)
    tail = f"{separator}{rest:02d}" if rest or always_minutes else ""
    return f"{'-' if minutes < 0 else '+'}{hours:02d}{tail}"


def text_to_date(text: str) -> dt.date:
    """A date's text; a time of day after it is not allowed."""
    found = _DATE.fullmatch(text)
    try:
        if found is not None:
            return dt.date(int(found[1]), int(found[2]), int(found[3]))
    except ValueError:
        pass
    raise out_of_range(f"Invalid date: '{text}'")


@routine("DATE", "VARCHAR")
def date_of_text(text: str) -> dt.date:
    """CAST to DATE."""
    return text_to_date(text)


# -- PostgreSQL has other words for the same mistakes


@routine("DATE", "VARCHAR")
def pg_text_to_date(text: str) -> dt.date:
    """CAST to date."""
    try:
        return text_to_date(text)
    except SpannerError:
        raise _pg_refusal("date", text, is_date=_DATE.fullmatch(text) is not None) from None


@routine("HUGEINT", "VARCHAR")
def pg_text_to_timestamp(text: str) -> int:
    """CAST to timestamptz."""
    try:
        return text_to_timestamp(text)
    except SpannerError:
        is_date = _TIMESTAMP.fullmatch(text.strip()) is not None
        raise _pg_refusal("timestamp with time zone", text, is_date=is_date) from None


def _pg_refusal(name: str, text: str, *, is_date: bool) -> SpannerError:
    what = (
        "date/time field value out of range" if is_date else f"invalid input syntax for type {name}"
    )
    return SpannerError(Code.INVALID_ARGUMENT, f'[ERROR] {what}: "{text}"')


@routine("DATE", "HUGEINT", "VARCHAR")
def timestamp_date(timestamp_ns: int, zone_name: str) -> dt.date:
    """The date at a time in a zone."""
    return local_time(timestamp_ns, zone_name)[0].date()


@routine("HUGEINT", "DATE", "VARCHAR")
def date_timestamp(day: dt.date, zone_name: str) -> int:
    """Midnight of a date in a zone."""
    midnight = dt.datetime(day.year, day.month, day.day, tzinfo=zone(zone_name))
    return _to_ns(midnight, 0, str(day))


@routine("DATE", "BIGINT", "BIGINT", "BIGINT")
def date_of_parts(year: int, month: int, day: int) -> dt.date:
    """DATE(year, month, day)."""
    try:
        return dt.date(year, month, day)
    except (ValueError, OverflowError):
        raise out_of_range(
            f"Input calculates to invalid date: {year:04d}-{month:02d}-{day:02d}"
        ) from None


@routine("DATE", "BIGINT")
def date_of_unix(days: int) -> dt.date:
    """DATE_FROM_UNIX_DATE."""
    return _shift(_EPOCH_DAY, days, f"DATE_FROM_UNIX_DATE({days})")


def _shift(day: dt.date, days: int, what: str) -> dt.date:
    try:
        return day + dt.timedelta(days=days)
    except OverflowError:
        raise out_of_range(what) from None


# -- arithmetic


@routine("HUGEINT", "HUGEINT", "BIGINT", "VARCHAR")
def timestamp_add(timestamp_ns: int, count: int, part: str) -> int:
    """TIMESTAMP_ADD."""
    what = f"TIMESTAMP_ADD by {count} {part}"
    return _checked(timestamp_ns + count * _unit_ns("TIMESTAMP_ADD", part), what)


def _unit_ns(function: str, part: str) -> int:
    if part not in _UNIT_NS:
        raise SpannerError(
            Code.INVALID_ARGUMENT, f"{function} does not support the {part} date part"
        )
    return _UNIT_NS[part]


@routine("BIGINT", "HUGEINT", "HUGEINT", "VARCHAR")
def timestamp_diff(one_ns: int, other_ns: int, part: str) -> int:
    """TIMESTAMP_DIFF: whole units, towards zero."""
    unit = _unit_ns("TIMESTAMP_DIFF", part)
    difference = abs(one_ns - other_ns) // unit
    signed = difference if one_ns >= other_ns else -difference
    if not -(2**63) <= signed < 2**63:
        raise out_of_range(f"TIMESTAMP_DIFF in {part} precision causes overflow")
    return signed


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
    what = f"Adding {count} {part} to date {day} causes overflow"
    match part:
        case "DAY":
            return _shift(day, count, what)
        case "WEEK":
            return _shift(day, 7 * count, what)
        case "MONTH" | "QUARTER" | "YEAR":
            months = count * {"MONTH": 1, "QUARTER": 3, "YEAR": 12}[part]
            year, month = divmod(day.year * 12 + day.month - 1 + months, 12)
            if not 1 <= year <= 9999:
                raise out_of_range(what)
            last = calendar.monthrange(year, month + 1)[1]
            return dt.date(year, month + 1, min(day.day, last))
        case _:
            raise SpannerError(
                Code.INVALID_ARGUMENT, f"DATE_ADD does not support the {part} date part"
            )


@routine("BIGINT", "DATE", "DATE", "VARCHAR")
def date_diff_part(one: dt.date, other: dt.date, part: str) -> int:
    """DATE_DIFF: how many boundaries of the part lie between."""
    match part:
        case "DAY":
            return (one - other).days
        case "MONTH":
            return (one.year - other.year) * 12 + one.month - other.month
        case "QUARTER":
            return (one.year - other.year) * 4 + (one.month - 1) // 3 - (other.month - 1) // 3
        case "YEAR":
            return one.year - other.year
        case "ISOYEAR":
            return one.isocalendar().year - other.isocalendar().year
        case _:
            days: int = (date_trunc_part(one, part) - date_trunc_part(other, part)).days
            return days // 7


_WEEKDAYS: Final = (
    "MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY",
)  # fmt: skip


@routine("DATE", "DATE", "VARCHAR")
def date_trunc_part(day: dt.date, part: str) -> dt.date:
    """DATE_TRUNC."""
    match part:
        case "DAY":
            return day
        case "MONTH":
            return day.replace(day=1)
        case "QUARTER":
            return day.replace(month=(day.month - 1) // 3 * 3 + 1, day=1)
        case "YEAR":
            return day.replace(month=1, day=1)
        case "ISOYEAR":
            return dt.date.fromisocalendar(day.isocalendar().year, 1, 1)
        case "ISOWEEK":
            first = 0
        case "WEEK":
            first = 6
        case _:
            found = re.fullmatch(r"WEEK\((\w+)\)", part)
            if found is None or found[1] not in _WEEKDAYS:
                raise SpannerError(
                    Code.INVALID_ARGUMENT, f"DATE_TRUNC does not support the {part} date part"
                )
            first = _WEEKDAYS.index(found[1])
    return _shift(day, -((day.weekday() - first) % 7), f"DATE_TRUNC to {part}")


# -- parts


def date_parts_of(day: dt.date, part: str) -> int:
    """One number of a date."""
    match part:
        case "YEAR":
            return day.year
        case "QUARTER":
            return (day.month - 1) // 3 + 1
        case "MONTH":
            return day.month
        case "DAY":
            return day.day
        case "DAYOFWEEK":
            return day.isoweekday() % 7 + 1
        case "DAYOFYEAR":
            return day.timetuple().tm_yday
        case "ISOWEEK":
            return day.isocalendar().week
        case "ISOYEAR":
            return day.isocalendar().year
        case _:
            found = re.fullmatch(r"WEEK(?:\((\w+)\))?", part)
            if found is None:
                raise SpannerError(
                    Code.INVALID_ARGUMENT, f"EXTRACT does not support the {part} date part"
                )
            first = _WEEKDAYS.index(found[1] or "SUNDAY")
            return (day.timetuple().tm_yday + 6 - (day.weekday() - first) % 7) // 7


@routine("BIGINT", "DATE", "VARCHAR")
def date_extract(day: dt.date, part: str) -> int:
    """EXTRACT from a DATE."""
    return date_parts_of(day, part)


@routine("BIGINT", "HUGEINT", "VARCHAR", "VARCHAR")
def timestamp_extract(timestamp_ns: int, part: str, zone_name: str) -> int:
    """EXTRACT from a TIMESTAMP."""
    local, nanoseconds = local_time(timestamp_ns, zone_name)
    match part:
        case "NANOSECOND":
            return nanoseconds
        case "MICROSECOND":
            return nanoseconds // 1000
        case "MILLISECOND":
            return nanoseconds // 10**6
        case "SECOND":
            return local.second
        case "MINUTE":
            return local.minute
        case "HOUR":
            return local.hour
        case _:
            return date_parts_of(local.date(), part)


@routine("BIGINT", "HUGEINT", "BIGINT")
def timestamp_unix(timestamp_ns: int, unit_ns: int) -> int:
    """UNIX_SECONDS and its like: downwards."""
    return timestamp_ns // unit_ns


@routine("HUGEINT", "BIGINT", "BIGINT")
def timestamp_of_unix(count: int, unit_ns: int) -> int:
    """TIMESTAMP_SECONDS and its like."""
    return _checked(count * unit_ns, str(count))


@routine("VARCHAR", "HUGEINT")
def timestamp_rfc3339(timestamp_ns: int) -> str:
    """As the wire shows it."""
    return format_ns(timestamp_ns)

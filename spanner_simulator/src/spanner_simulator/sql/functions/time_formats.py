"""FORMAT_TIMESTAMP, PARSE_TIMESTAMP and PostgreSQL's to_char: dates and times by pattern."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING

from spanner_simulator.sql.functions.routines import out_of_range, routine
from spanner_simulator.sql.functions.time_routines import (
    date_parts_of,
    date_timestamp,
    local_time,
    zone,
)

if TYPE_CHECKING:
    from collections.abc import Callable


_ELEMENT = re.compile(r"%(E\*S|E[1-9]S|E4Y|Ez|[A-Za-z%])", re.DOTALL)
_PG_ELEMENT = re.compile(
    r"YYYY|YY|MM|DDD|DD|HH24|HH12|HH|MI|SS|MS|US|AM|PM|am|pm|Day|Dy|Month|Mon|TZ|Q|IYYY|IW|D|\"[^\"]*\""
)


def format_time(pattern: str, local: dt.datetime, nanoseconds: int) -> str:
    """A wall clock by a strftime pattern with Spanner's additions."""
    return _ELEMENT.sub(lambda found: _element(found[1], local, nanoseconds), pattern)


def _element(name: str, local: dt.datetime, nanoseconds: int) -> str:
    offset_s = int((local.utcoffset() or dt.timedelta()).total_seconds())
    hours, rest = divmod(abs(offset_s) // 60, 60)
    sign = "-" if offset_s < 0 else "+"
    simple: dict[str, Callable[[], str]] = {
        "Y": lambda: str(local.year),
        "E4Y": lambda: f"{local.year:04d}",
        "F": lambda: f"{local.year:04d}-{local:%m-%d}",
        "T": lambda: f"{local:%H:%M:%S}",
        "X": lambda: f"{local:%H:%M:%S}",
        "R": lambda: f"{local:%H:%M}",
        "D": lambda: f"{local:%m/%d/%y}",
        "x": lambda: f"{local:%m/%d/%y}",
        "c": lambda: f"{local:%a %b} {local.day:2d} {local:%H:%M:%S} {local.year}",
        "e": lambda: f"{local.day:2d}",
        "k": lambda: f"{local.hour:2d}",
        "l": lambda: f"{(local.hour - 1) % 12 + 1:2d}",
        "s": lambda: str(int(local.timestamp())),
        "z": lambda: f"{sign}{hours:02d}{rest:02d}",
        "Ez": lambda: f"{sign}{hours:02d}:{rest:02d}",
        "Z": lambda: f"UTC{sign}{f'{hours:02d}{rest:02d}' if rest else hours}"
        if offset_s else "UTC",
        "Q": lambda: str(date_parts_of(local.date(), "QUARTER")),
        "C": lambda: f"{local.year // 100:02d}",
        "h": lambda: f"{local:%b}",
        "n": lambda: "\n",
        "t": lambda: "\t",
        "%": lambda: "%",
        "P": lambda: local.strftime("%p").lower(),
        "E*S": lambda: f"{local.second:02d}.{nanoseconds:09d}".rstrip("0").rstrip("."),
    }  # fmt: skip
    if name in simple:
        return simple[name]()
    if name[0] == "E" and name[-1] == "S":
        return f"{local.second:02d}.{f'{nanoseconds:09d}'[: int(name[1])]}"
    if name in "aAbBdHIjmMpSuUVwWyGg":
        return local.strftime(f"%{name}")
    return f"%{name}"


@routine("VARCHAR", "VARCHAR", "HUGEINT", "VARCHAR")
def timestamp_format(pattern: str, timestamp_ns: int, zone_name: str) -> str:
    """FORMAT_TIMESTAMP."""
    local, nanoseconds = local_time(timestamp_ns, zone_name)
    return format_time(pattern, local, nanoseconds)


@routine("VARCHAR", "VARCHAR", "DATE")
def date_format_text(pattern: str, day: dt.date) -> str:
    """FORMAT_DATE."""
    return format_time(pattern, dt.datetime(day.year, day.month, day.day, tzinfo=dt.UTC), 0)


def _parse(pattern: str, text: str) -> tuple[dt.datetime, int]:
    """The wall clock that a text names, with its zone if it names one, and nanoseconds."""
    plain = pattern.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S").replace("%R", "%H:%M")
    plain = plain.replace("%Ez", "%z").replace("%E4Y", "%Y").replace("%e", "%d")
    plain = re.sub(r"%E[*1-9]S", "%S.%f", plain)
    fraction = re.search(r"\.(\d+)", text) if "%S.%f" in plain else None
    nanoseconds = int(fraction[1][:9].ljust(9, "0")) if fraction else 0
    if fraction:
        text = text[: fraction.start()] + text[fraction.end() :]
    plain = plain.replace("%S.%f", "%S")
    try:
        return dt.datetime.strptime(text.strip(), plain), nanoseconds  # noqa: DTZ007  # local time
    except ValueError:
        raise out_of_range(f'Failed to parse input string "{text}"') from None


@routine("HUGEINT", "VARCHAR", "VARCHAR", "VARCHAR")
def timestamp_parse(pattern: str, text: str, zone_name: str) -> int:
    """PARSE_TIMESTAMP."""
    moment, nanoseconds = _parse(pattern, text)
    place = moment.tzinfo or zone(zone_name)
    midnight_ns = date_timestamp(dt.date(1970, 1, 1), "UTC")
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    seconds = (moment.replace(tzinfo=place) - epoch) // dt.timedelta(seconds=1)
    return int(midnight_ns + seconds * 10**9 + nanoseconds)


@routine("DATE", "VARCHAR", "VARCHAR")
def date_parse(pattern: str, text: str) -> dt.date:
    """PARSE_DATE."""
    return _parse(pattern, text)[0].date()


@routine("VARCHAR", "HUGEINT", "VARCHAR", "VARCHAR")
def pg_to_char(timestamp_ns: int, pattern: str, zone_name: str) -> str:
    """PostgreSQL's to_char of a timestamp."""
    local, nanoseconds = local_time(timestamp_ns, zone_name)

    def one(found: re.Match[str]) -> str:
        name = found.group()
        parts: dict[str, str] = {
            "YYYY": f"{local.year:04d}", "YY": f"{local:%y}", "MM": f"{local:%m}",
            "DD": f"{local:%d}", "DDD": f"{local:%j}", "HH24": f"{local:%H}",
            "HH12": f"{local:%I}", "HH": f"{local:%I}", "MI": f"{local:%M}", "SS": f"{local:%S}",
            "MS": f"{nanoseconds // 10**6:03d}", "US": f"{nanoseconds // 1000:06d}",
            "AM": f"{local:%p}", "PM": f"{local:%p}", "am": f"{local:%p}".lower(),
            "pm": f"{local:%p}".lower(), "Day": f"{local:%A}".ljust(9), "Dy": f"{local:%a}",
            "Month": f"{local:%B}".ljust(9), "Mon": f"{local:%b}", "TZ": f"{local:%Z}",
            "Q": str((local.month - 1) // 3 + 1), "IYYY": f"{local:%G}", "IW": f"{local:%V}",
            "D": str(local.isoweekday() % 7 + 1),
        }  # fmt: skip
        return parts.get(name, name.strip('"'))

    return _PG_ELEMENT.sub(one, pattern)

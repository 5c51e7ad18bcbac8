"""INTERVAL values: months, days and nanoseconds as normalised ISO 8601 text.

Years and months are one quantity, so are hours, minutes and seconds; days stand alone, as their
length varies. Each of the three has its own sign. The limits are those of ten thousand years.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

_MONTHS_MAX: Final = 120_000
_DAYS_MAX: Final = 3_660_000
_NANOSECONDS_MAX: Final = 316_224_000_000_000_000_000
_SECOND_NS: Final = 10**9
_WHOLE = r"(?:([+-]?\d{1,12})%s)?"
_ISO = re.compile(
    "P"
    + "".join(_WHOLE % unit for unit in "YMWD")
    + "(?:T"
    + "".join(_WHOLE % unit for unit in "HM")
    + r"(?:([+-]?\d{0,15}(?:[.,]\d{0,9})?)S)?)?",
    re.ASCII,
)


def normalise_interval(text: str) -> str:
    """The normal form of an ISO 8601 duration; ValueError when it is invalid or out of range."""
    found = _ISO.fullmatch(text)
    if found is None or not any(part is not None for part in found.groups()):
        raise ValueError(f"{text} is no ISO 8601 duration")
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    seconds = found.group(7)
    if seconds is not None and not any(char.isdigit() for char in seconds):
        raise ValueError(f"{text} has no seconds before its S")
    nanoseconds = int(Decimal((seconds or "0").replace(",", ".")) * _SECOND_NS)
    nanoseconds += (hours * 3600 + minutes * 60) * _SECOND_NS
    return _format(years * 12 + months, weeks * 7 + days, nanoseconds)


def _format(months: int, days: int, nanoseconds: int) -> str:
    if abs(months) > _MONTHS_MAX or abs(days) > _DAYS_MAX or abs(nanoseconds) > _NANOSECONDS_MAX:
        raise ValueError("an interval is out of range")
    if not (months or days or nanoseconds):
        return "P0Y"
    month_sign, time_sign = ("-" if part < 0 else "" for part in (months, nanoseconds))
    years, rest_months = divmod(abs(months), 12)
    seconds, fraction_ns = divmod(abs(nanoseconds), _SECOND_NS)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{fraction_ns:09d}".rstrip("0") if fraction_ns else ""
    date = (
        f"{month_sign}{years}Y" if years else "",
        f"{month_sign}{rest_months}M" if rest_months else "",
        f"{days}D" if days else "",
    )
    time = (
        f"{time_sign}{hours}H" if hours else "",
        f"{time_sign}{minutes}M" if minutes else "",
        f"{time_sign}{seconds}{fraction}S" if seconds or fraction_ns else "",
    )
    return "P" + "".join(date) + ("T" + "".join(time) if any(time) else "")

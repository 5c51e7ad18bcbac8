"""A file of an object as a listing shows it: its minute, and its name in a position."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from tidegate.producer.datastream.errors import MisplacedFile
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream_source.limits import US_PER_MINUTE
from tidegate.schemas.checksums import xxhash_64

_HASH_BITS = 36
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = re.compile(r"(?:.*/)?(\d{4})/(\d{2})/(\d{2})/(\d{2})/(\d{2})/[^/]+", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a listing has shown."""

    path: str
    """What the store opens it by."""
    minute: int
    """The minute of its folder, since 1970."""
    name: str
    """16 hexadecimal digits: the minute, then a hash of the path below the object's folder.

    They sort as time, and are the same wherever the files are.
    """
    modified_us: int
    """When it was written, by the store's clock."""

    @property
    def end_us(self) -> int:
        """The end of its minute."""
        return (self.minute + 1) * US_PER_MINUTE


def minute_of(path: str) -> int | None:
    """Return the minute of a file's folder `yyyy/mm/dd/hh/mm`; None if it is not in such a one."""
    found = _PLACE.fullmatch(path)
    if found is None:
        return None
    year, month, day, hour, minute_of_hour = (int(part) for part in found.groups())
    try:
        start = datetime(year, month, day, hour, minute_of_hour, tzinfo=UTC)
    except ValueError:
        return None
    minute = int((start - _EPOCH).total_seconds()) // 60
    return minute if minute >= 0 else None


def found_file(path: str, *, within: str, modified_us: int) -> FoundFile:
    """Return a file below the folder `within`; raises MisplacedFile for a wrong folder."""
    below = path.removeprefix(within).lstrip("/")
    minute = minute_of(below)
    if minute is None:
        raise MisplacedFile.at(
            Position(path, 0), "the file is not in a folder yyyy/mm/dd/hh/mm of its object"
        )
    hashed = xxhash_64(below.encode(errors="surrogateescape")) & ((1 << _HASH_BITS) - 1)
    return FoundFile(path, minute, f"{minute << _HASH_BITS | hashed:016x}", modified_us)


def minute_of_name(name: str) -> int:
    """Return the minute that a file's name in a position begins with."""
    return int(name, 16) >> _HASH_BITS

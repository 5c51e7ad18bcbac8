"""The files of an object: the next one to read, the finished ones, and the watermark.

Pure: the caller passes listings and their times.  A file is due if its minute is open, if it is
late, or if the position names it; so a file is published once, whatever listings show.

    minute < first open one     its files were read; a file of it is read only if it is late
    otherwise                   every file that a listing shows is read, and read on if it was
                                written since

A file is late if it was written after its minute could be closed at the earliest.  One that was
read before its minute was closed, and written so late, stays in the position: a listing could not
distinguish it from an unread file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from heapq import heapify, heappop, heappush

from tidegate.producer.core.file_position import CLOSED, REFUSED, SOURCE, parts_of
from tidegate.producer.datastream.errors import FileNamesCollide, MisplacedFile, Position
from tidegate.producer.records import FilesClosedRecord
from tidegate.schemas.checksums import xxhash_64

US_PER_MINUTE = 60_000_000


@dataclass(frozen=True, slots=True)
class SourceLimits:
    """The settings of a source that concern time and memory."""

    open_minutes: int = 10
    """How long after its end a minute's folder may get files; copies of events are recognised
    within that time."""
    lateness_us: int = 600_000_000
    """The distance of the watermark from the files that were read."""
    late_hours: int = 24
    """The age in hours of folders in which files later than `open_minutes` are searched."""
    uuids_max: int = 1_000_000
    """Identifiers kept for one object; beyond them those of its oldest files are dropped."""

    @property
    def open_us(self) -> int:
        """`open_minutes` in microseconds."""
        return self.open_minutes * US_PER_MINUTE

    @property
    def late_minutes(self) -> int:
        """`late_hours` in minutes."""
        return self.late_hours * 60


_HASH_BITS = 36
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PLACE = re.compile(r"(?:.*/)?(\d{4})/(\d{2})/(\d{2})/(\d{2})/(\d{2})/[^/]+", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that a listing has shown."""

    path: str
    """The name with which the store opens it."""
    minute: int
    """The minute of its folder, since 1970."""
    name: str
    """16 hexadecimal digits: the minute, then a hash of the path below the object's folder.

    They sort by time, and do not depend on the location of the files.
    """
    modified_us: int
    """When it was written, by the store's clock."""

    @property
    def end_us(self) -> int:
        """The end of its minute."""
        return (self.minute + 1) * US_PER_MINUTE


def minute_of(path: str) -> int | None:
    """Return the minute of a file's folder `yyyy/mm/dd/hh/mm`; None for another folder."""
    match = _PLACE.fullmatch(path)
    if match is None:
        return None
    year, month, day, hour, minute_of_hour = (int(part) for part in match.groups())
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
    """Return the minute at the beginning of a file's name in a position."""
    return int(name, 16) >> _HASH_BITS


class PublishedParts:
    """The parts of files that are read again when a query starts, in the order of first reading.

    Release times depend on the preceding events, so they are equal only in that order: a file that
    was read in parts is read again in parts, with parts of other files between them.
    """

    def __init__(self, entries: Mapping[str, str]) -> None:
        """Start with the entries of files in a boundary, before any listing."""
        self._left = {name: parts_of(entry)[::-1] for name, entry in entries.items()}
        """The remaining parts of each file, the last one first."""
        self._readable: list[tuple[int, str]] = []
        """A heap of (turn, name) of files that a listing has shown, some of which are done."""

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def note_listed(self, name: str) -> None:
        """Record that a listing shows a file, so that its parts can be read."""
        if name in self._left:
            heappush(self._readable, (self._left[name][-1][1], name))

    def first(self) -> str | None:
        """Return the file of the next part; None if none can be read."""
        while self._readable and self._readable[0][1] not in self._left:
            heappop(self._readable)
        return self._readable[0][1] if self._readable else None

    def through(self, name: str) -> int | None:
        """Return the last record of a file's next part; None if no part remains."""
        return self._left[name][-1][0] if name in self._left else None

    def note_read(self, name: str) -> None:
        """Record that the next part, one of this file, was read."""
        self._left[name].pop()
        heappop(self._readable)
        if self._left[name]:
            self.note_listed(name)
        else:
            del self._left[name]

    def drop(self, name: str) -> None:
        """Record that no more of a file is to be read for now."""
        self._left.pop(name, None)


_NO_FILES = (CLOSED, SOURCE)
"""The entries of a boundary that are not files."""
_CLOCKS_DIFFER_US = 60_000_000
"""How far a worker's clock may be ahead of the store's."""


class FileLedger:
    """The files of one object, from the position at which its query started."""

    def __init__(
        self, resumption: Mapping[str, str], *, first_minute: int, limits: SourceLimits
    ) -> None:
        """Start with the files that a position names, before any listing."""
        self._limits = limits
        self._first_minute = first_minute
        self.first_open_minute = int(resumption.get(CLOSED, first_minute))
        entries = {name: sequence for name, sequence in resumption.items() if name not in _NO_FILES}
        self._refused: dict[str, int] = {}
        """The first refused record of each file whose rest was refused."""
        self._records: dict[str, int] = {}
        self._newest = 0, ""
        """The last turn in the order of reading, and its file."""
        for entry, sequence in entries.items():
            name = entry.removesuffix(REFUSED)
            record, turn = parts_of(sequence)[-1]
            self._newest = max(self._newest, (turn, name))
            self._records.setdefault(name, 0)
            (self._records if name == entry else self._refused)[name] = record
        self._published_before = dict(self._records)
        self.rereads = PublishedParts(
            {name: sequence for name, sequence in entries.items() if not name.endswith(REFUSED)}
        )
        """The published records that are to be read again, by the files' names."""
        self._met: dict[str, int] = {}
        """The last record of each file that this query has read."""
        self._files: dict[str, FoundFile] = {}
        self._complete: set[str] = set()
        self._postponed: set[str] = set()
        self._queue: list[tuple[int, str, str]] = []
        """A heap of (minute, path, name) of files to read, including some that were read."""
        self._minutes: list[tuple[int, str]] = []
        """A heap of (minute, name) of the known files, except those of closed minutes."""
        self._kept: set[str] = set()
        """Late files that stay in the position although their minutes are closed."""

    def add(self, files: Iterable[FoundFile]) -> list[FoundFile]:
        """Add a listing; return the files that are new and late.

        Raises FileNamesCollide if two files have one name.
        """
        late = []
        for name in self._postponed:
            self._enqueue(self._files[name])
        self._postponed.clear()
        for file in files:
            former = self._files.get(file.name)
            if former is not None:
                if former.path != file.path:
                    raise FileNamesCollide.at(
                        Position(file.path, 0),
                        f"a position cannot distinguish the file from {former.path}",
                    )
                if file.name not in self._complete:
                    self._files[file.name] = file  # it may have grown
                elif file.modified_us > former.modified_us:
                    self._read_on(file)
                continue
            is_open = file.minute >= self.first_open_minute
            if file.name not in self._records and not is_open:
                if not self._comes_late(file, self.first_open_minute):
                    continue
                late.append(file)
            self._files[file.name] = file
            self.rereads.note_listed(file.name)
            self._enqueue(file)
            heappush(self._minutes, (file.minute, file.name))
        return late

    def next_file(self) -> FoundFile | None:
        """Return the next file to read; None if all were read.

        Files of the position come first, part by part in the order in which they were read, because
        published records have to be known before any other is.
        """
        again = self.rereads.first()
        if again is not None:
            return self._files[again]
        first = self._first_queued()
        return None if first is None else self._files[first[2]]

    def _read_on(self, file: FoundFile) -> None:
        """Read a file again that was written since it was read: it may have more records."""
        self._complete.discard(file.name)
        self._published_before[file.name] = self._records.get(file.name, 0)
        self._files[file.name] = file
        self._enqueue(file)

    def _enqueue(self, file: FoundFile) -> None:
        heappush(self._queue, (file.minute, file.path, file.name))

    def _first_queued(self) -> tuple[int, str, str] | None:
        """Return the next file of the queue; finished ones leave the queue."""
        queue = self._queue
        while queue and (queue[0][2] in self._complete or queue[0][2] not in self._files):
            heappop(queue)
        return queue[0] if queue else None

    def meet(self, file: FoundFile, record: int) -> bool:
        """Record an event of a file; return whether this query had not read it before."""
        if record <= self._met.get(file.name, 0):
            return False
        self._met[file.name] = record
        return True

    def published(self, file: FoundFile) -> int:
        """Return the number of a file's records that are published or were returned."""
        return self._records.get(file.name, 0)

    def add_record(self, file: FoundFile, record: int) -> int:
        """Record that a record of a file is returned; return its turn in the order of reading.

        If other files were read since the preceding record, it begins another part of the file.
        """
        self._records[file.name] = record
        return self._turn(file)

    def refused_from(self, file: FoundFile) -> int:
        """Return the first record of a file's refused rest; 0 if it is not refused."""
        return self._refused.get(file.name, 0)

    def refuse_from(self, file: FoundFile, record: int) -> int:
        """Record that a file is refused from a record on, as `add_record` does.

        Its records do not count as returned by that.
        """
        self._refused[file.name] = record
        self._records.setdefault(file.name, 0)
        return self._turn(file)

    def _turn(self, file: FoundFile) -> int:
        turn, name = self._newest
        if name != file.name:
            self._newest = turn + 1, file.name
        return self._newest[0]

    def complete(self, file: FoundFile, *, records: int) -> bool:
        """Record that a file was read to its end; return whether it had any new record."""
        self.rereads.drop(file.name)
        self._complete.add(file.name)
        self._records.setdefault(file.name, 0)  # a file without events is known by name too
        return records > self._published_before.pop(file.name, -1)

    @property
    def unread(self) -> int:
        """Number of listed files that were not read to their ends."""
        return len(self._files) - len(self._complete)

    def postpone(self, file: FoundFile) -> None:
        """Read a file again after the next listing; until then its minute stays open."""
        self.rereads.drop(file.name)
        self._postponed.add(file.name)
        # At the head if its turn has come, and after others if the position names it.
        self._queue = [entry for entry in self._queue if entry[2] != file.name]
        heapify(self._queue)

    def watermark_us(self, listed_us: int) -> int:
        """Return an event time before all later events, except late ones.

        Once all files of the listing were read, it depends on the listing's time; before, on the
        first unread file.
        """
        unread = self._first_unread()
        starts = [] if unread is None else [unread * US_PER_MINUTE]
        return min([listed_us, *starts]) - self._limits.lateness_us

    def close(self, listed_us: int) -> FilesClosedRecord | None:
        """Close the minutes that are over and read; return the files that leave the position.

        `listed_us` is the beginning of the last listing.
        """
        patience_us = self._limits.open_us + _CLOCKS_DIFFER_US
        # Unread files may hold copies of events that were read, however long ago that was.
        unread = self._first_unread()
        minutes = [] if unread is None else [unread - self._limits.open_minutes]
        first = min([(listed_us - patience_us) // US_PER_MINUTE, *minutes])
        if first <= self.first_open_minute:
            return None
        self.first_open_minute = first
        closed = [name for name in self._records if not self._is_kept(name, first)]
        for name in closed:
            del self._records[name]
            self._met.pop(name, None)
            self.rereads.drop(name)
        closed += [f"{name}{REFUSED}" for name in closed if self._refused.pop(name, 0)]
        while self._minutes and self._minutes[0][0] < first:
            self._kept.add(heappop(self._minutes)[1])
        for name in self._kept - self._records.keys():
            self._kept.discard(name)
            del self._files[name]
            self._complete.discard(name)
        return FilesClosedRecord(first, tuple(sorted(closed)))

    @property
    def open_since_us(self) -> int:
        """Beginning of the first minute with unread files, otherwise of the first open minute."""
        unread = self._first_unread()
        return (self.first_open_minute if unread is None else unread) * US_PER_MINUTE

    def _first_unread(self) -> int | None:
        """Return the minute of the first unread file; None if all were read.

        A year of minutes has half a million files, so none of them is examined twice.
        """
        first = self._first_queued()
        minutes = [self._files[name].minute for name in self._postponed]
        return min([*minutes, *([] if first is None else [first[0]])], default=None)

    def _is_kept(self, name: str, first: int) -> bool:
        if minute_of_name(name) >= first:
            return True
        file = self._files.get(name)
        return file is not None and self._comes_late(file, first)

    def _comes_late(self, file: FoundFile, first: int) -> bool:
        """Whether a file of a closed minute has to be known by its name, or has to be read."""
        oldest = max(first - self._limits.late_minutes, self._first_minute)
        is_late = file.modified_us > file.end_us + self._limits.open_us
        return is_late and file.minute >= oldest

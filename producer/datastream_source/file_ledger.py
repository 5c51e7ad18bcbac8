"""Which files of an object are read next, which are not met again, and how far the watermark is.

Pure: listings and the time of each come in.  A file is due if its minute is open, if it is late, or
if the position names it; so a file is published once, whatever a listing shows and whenever.

    minute < first open one     its files were read; a file of it is read only if it is late
    otherwise                   every file that a listing shows is read, and read on if it was
                                written since

A file is late if it was written after its minute could be closed at the earliest.  One that was
read before its minute was closed, and written so late, stays in the position: a listing could not
tell it from one that was not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heapify, heappop, heappush

from tidegate.producer.core.file_position import CLOSED, REFUSED, SOURCE, parts_of
from tidegate.producer.datastream.errors import FileNamesCollide
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream_source.found_file import FoundFile, minute_of_name
from tidegate.producer.datastream_source.limits import US_PER_MINUTE, SourceLimits
from tidegate.producer.datastream_source.published_parts import PublishedParts
from tidegate.producer.records import FilesClosedRecord

_NO_FILES = (CLOSED, SOURCE)
"""What a boundary has beside files."""
_CLOCKS_DIFFER_US = 60_000_000
"""How much a worker's clock may be ahead of the store's."""


class FileLedger:
    """The files of one object, from the position that its query started at."""

    def __init__(
        self, resumption: Mapping[str, str], *, first_minute: int, limits: SourceLimits
    ) -> None:
        """Begin with the files that a position names, of which no listing was seen."""
        self._limits = limits
        self._first_minute = first_minute
        self.first_open_minute = int(resumption.get(CLOSED, first_minute))
        entries = {name: at for name, at in resumption.items() if name not in _NO_FILES}
        self._refused: dict[str, int] = {}
        """The record from which on a file was refused."""
        self._records: dict[str, int] = {}
        self._newest = 0, ""
        """The last turn, the place in the order of reading, and the file that has it."""
        for entry, at in entries.items():
            name = entry.removesuffix(REFUSED)
            record, turn = parts_of(at)[-1]
            self._newest = max(self._newest, (turn, name))
            self._records.setdefault(name, 0)
            (self._records if name == entry else self._refused)[name] = record
        self._published_before = dict(self._records)
        self._again = PublishedParts(
            {name: at for name, at in entries.items() if not name.endswith(REFUSED)}
        )
        self._met: dict[str, int] = {}
        """The last record of each file that this query has taken."""
        self._found: dict[str, FoundFile] = {}
        self._complete: set[str] = set()
        self._postponed: set[str] = set()
        self._queue: list[tuple[int, str, str]] = []
        """A heap of (minute, path, name) of the files that are to be read, with some that were."""
        self._minutes: list[tuple[int, str]] = []
        """A heap of (minute, name) of the files that are found, but for those of closed minutes."""
        self._kept: set[str] = set()
        """Late files that stay in the position though their minutes are closed."""

    def add(self, files: Iterable[FoundFile]) -> list[FoundFile]:
        """Take a listing; return the files that are new and late.

        Raises FileNamesCollide if two files have one name.
        """
        late = []
        for name in self._postponed:
            self._enqueue(self._found[name])
        self._postponed.clear()
        for one in files:
            known = self._found.get(one.name)
            if known is not None:
                if known.path != one.path:
                    raise FileNamesCollide.at(
                        Position(one.path, 0),
                        f"a position cannot distinguish the file from {known.path}",
                    )
                if one.name not in self._complete:
                    self._found[one.name] = one  # it may have grown
                elif one.modified_us > known.modified_us:
                    self._read_on(one)
                continue
            is_open = one.minute >= self.first_open_minute
            if one.name not in self._records and not is_open:
                if not self._comes_late(one, self.first_open_minute):
                    continue
                late.append(one)
            self._found[one.name] = one
            self._again.found(one.name)
            self._enqueue(one)
            heappush(self._minutes, (one.minute, one.name))
        return late

    def next_file(self) -> FoundFile | None:
        """Return the file that is to be read now; None if all were read.

        Files of the position come first, part by part in the order in which they were read: what
        was published has to be known before anything is.
        """
        again = self._again.first()
        if again is not None:
            return self._found[again]
        first = self._first_queued()
        return None if first is None else self._found[first[2]]

    def _read_on(self, one: FoundFile) -> None:
        """Have a file read again that was written since it was read: it may have more records."""
        self._complete.discard(one.name)
        self._published_before[one.name] = self._records.get(one.name, 0)
        self._found[one.name] = one
        self._enqueue(one)

    def _enqueue(self, one: FoundFile) -> None:
        heappush(self._queue, (one.minute, one.path, one.name))

    def _first_queued(self) -> tuple[int, str, str] | None:
        """Return the first file of the queue that is to be read; what was read leaves it."""
        queue = self._queue
        while queue and (queue[0][2] in self._complete or queue[0][2] not in self._found):
            heappop(queue)
        return queue[0] if queue else None

    def is_unseen(self, file: FoundFile) -> bool:
        """Whether only published records of a file are to be read now."""
        return file.name in self._again

    def through(self, file: FoundFile) -> int | None:
        """Return up to which of its published records a file is to be read now; None: all of it."""
        return self._again.through(file.name)

    def seen(self, file: FoundFile) -> None:
        """Note that the published records of a file were read again up to that one."""
        self._again.seen(file.name)

    def meet(self, file: FoundFile, record: int) -> bool:
        """Note that an event of a file is taken; return whether this query had not taken it."""
        if record <= self._met.get(file.name, 0):
            return False
        self._met[file.name] = record
        return True

    def published(self, file: FoundFile) -> int:
        """Return how many records of a file are published or were returned."""
        return self._records.get(file.name, 0)

    def add_record(self, file: FoundFile, record: int) -> int:
        """Note that a record of a file is returned; return its turn in the order of reading.

        Others may have been read since the records before it: then it begins a part of the file.
        """
        self._records[file.name] = record
        return self._turn(file)

    def refused_from(self, file: FoundFile) -> int:
        """Return the record from which on a file was refused; 0 if it was not."""
        return self._refused.get(file.name, 0)

    def refuse_from(self, file: FoundFile, record: int) -> int:
        """Note that a file is refused from a record on, as `add_record` does.

        None of its records is taken for returned by that.
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
        """Note that a file was read to its end; return whether that has brought anything new."""
        self._again.drop(file.name)
        self._complete.add(file.name)
        self._records.setdefault(file.name, 0)  # one without an event is known by its name too
        return records > self._published_before.pop(file.name, -1)

    @property
    def unread(self) -> int:
        """How many files of the listing were not read to their ends."""
        return len(self._found) - len(self._complete)

    def postpone(self, file: FoundFile) -> None:
        """Read a file again after the next listing; until then its minute stays open."""
        self._again.drop(file.name)
        self._postponed.add(file.name)
        # It is at the head if its turn has come, and behind others if the position names it.
        self._queue = [one for one in self._queue if one[2] != file.name]
        heapify(self._queue)

    def watermark_us(self, listed_us: int) -> int:
        """Return the event time that what follows is after, but for late events.

        Once all files of the listing were read, that depends on its time; before, on the first one
        that was not.
        """
        unread = self._first_unread()
        starts = [] if unread is None else [unread * US_PER_MINUTE]
        return min([listed_us, *starts]) - self._limits.lateness_us

    def close(self, listed_us: int) -> FilesClosedRecord | None:
        """Close the minutes that are over and read; return what leaves the position, if anything.

        `listed_us` is the beginning of the last listing.
        """
        patience_us = self._limits.open_us + _CLOCKS_DIFFER_US
        # What is still to be read may hold copies of what was read, however long ago that was.
        unread = self._first_unread()
        minutes = [] if unread is None else [unread - self._limits.open_minutes]
        first = min([(listed_us - patience_us) // US_PER_MINUTE, *minutes])
        if first <= self.first_open_minute:
            return None
        self.first_open_minute = first
        gone = [name for name in self._records if not self._is_kept(name, first)]
        for name in gone:
            del self._records[name]
            self._met.pop(name, None)
            self._again.drop(name)
        gone += [f"{name}{REFUSED}" for name in gone if self._refused.pop(name, 0)]
        while self._minutes and self._minutes[0][0] < first:
            self._kept.add(heappop(self._minutes)[1])
        for name in self._kept - self._records.keys():
            self._kept.discard(name)
            del self._found[name]
            self._complete.discard(name)
        return FilesClosedRecord(first, tuple(sorted(gone)))

    @property
    def open_since_us(self) -> int:
        """Where the first minute begins with files that were not read, else the first open one."""
        unread = self._first_unread()
        return (self.first_open_minute if unread is None else unread) * US_PER_MINUTE

    def _first_unread(self) -> int | None:
        """Return the minute of the first file that was found and not read; None if there is none.

        A year of minutes has half a million files: none of them is looked at twice.
        """
        first = self._first_queued()
        minutes = [self._found[name].minute for name in self._postponed]
        return min([*minutes, *([] if first is None else [first[0]])], default=None)

    def _is_kept(self, name: str, first: int) -> bool:
        if minute_of_name(name) >= first:
            return True
        found = self._found.get(name)
        return found is not None and self._comes_late(found, first)

    def _comes_late(self, one: FoundFile, first: int) -> bool:
        """Whether a file of a closed minute has to be known by its name, or has to be read."""
        oldest = max(first - self._limits.late_minutes, self._first_minute)
        is_late = one.modified_us > one.end_us + self._limits.open_us
        return is_late and one.minute >= oldest

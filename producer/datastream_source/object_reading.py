"""What is read of one object, and what becomes of it: a state machine, without files or a clock.

`due` says what to do next; its outcome goes into `listed`, `event`, `refused` and `ended`,
which return what the stream partition returns.  Published are the events behind the position that
the query started at, each once; the other ones are read only for their uuids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.producer.core.file_position import SOURCE
from tidegate.producer.datastream.errors import DatastreamError, FileCutShort, FileDenied
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.read_methods import ReadKind
from tidegate.producer.datastream.unified_types import PayloadField
from tidegate.producer.datastream_source.aside import copied_event, refused_event, refused_file
from tidegate.producer.datastream_source.event_records import EventRecords, place_of
from tidegate.producer.datastream_source.event_times import EventTimes
from tidegate.producer.datastream_source.file_figures import Progress
from tidegate.producer.datastream_source.file_ledger import FileLedger
from tidegate.producer.datastream_source.found_file import FoundFile
from tidegate.producer.datastream_source.limits import SourceLimits
from tidegate.producer.datastream_source.object_source import ObjectSource
from tidegate.producer.datastream_source.seen_uuids import SeenUuids
from tidegate.producer.datastream_source.table_settings import TableSettings
from tidegate.producer.records import DataChangeRecord, FilesClosedRecord, HeartbeatRecord
from tidegate.schemas.instants import NS_PER_US

Item: TypeAlias = DataChangeRecord | FilesClosedRecord | HeartbeatRecord
_DEEP_EVERY_US = 600_000_000
"""How often folders of closed minutes are listed for late files."""


@dataclass(frozen=True, slots=True)
class ListFiles:
    """List the files of the minutes from here on, and tell when that began."""

    from_minute: int


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read a file from its beginning, to its end or up to a record that was published."""

    file: FoundFile
    through: int | None = None


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """There is nothing to do before this time of the monotonic clock."""

    until_us: int


Due: TypeAlias = ListFiles | ReadFile | WaitUntil


class ObjectReading:
    """One object from a position on."""

    def __init__(
        self,
        *,
        resumption: Mapping[str, str],
        start_us: int,
        first_minute: int,
        limits: SourceLimits,
        poll_us: int,
        parks: bool,
        tables: TableSettings | None = None,
    ) -> None:
        """Begin behind `start_us`, the watermark; `parks`: what is refused goes aside."""
        self._limits = limits
        self._poll_us = poll_us
        self._parks = parks
        self._tables = tables or TableSettings()
        self._first_minute = first_minute
        self.files = FileLedger(resumption, first_minute=first_minute, limits=limits)
        self._uuids = SeenUuids(limits.uuids_max)
        self._times = EventTimes()
        self._records = EventRecords()
        self.earliest_us = start_us + 1
        """The first time that is open: nothing is returned with a time before it."""
        self.counts: Counter[str] = Counter()
        """`files` that were read to their ends, `late_files`, `events`, `late_events`, `copies` and
        `refused`, since the query began; without what was published before."""
        self._source = ObjectSource(resumption.get(SOURCE, ""), self._tables.servers)
        self._listed_us: int | None = None
        # Intervals are those of the monotonic clock: the wall clock may be set back.
        self._asked_us = 0
        self._next_listing_us = 0
        self._next_deep_us = 0

    @property
    def progress(self) -> Progress | None:
        """How far the object is read; None before the first listing."""
        if self._listed_us is None:
            return None
        return Progress(self.files.unread, self.files.open_since_us)

    @property
    def forgotten_uuids(self) -> int:
        """How many uuids of open files were forgotten, so that their copies are published."""
        return self._uuids.forgotten

    def due(self, now_us: int) -> Due:
        """Return what to do next; the time is that of the monotonic clock."""
        if self._listed_us is not None and (file := self.files.next_file()) is not None:
            return ReadFile(file, self.files.through(file))
        if now_us < self._next_listing_us:
            return WaitUntil(self._next_listing_us)
        self._asked_us = now_us
        first = self.files.first_open_minute
        if now_us >= self._next_deep_us:
            first = max(first - self._limits.late_minutes, self._first_minute)
        return ListFiles(first)

    def listed(self, files: Sequence[FoundFile], *, began_us: int, from_minute: int) -> list[Item]:
        """Take the files of the listing that was due, and began then by the wall clock."""
        self._listed_us = began_us
        self._next_listing_us = self._asked_us + self._poll_us
        if from_minute < self.files.first_open_minute or self._next_deep_us == 0:
            self._next_deep_us = self._asked_us + _DEEP_EVERY_US
        self.counts["late_files"] += len(self.files.add(files))
        return self._progress()

    def event(
        self, file: FoundFile, event: Event, fields: Sequence[PayloadField] | None
    ) -> list[Item]:
        """Take the next event of a file."""
        record = event.position.record
        if not self.files.meet(file, record):
            return []  # its uuid and its release time are known
        event = self._tables.servers.applied(event)
        is_first = self._uuids.add(file.name, event.uuid)
        if record <= self.files.published(file):
            self._release(file, event)  # those of later events depend on it
            return self._learned() if self._source.note(event) else []
        turn = self.files.add_record(file, record)
        learned: list[Item] = []
        try:
            learned = self._require_one_source(event)
            if is_first:
                self._source.require_log(self._tables.log_of(event), event.position)
                applied = self._tables.applied(event)
                return [*learned, self._returned(file, applied, fields, turn)]
        except DatastreamError as error:
            return [*learned, *self._refused(file, record, error, turn)]
        self.counts["copies"] += 1
        return [*learned, copied_event(file, record, earliest_us=self.earliest_us, turn=turn)]

    def refused(self, file: FoundFile, record: int, error: DatastreamError) -> list[Item]:
        """Take what cannot be used of a file; raises the error if nothing is set aside."""
        if record <= self.files.published(file):
            return []
        return self._refused(file, record, error, self.files.add_record(file, record))

    def seen(self, file: FoundFile) -> None:
        """Take that the records of a file were read again up to the one that was due."""
        self.files.seen(file)

    def ended(
        self, file: FoundFile, *, records: int, error: DatastreamError | None = None
    ) -> list[Item]:
        """Take the end of a file after so many records, or what keeps its rest from being read.

        A file that is cut short may still be written: it is read again after the next listing,
        until it has not been written for as long as its folder is open.  So is one that may not be
        read; then its error is raised even if others are set aside, since a right can be granted.
        """
        found: list[Item] = []
        if error is not None:
            patient_until_us = file.modified_us + self._limits.open_us
            is_patient = (self._listed_us or 0) <= patient_until_us
            if isinstance(error, FileDenied) and (self.files.is_unseen(file) or not is_patient):
                raise error
            if isinstance(error, FileCutShort | FileDenied) and is_patient:
                self.files.postpone(file)
                return []
            found = self._refused_from(file, records + 1, error)
        self.counts["files"] += self.files.complete(file, records=records)
        return found + self._progress()

    def _refused(
        self, file: FoundFile, record: int, error: DatastreamError, turn: int
    ) -> list[Item]:
        if not self._parks:
            raise error
        self.counts["refused"] += 1
        return [refused_event(error, file, record, earliest_us=self.earliest_us, turn=turn)]

    def _refused_from(self, file: FoundFile, record: int, error: DatastreamError) -> list[Item]:
        """Return what is set aside of a file's rest: once, however often the file is read."""
        if record <= max(self.files.published(file), self.files.refused_from(file)):
            return []
        if not self._parks:
            raise error
        self.counts["refused"] += 1
        turn = self.files.refuse_from(file, record)
        return [refused_file(error, file, record, earliest_us=self.earliest_us, turn=turn)]

    def _progress(self) -> list[Item]:
        """Return what follows from the files that were read."""
        listed_us = self._listed_us or 0
        found: list[Item] = []
        closed = self.files.close(listed_us)
        if closed is not None:
            self._uuids.close(closed.files)
            found.append(closed)
        self.earliest_us = max(self.earliest_us, self.files.watermark_us(listed_us) + 1)
        return [*found, HeartbeatRecord(self.earliest_us * NS_PER_US)]

    def _returned(
        self, file: FoundFile, event: Event, fields: Sequence[PayloadField] | None, turn: int
    ) -> DataChangeRecord:
        release_us, is_late = self._release(file, event)
        # One whose place is closed, whatever its time, is named late by its record as well.
        first_open_us = max(self.earliest_us, event.source_timestamp_us + 1 if is_late else 0)
        made = self._records.record_of(
            event,
            fields,
            file=file.name,
            release_us=release_us,
            place=place_of(first_open_us, turn),
        )
        self.counts["events"] += 1
        self.counts["late_events"] += is_late
        return made

    def _release(self, file: FoundFile, event: Event) -> tuple[int, bool]:
        """Return when an event is released, and whether it is late; a backfill's row never is."""
        if event.read_method.kind is ReadKind.BACKFILL:
            return self.earliest_us, False
        return self._times.time_of(
            event.order_key,
            event.source_timestamp_us,
            earliest_us=self.earliest_us,
            latest_us=file.end_us,
        )

    def _require_one_source(self, event: Event) -> list[Item]:
        """Raise MixedSources for an event whose order cannot be compared with the others'."""
        return self._learned() if self._source.require(event) else []

    def _learned(self) -> list[Item]:
        """Return what puts the source into the position: its files may leave it."""
        return [FilesClosedRecord(self.files.first_open_minute, (), self._source.stored)]

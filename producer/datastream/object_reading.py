"""The reading of one object: a state machine, without files or a clock.

`due` returns the next action; its outcome goes into `listed`, `event`, `refused` and `ended`, which
return the records of the stream partition.  Events after the position at which the query started
are published, each once; the others are read only for their uuids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tidegate.producer.core.file_position import SOURCE
from tidegate.producer.datastream.errors import (
    DatastreamError,
    FileCutShort,
    FileDenied,
    MixedSources,
    Position,
)
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.event_memory import EventTimes, SeenUuids
from tidegate.producer.datastream.event_records import EventRecords, place_of
from tidegate.producer.datastream.file_ledger import FileLedger, FoundFile, SourceLimits
from tidegate.producer.datastream.metadata import MySqlMetadata
from tidegate.producer.datastream.read_methods import ReadKind
from tidegate.producer.datastream.refused_events import copied_event, refused_event, refused_file
from tidegate.producer.datastream.table_settings import ServerOrder, TableSettings
from tidegate.producer.datastream.unified_types import PayloadField
from tidegate.producer.records import DataChangeRecord, FilesClosedRecord, HeartbeatRecord
from tidegate.schemas.instants import NS_PER_US

_LOGS = "binary logs of MySQL"
_SERVERS = "servers of MySQL, by their GTIDs; after a failover list them in source.servers"


class ObjectSource:
    """The source of an object's events: its kind, and the base name of its binary log, if any.

    Fixed once the first event was read, because order keys of two sources, or of two binary logs of
    MySQL, cannot be compared.  It is stored in the position, because the files that it was learned
    from leave the position.
    """

    def __init__(self, stored: str, servers: ServerOrder | None = None) -> None:
        """`stored` is its text in the position, or empty; `servers` is the order of servers."""
        self._servers = servers or ServerOrder()
        self._kind, _, self._log = stored.partition("/")

    @property
    def stored(self) -> str:
        """Its text in the position: `kind/base name`; empty if nothing is known."""
        return f"{self._kind}/{self._log}" if self._kind else ""

    def note(self, event: Event) -> bool:
        """Learn from an event; return whether it was new."""
        kind, log = self._source_of(event)
        if self._kind not in ("", kind) or (self._kind and (self._log or not log)):
            return False
        self._kind, self._log = kind, log
        return True

    def require(self, event: Event) -> bool:
        """Learn from an event; raises MixedSources if it has no order with earlier ones."""
        kind, log = self._source_of(event)
        if self._kind and kind != self._kind:
            raise MixedSources.at(
                event.position, f"the object has events of {self._kind} and of {kind}"
            )
        self.require_log(log, event.position)
        return self.note(event)

    def require_log(self, log: str, position: Position) -> None:
        """Raise MixedSources for the base name of another binary log than the known one."""
        if log and self._log and log != self._log:
            of_what = _SERVERS if "gtid " in self._log + log else _LOGS
            raise MixedSources.at(
                position, f"the object has events of two {of_what}", logs=[self._log, log]
            )

    def _source_of(self, event: Event) -> tuple[str, str]:
        metadata = event.metadata
        log = ""
        if event.read_method.kind is ReadKind.CDC and isinstance(metadata, MySqlMetadata):
            log = self._servers.log_of(metadata.log_file, metadata.gtid)
        return event.read_method.source.value, log


Item: TypeAlias = DataChangeRecord | FilesClosedRecord | HeartbeatRecord
_DEEP_EVERY_US = 600_000_000
"""How often folders of closed minutes are listed for late files."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of the query of one object."""

    unread: int
    """Number of listed files that were not read to their ends."""
    open_since_us: int
    """Beginning of the first minute with unread files, otherwise of the first open minute."""


@dataclass(frozen=True, slots=True)
class ListFiles:
    """List the files of the minutes from here on, and record when that began."""

    from_minute: int


@dataclass(frozen=True, slots=True)
class ReadFile:
    """Read a file from its beginning, to its end or up to a published record."""

    file: FoundFile
    through: int | None = None


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Wait until this time of the monotonic clock."""

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
        """Start after `start_us`, the watermark; with `parks` refused events are set aside."""
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
        """The first open time: no returned record has an earlier one."""
        self.counts: Counter[str] = Counter()
        """Counts since the query began: `files` read to their ends, `late_files`, `events`,
        `late_events`, `copies` and `refused`; without records that were published before."""
        self._source = ObjectSource(resumption.get(SOURCE, ""), self._tables.servers)
        self._listed_us: int | None = None
        # Intervals use the monotonic clock, because the wall clock may be set back.
        self._asked_us = 0
        self._next_listing_us = 0
        self._next_deep_us = 0

    @property
    def progress(self) -> Progress | None:
        """The progress of reading; None before the first listing."""
        if self._listed_us is None:
            return None
        return Progress(self.files.unread, self.files.open_since_us)

    @property
    def forgotten_uuids(self) -> int:
        """Number of dropped uuids of open files, whose copies will be published."""
        return self._uuids.forgotten

    def due(self, now_us: int) -> Due:
        """Return the next action, at a time of the monotonic clock."""
        if self._listed_us is not None and (file := self.files.next_file()) is not None:
            return ReadFile(file, self.files.rereads.through(file.name))
        if now_us < self._next_listing_us:
            return WaitUntil(self._next_listing_us)
        self._asked_us = now_us
        first = self.files.first_open_minute
        if now_us >= self._next_deep_us:
            first = max(first - self._limits.late_minutes, self._first_minute)
        return ListFiles(first)

    def listed(self, files: Sequence[FoundFile], *, began_us: int, from_minute: int) -> list[Item]:
        """Add the files of the listing that was due, and began then by the wall clock."""
        self._listed_us = began_us
        self._next_listing_us = self._asked_us + self._poll_us
        if from_minute < self.files.first_open_minute or self._next_deep_us == 0:
            self._next_deep_us = self._asked_us + _DEEP_EVERY_US
        self.counts["late_files"] += len(self.files.add(files))
        return self._progress()

    def event(
        self, file: FoundFile, event: Event, fields: Sequence[PayloadField] | None
    ) -> list[Item]:
        """Add the next event of a file; return its records."""
        record = event.position.record
        if not self.files.meet(file, record):
            return []  # its uuid and its release time are recorded
        event = self._tables.servers.applied(event)
        is_first = self._uuids.add(file.name, event.uuid)
        if record <= self.files.published(file):
            self._release(file, event)  # those of later events depend on it
            return self._learned() if self._source.note(event) else []
        turn = self.files.add_record(file, record)
        learned: list[Item] = []
        try:
            learned = self._learned() if self._source.require(event) else []
            if is_first:
                self._source.require_log(self._tables.log_of(event), event.position)
                applied = self._tables.applied(event)
                return [*learned, self._returned(file, applied, fields, turn)]
        except DatastreamError as error:
            return [*learned, *self._refused(file, record, error, turn)]
        self.counts["copies"] += 1
        return [*learned, copied_event(file, record, earliest_us=self.earliest_us, turn=turn)]

    def refused(self, file: FoundFile, record: int, error: DatastreamError) -> list[Item]:
        """Add a record that cannot be used; raises its error if nothing is set aside."""
        if record <= self.files.published(file):
            return []
        return self._refused(file, record, error, self.files.add_record(file, record))

    def note_reread(self, file: FoundFile) -> None:
        """Record that a file was read again up to the due record."""
        self.files.rereads.note_read(file.name)

    def ended(
        self, file: FoundFile, *, records: int, error: DatastreamError | None = None
    ) -> list[Item]:
        """Handle the end of a file after `records` records, or the error that ends its reading.

        A file that is cut short may still be written: it is read again after the next listing,
        until it has not been written for as long as its folder is open.  The same holds for a file
        that may not be read; then its error is raised even if others are set aside, because a right
        can be granted.
        """
        items: list[Item] = []
        if error is not None:
            patient_until_us = file.modified_us + self._limits.open_us
            is_patient = (self._listed_us or 0) <= patient_until_us
            if isinstance(error, FileDenied) and (
                file.name in self.files.rereads or not is_patient
            ):
                raise error
            if isinstance(error, FileCutShort | FileDenied) and is_patient:
                self.files.postpone(file)
                return []
            items = self._refused_from(file, records + 1, error)
        self.counts["files"] += self.files.complete(file, records=records)
        return items + self._progress()

    def _refused(
        self, file: FoundFile, record: int, error: DatastreamError, turn: int
    ) -> list[Item]:
        if not self._parks:
            raise error
        self.counts["refused"] += 1
        return [refused_event(error, file, record, earliest_us=self.earliest_us, turn=turn)]

    def _refused_from(self, file: FoundFile, record: int, error: DatastreamError) -> list[Item]:
        """Set a file's rest aside: once, however often the file is read."""
        if record <= max(self.files.published(file), self.files.refused_from(file)):
            return []
        if not self._parks:
            raise error
        self.counts["refused"] += 1
        turn = self.files.refuse_from(file, record)
        return [refused_file(error, file, record, earliest_us=self.earliest_us, turn=turn)]

    def _progress(self) -> list[Item]:
        """Close minutes and advance the watermark, as far as files were read."""
        listed_us = self._listed_us or 0
        items: list[Item] = []
        closed = self.files.close(listed_us)
        if closed is not None:
            self._uuids.close(closed.files)
            items.append(closed)
        self.earliest_us = max(self.earliest_us, self.files.watermark_us(listed_us) + 1)
        return [*items, HeartbeatRecord(self.earliest_us * NS_PER_US)]

    def _returned(
        self, file: FoundFile, event: Event, fields: Sequence[PayloadField] | None, turn: int
    ) -> DataChangeRecord:
        release_us, is_late = self._release(file, event)
        # An event whose place is closed is named late by its record, whatever its time.
        first_open_us = max(self.earliest_us, event.source_timestamp_us + 1 if is_late else 0)
        record = self._records.record_of(
            event,
            fields,
            file=file.name,
            release_us=release_us,
            place=place_of(first_open_us, turn),
        )
        self.counts["events"] += 1
        self.counts["late_events"] += is_late
        return record

    def _release(self, file: FoundFile, event: Event) -> tuple[int, bool]:
        """Return the release time of an event, and whether it is late; backfilled rows are not."""
        if event.read_method.kind is ReadKind.BACKFILL:
            return self.earliest_us, False
        return self._times.time_of(
            event.order_key,
            event.source_timestamp_us,
            earliest_us=self.earliest_us,
            latest_us=file.end_us,
        )

    def _learned(self) -> list[Item]:
        """Return the record that stores the source in the position: its files may leave it."""
        return [FilesClosedRecord(self.files.first_open_minute, (), self._source.stored)]

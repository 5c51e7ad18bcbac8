"""The query of one object's files, which reads what `object_reading` decides and never ends.

Files are listed and read in threads, in portions, because both may block.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import structlog

from tidegate.producer.datastream.errors import DatastreamError, FileDenied, Position
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_ledger import US_PER_MINUTE, FoundFile
from tidegate.producer.datastream.file_limits import LARGE_BYTES, LargeRead
from tidegate.producer.datastream.file_store import FileStore, PathMissing
from tidegate.producer.datastream.listing import files_from
from tidegate.producer.datastream.object_reading import (
    Item,
    ListFiles,
    ObjectReading,
    Progress,
    ReadFile,
    WaitUntil,
)
from tidegate.producer.datastream.waiting_query import WaitingQuery, record_bytes
from tidegate.producer.ports import Clock, Tasks
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339


class FileFigures:
    """The figures of all objects that one worker reads: counts since its start, and progress.

    Queries report from threads, and metrics are set from the loop: every method is thread-safe.
    Events that are read again after a restart or an aborted transaction are counted again.
    """

    def __init__(self) -> None:
        """Start with all counts at 0."""
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._progress: dict[object, Progress] = {}

    def add(self, counts: Mapping[str, int]) -> None:
        """Add a query's counts since its last report, by the names of `ObjectReading.counts`."""
        with self._lock:
            self._counts.update(counts)

    def report(self, query: object, progress: Progress) -> None:
        """Set the progress of a query, until `forget`."""
        with self._lock:
            self._progress[query] = progress

    def forget(self, query: object) -> None:
        """Remove a query that has ended."""
        with self._lock:
            self._progress.pop(query, None)

    def counts(self) -> dict[str, int]:
        """Return the counts by name."""
        with self._lock:
            return dict(self._counts)

    def progress(self) -> Progress | None:
        """Return the unread files of all queries and the earliest open minute; None without any."""
        with self._lock:
            queries = list(self._progress.values())
        if not queries:
            return None
        return Progress(
            sum(query.unread for query in queries), min(query.open_since_us for query in queries)
        )


_PORTION_EVENTS = 200
_COPIES = 8
"""Factor for a message that is being decoded: the bytes, the values, the record and its texts."""
_LISTING_STEP_US = 1_000_000
"""The time of one step of a listing, after which the query returns heartbeats."""
_WARNED = ("late_files", "late_events", "refused", "forgotten_uuids")
_LOGGED = ("files", "events", "copies")
_LOG_EVERY_US = 60_000_000
_log = structlog.get_logger()


class _Reading:
    """A file that is being read."""

    def __init__(self, file: FoundFile, through: int | None, stream: BinaryIO) -> None:
        self.file = file
        self.through = through
        self.records = 0
        self._stream = stream
        self._opened: EventFile | None = None
        self._events: Iterator[Event | DatastreamError | LargeRead] = iter(())

    @property
    def fields(self) -> Any:
        return None if self._opened is None else self._opened.fields

    @property
    def held_bytes(self) -> int:
        return 0 if self._opened is None else self._opened.held_bytes

    def next(self) -> Event | DatastreamError | LargeRead | None:
        """Return the next event, its error, or the announcement of a large read; None at the end.

        Raises an error that ends the file.
        """
        if self._opened is None:
            self._opened = EventFile(self.file.path, self._stream)
            self._events = self._opened.each()
        item = next(self._events, None)
        if item is not None and not isinstance(item, LargeRead):
            self.records = _record_of(item)
        return item

    def close(self) -> None:
        self._stream.close()


@dataclass(frozen=True, slots=True)
class _Listing:
    """An unfinished listing."""

    began_us: int
    """By the wall clock."""
    from_minute: int
    rest: Iterator[list[FoundFile]]
    files: list[FoundFile] = field(default_factory=list)


class ObjectQuery(WaitingQuery):
    """The files of one object, from a position on."""

    def __init__(
        self,
        store: FileStore,
        folder: str,
        reading: ObjectReading,
        *,
        tasks: Tasks,
        clock: Clock,
        heartbeat_ms: int,
        figures: FileFigures | None = None,
    ) -> None:
        """Prepare to read; nothing is listed before the first `next_size`."""
        super().__init__(tasks=tasks, clock=clock, heartbeat_ms=heartbeat_ms)
        self._store = store
        self._folder = folder
        self._reading = reading
        self._figures = figures or FileFigures()
        self._open: _Reading | None = None
        self._listing: _Listing | None = None
        self._announced = 0
        """Bytes of the next large read."""
        self._counted: Counter[str] = Counter()
        """Counts already added to the figures."""
        self._logged: Counter[str] = Counter()
        self._logged_us = 0

    @property
    def earliest_us(self) -> int:
        """The first time that is open."""
        return self._reading.earliest_us

    @property
    def needed_bytes(self) -> int:
        """Bytes that the next read may hold; listing and waiting need none."""
        if self._open is None:
            return 0
        return _COPIES * max(self._announced, self._open.held_bytes, LARGE_BYTES)

    @property
    def held_bytes(self) -> int:
        """The block of the open file that is being read."""
        return 0 if self._open is None else self._open.held_bytes

    def step(self) -> tuple[list[Item], int]:
        """Do the due step; return its records, or until when there is nothing to do."""
        done = self._step()
        self._count()
        return done

    def _step(self) -> tuple[list[Item], int]:
        if self._open is not None:
            return self._portion(self._open), 0
        if self._listing is not None:
            return self._list_on(self._listing), 0
        match self._reading.due(self.clock.monotonic_us()):
            case WaitUntil(until_us=until_us):
                return [], until_us
            case ListFiles(from_minute=from_minute):
                now_us = self.clock.wall_us()
                rest = files_from(
                    self._store, self._folder,
                    from_minute=from_minute, now_minute=now_us // US_PER_MINUTE,
                )  # fmt: skip
                return self._list_on(_Listing(now_us, from_minute, rest)), 0
            case ReadFile(file=file, through=through):
                try:
                    stream = self._store.open(file.path)
                except PathMissing:
                    return self._removed(file, records=self._reading.files.published(file)), 0
                except ConfigError as error:
                    return self._denied(file, error, records=0), 0
                self._open = _Reading(file, through, stream)
                return [], 0

    def stop(self) -> None:
        """Close the file that is being read."""
        self._close()
        self._listing = None
        self._figures.forget(self)

    def _list_on(self, listing: _Listing) -> list[Item]:
        """List for a while; return the records that follow once the listing is complete."""
        self._listing = None  # a failed listing is not complete
        until_us = self.clock.monotonic_us() + _LISTING_STEP_US
        for files in listing.rest:
            listing.files.extend(files)
            if self.clock.monotonic_us() >= until_us:
                self._listing = listing
                return []
        items = self._reading.listed(
            listing.files, began_us=listing.began_us, from_minute=listing.from_minute
        )
        self._log(self.clock.monotonic_us())
        return items

    def _portion(self, open_file: _Reading) -> list[Item]:
        items: list[Item] = []
        size = 0
        file, reading = open_file.file, self._reading
        self._announced = 0
        try:
            for _ in range(_PORTION_EVENTS):
                if open_file.through is not None and open_file.records >= open_file.through:
                    reading.note_reread(file)
                    self._close()
                    return items
                item = open_file.next()
                if item is None:
                    items += reading.ended(file, records=open_file.records)
                    self._close()
                    return items
                if isinstance(item, LargeRead):
                    self._announced = item.bytes
                    return items
                if isinstance(item, DatastreamError):
                    read_items = reading.refused(file, open_file.records, item)
                else:
                    read_items = reading.event(file, item, open_file.fields)
                items += read_items
                size += sum(map(record_bytes, read_items))
                if size > LARGE_BYTES:
                    return items
        except PathMissing:
            self._close()
            return items + self._removed(file, records=open_file.records)
        except ConfigError as error:
            self._close()
            return items + self._denied(file, error, records=open_file.records)
        except DatastreamError as error:
            self._close()
            return items + self._refused(file, error, records=open_file.records)
        return items

    def _removed(self, file: FoundFile, *, records: int) -> list[Item]:
        """Handle a file that was removed; raises LocationGone if all files are gone.

        All files may come back, and this one would count as read.
        """
        self._store.files_below(file.path.rpartition("/")[0])
        _log.warning("file is gone", file=file.path)
        return self._reading.ended(file, records=records)

    def _denied(self, file: FoundFile, error: ConfigError, *, records: int) -> list[Item]:
        """Handle a file that may not be read; raises ConfigError if its folder may not either."""
        self._store.files_below(file.path.rpartition("/")[0])
        position = Position(file.path, records)
        denied = FileDenied.at(position, "the file may not be read", cause=error.message)
        return self._refused(file, denied, records=records)

    def _refused(self, file: FoundFile, error: DatastreamError, *, records: int) -> list[Item]:
        """Handle an error that ends a file, or that stops the stream partition."""
        try:
            return self._reading.ended(file, records=records, error=error)
        except DatastreamError as stopping:
            self.fail_with(stopping)
            return []

    def _counts(self) -> Counter[str]:
        return self._reading.counts + Counter(forgotten_uuids=self._reading.forgotten_uuids)

    def _count(self) -> None:
        """Report the counts since the last report."""
        counts = self._counts()
        if counts != self._counted:
            self._figures.add(counts - self._counted)
            self._counted = counts
        if (progress := self._reading.progress) is not None:
            self._figures.report(self, progress)

    def _log(self, now_us: int) -> None:
        """Log the counts since the last line; log those that may need an operator at once."""
        counts = self._counts()
        news = counts - self._logged
        if warned := {name: news[name] for name in _WARNED if news[name]}:
            _log.warning("events or files were late", folder=self._folder, **warned)
            self._logged.update(warned)
        progress = self._reading.progress
        is_due = now_us >= self._logged_us + _LOG_EVERY_US
        if progress is not None and news["files"] and is_due:
            _log.info(
                "files were read", folder=self._folder,
                **{name: news[name] for name in _LOGGED}, unread=progress.unread,
                open_since=format_rfc3339(progress.open_since_us * NS_PER_US),
            )  # fmt: skip
            self._logged.update({name: news[name] for name in _LOGGED})
            self._logged_us = now_us

    def _close(self) -> None:
        self._announced = 0
        if self._open is not None:
            with closing(self._open):
                self._open = None


def _record_of(item: Event | DatastreamError) -> int:
    if isinstance(item, DatastreamError):
        return int(str(item.fields["record"]))
    return item.position.record

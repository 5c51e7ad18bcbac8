"""Datastream's files as a change stream and its catalogue: `ports.ChangeStream`, `ports.Catalogue`.

A query needs more than its start: the files in the position, which `resumed` provides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegate.producer.backfill.stream import Announcement
from tidegate.producer.datastream.file_ledger import US_PER_MINUTE, SourceLimits
from tidegate.producer.datastream.file_store import FileStore
from tidegate.producer.datastream.object_query import FileFigures, ObjectQuery
from tidegate.producer.datastream.object_reading import ObjectReading
from tidegate.producer.datastream.objects_query import (
    ObjectsQuery,
    object_of,
    objects_minute,
    objects_token,
)
from tidegate.producer.datastream.table_settings import TableSettings
from tidegate.producer.description import StreamDescription
from tidegate.producer.errors import TokenRefused
from tidegate.producer.ports import Clock, RunningQuery, Tasks
from tidegate.producer.translation.catalogues import require_other_name
from tidegate.schemas.errors import invariant
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import ROOT_TOKEN

FILES_DIALECT = "DATASTREAM"
"""The dialect of a stream of files, in `StreamStarted`."""


class FilesCatalogue:
    """Knows no table before its events, which have the columns; port: `ports.Catalogue`."""

    def describe(self, stream: str) -> StreamDescription:
        """Return the stream, which accepts each table that appears."""
        return StreamDescription(
            name=stream,
            dialect=FILES_DIALECT,
            exists=True,
            others=(stream,),
            watches_all=True,
            options={},
            tables=(),
        )

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:  # noqa: ARG002 - see the port
        """Return None: the columns of a table come with its records.

        Raises SchemaError for a table with a name of rows on demand, which files do not have.
        """
        require_other_name(name)
        return None


_US_PER_MS = 1_000


@dataclass(frozen=True, slots=True)
class DatastreamFiles:
    """The files below a location; immutable, so any thread may query."""

    store: FileStore
    location: str
    """The folder in the store."""
    tasks: Tasks
    clock: Clock
    limits: SourceLimits = field(default_factory=SourceLimits)
    poll_ms: int = 10_000
    """How often the files of an object are listed; objects are listed a sixth as often."""
    parks: bool = False
    """Whether events that cannot be published go to the dead-letter topic."""
    tables: TableSettings = field(default_factory=TableSettings)
    figures: FileFigures = field(default_factory=FileFigures)
    """The figures of all queries."""
    resumption: Mapping[str, str] = field(default_factory=dict)

    def resumed(self, resumption: Mapping[str, str]) -> DatastreamFiles:
        """Return the source for a query that starts at a position."""
        return replace(self, resumption=resumption)

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> RunningQuery:
        """Prepare a query, which has no end: the settings reject one for a stream of files."""
        invariant(end_ns is None, "a query of files has an end", token=token)
        start_us, poll_us = start_ns // NS_PER_US, self.poll_ms * _US_PER_MS
        if token == ROOT_TOKEN:
            child = ChildPartition(objects_token(start_us // US_PER_MINUTE), (), start_ns)
            return Announcement(child)
        first_minute = objects_minute(token)
        if first_minute is not None:
            return ObjectsQuery(
                self.store,
                self.location,
                named=self.resumption,
                start_us=start_us,
                first_minute=first_minute,
                lateness_us=self.limits.lateness_us,
                poll_us=6 * poll_us,
                tasks=self.tasks,
                clock=self.clock,
                heartbeat_ms=heartbeat_ms,
            )
        place = object_of(token)
        if place is None:
            raise TokenRefused(
                "the stream has begun with another source than Datastream's files",
                code="INVALID_ARGUMENT",
                token=token,
            )
        first_minute, folder = place
        reading = ObjectReading(
            resumption=self.resumption,
            start_us=start_us,
            first_minute=first_minute,
            limits=self.limits,
            poll_us=poll_us,
            parks=self.parks,
            tables=self.tables,
        )
        return ObjectQuery(
            self.store,
            f"{self.location}/{folder}".rstrip("/"),
            reading,
            tasks=self.tasks,
            clock=self.clock,
            heartbeat_ms=heartbeat_ms,
            figures=self.figures,
        )

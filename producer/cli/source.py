"""The source of a worker: a change stream of Spanner, or the files of a Datastream stream."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.producer.backfill.stream import BackfillStream
from tidegate.producer.cli.stream_settings import (
    backfill_tables,
    filter_of,
    require_mode,
    require_names,
)
from tidegate.producer.config import ProducerConfig
from tidegate.producer.datastream.file_ledger import SourceLimits
from tidegate.producer.datastream.file_store import open_location
from tidegate.producer.datastream.stream import DatastreamFiles, FilesCatalogue
from tidegate.producer.datastream.table_settings import LaterBackfill, ServerOrder, TableSettings
from tidegate.producer.description import StreamDescription
from tidegate.producer.driver.runtime import SystemClock, TaskThread
from tidegate.producer.ports import Catalogue, ChangeStream
from tidegate.producer.spanner.catalogue import SpannerCatalogue, TablesAt
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.checks import validate_stream
from tidegate.producer.spanner.forms import form_of
from tidegate.producer.spanner.stream import QueryOptions, SpannerChangeStream
from tidegate.producer.spanner.table_reads import SpannerTableReads
from tidegate.producer.spanner.transport.endpoint import Tls
from tidegate.producer.translation.catalogues import FilteredCatalogue, require_other_names
from tidegate.schemas.instants import US_PER_MS, US_PER_SECOND

if TYPE_CHECKING:
    from tidegate.producer.source_config import FilesSource


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """A source of changes and its reader; it has answered once."""

    stream: ChangeStream
    catalogue: Catalogue
    description: StreamDescription
    tasks: TaskThread
    """The tasks in which queries of the stream are read."""
    start_ns: int | None = None
    """Start of a stream that has not begun, in nanoseconds since 1970; None: when it begins."""
    channels: SpannerChannels | None = None
    """Connections to Spanner; None for files."""
    query_options: QueryOptions = field(default_factory=QueryOptions)
    """Options that queries and reads send to Spanner."""

    def close(self) -> None:
        """Close the connections and open files."""
        if self.channels is not None:
            self.channels.close()
        self.tasks.close()


def open_files(config: ProducerConfig, files: FilesSource) -> OpenedSource:
    """Return the source, which the caller closes; its location was listed once.

    Raises ConfigError and UnreachableError for a location without access.
    """
    store, location = open_location(files.location, setting="source.location")
    store.entries(location)
    catalogue, tasks = FilesCatalogue(), TaskThread()
    return OpenedSource(
        stream=DatastreamFiles(
            store,
            location.rstrip("/"),
            tasks,
            SystemClock(),
            limits=SourceLimits(
                open_minutes=files.open_minutes,
                lateness_us=files.lateness_seconds * US_PER_SECOND,
                late_hours=files.late_hours,
                uuids_max=files.uuids_max,
            ),
            poll_ms=files.poll_seconds * US_PER_SECOND // US_PER_MS,
            parks=config.poison == "park",
            tables=TableSettings(
                keys={table: tuple(columns) for table, columns in files.keys.items()},
                backfills={
                    table: LaterBackfill(place.since_us, place.log)
                    for table, place in files.backfills.items()
                },
                servers=ServerOrder.of(files.servers),
            ),
        ),
        catalogue=catalogue,
        description=catalogue.describe(config.change_stream),
        tasks=tasks,
        start_ns=config.start_ns,
    )


def channels_to(config: ProducerConfig) -> SpannerChannels:
    """Return connections to the database of the settings, which the caller closes."""
    return SpannerChannels(
        database=config.database_path,
        emulator_host=config.plaintext_host,
        database_role=config.database_role,
        endpoint=config.spanner_endpoint,
        credentials_file=str(config.credentials_file or ""),
        tls=Tls(
            ca_file=str(config.spanner_ca_file or ""),
            client_cert=str(config.spanner_client_cert or ""),
            client_key=str(config.spanner_client_key or ""),
        ),
        query_transport=config.query_transport,
    )


def open_spanner(config: ProducerConfig, *, has_begun: bool, has_dead_letter: bool) -> OpenedSource:
    """Return the change stream of the settings, which the caller closes.

    `has_begun` says whether Tidegate has recorded a start of it: `config.start` applies only before
    that.  Raises ConfigError for settings that do not match the stream or its tables,
    UnreachableError if Spanner does not answer.
    """
    with ExitStack() as exits:
        channels = channels_to(config)
        spanner = SpannerCatalogue(channels)
        catalogue: Catalogue = spanner
        record_filter = filter_of(config)
        if not record_filter.is_empty:
            catalogue = FilteredCatalogue(catalogue, record_filter, is_new=not has_begun)
        tasks = TaskThread()
        exits.callback(tasks.close)
        exits.callback(channels.close)
        options = QueryOptions(
            priority=config.rpc_priority.upper(),
            tag=config.request_tag,
            replicas=config.replicas,
        )
        description, stream, start_ns = validate_stream(
            catalogue,
            lambda described: SpannerChangeStream(
                channels,
                form_of(described.dialect, described.partition_mode, described.name),
                options,
            ),
            run_task=tasks.run,
            name=config.change_stream,
            start_ns=None if has_begun else config.start_ns,
            now_ns=spanner.now_ns,
            has_begun=has_begun,
        )
        require_mode(config, description, has_dead_letter=has_dead_letter)
        if not has_begun:  # a later table that cannot be published affects only its own records
            names = config.topic_names
            for table in description.tables:
                names.data(table.name)  # a table without a topic is rejected by name
            require_other_names(description.tables)
            require_names(config, description)
        # Only the initial query reads them, and one of these tables may have been dropped since.
        published = (table.name for table in description.tables)
        backfilled = () if has_begun else backfill_tables(config, published)
        exits.pop_all()
    tables = TablesAt(catalogue, stream=config.change_stream, tasks=tasks)
    reads = SpannerTableReads(channels, tables, options)
    return OpenedSource(
        stream=BackfillStream(stream, reads, tables=backfilled),
        catalogue=catalogue,
        description=description,
        tasks=tasks,
        start_ns=start_ns,
        channels=channels,
        query_options=options,
    )

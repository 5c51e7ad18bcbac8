"""Opens the files of a Datastream stream as the source of a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.producer.commands.opened_source import OpenedSource
from tidegate.producer.datastream.file_store import open_location
from tidegate.producer.datastream_source.description import FilesCatalogue
from tidegate.producer.datastream_source.limits import SourceLimits
from tidegate.producer.datastream_source.server_order import ServerOrder
from tidegate.producer.datastream_source.stream import DatastreamFiles
from tidegate.producer.datastream_source.table_settings import LaterBackfill, TableSettings
from tidegate.producer.driver.clock import SystemClock
from tidegate.producer.driver.tasks import TaskThread
from tidegate.schemas.instants import US_PER_MS, US_PER_SECOND

if TYPE_CHECKING:
    from tidegate.producer.config import ProducerConfig
    from tidegate.producer.source_config import FilesSource


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
                    table: LaterBackfill(one.since_us, one.log)
                    for table, one in files.backfills.items()
                },
                servers=ServerOrder.of(files.servers),
            ),
        ),
        catalogue=catalogue,
        description=catalogue.describe(config.change_stream),
        tasks=tasks,
        start_ns=config.start_ns,
    )

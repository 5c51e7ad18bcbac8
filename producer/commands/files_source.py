"""Opens the files of a Datastream stream as the source of a worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegate.producer.datastream.file_store import open_location
from tidegate.producer.datastream_source.description import FilesCatalogue
from tidegate.producer.datastream_source.limits import SourceLimits
from tidegate.producer.datastream_source.stream import DatastreamFiles
from tidegate.producer.driver.clock import SystemClock
from tidegate.schemas.instants import US_PER_MS, US_PER_SECOND

if TYPE_CHECKING:
    from tidegate.producer.config import ProducerConfig
    from tidegate.producer.description import StreamDescription
    from tidegate.producer.ports import Tasks
    from tidegate.producer.source_config import FilesSource

__all__ = ["NoChannels", "OpenedFiles", "open_files"]


class NoChannels:
    """Stands for connections where there are none."""

    def close(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class OpenedFiles:
    """A location that was listed once."""

    stream: DatastreamFiles
    catalogue: FilesCatalogue
    description: StreamDescription


def open_files(config: ProducerConfig, files: FilesSource, *, tasks: Tasks) -> OpenedFiles:
    """Return the source; raises ConfigError and UnreachableError for a location without access."""
    store, location = open_location(files.location, setting="source.location")
    store.entries(location)
    catalogue = FilesCatalogue()
    return OpenedFiles(
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
        ),
        catalogue=catalogue,
        description=catalogue.describe(config.change_stream),
    )

"""The source of a worker after it was opened: a change stream of Spanner, or files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tidegate.producer.description import StreamDescription
from tidegate.producer.driver.tasks import TaskThread
from tidegate.producer.ports import Catalogue, ChangeStream
from tidegate.producer.spanner.query_options import QueryOptions

if TYPE_CHECKING:
    from tidegate.producer.spanner.channel import SpannerChannels


@dataclass(frozen=True, slots=True)
class OpenedSource:
    """What changes are read from, and by what; it has answered once."""

    stream: ChangeStream
    catalogue: Catalogue
    description: StreamDescription
    tasks: TaskThread
    """What queries of the stream are read by."""
    start_ns: int | None = None
    """Where a stream that has not begun starts, in nanoseconds since 1970; None: when it does."""
    channels: SpannerChannels | None = None
    """Connections to Spanner; None for files."""
    query_options: QueryOptions = field(default_factory=QueryOptions)
    """What queries and reads say of themselves to Spanner."""

    def close(self) -> None:
        """End the connections, and what was read from them."""
        if self.channels is not None:
            self.channels.close()
        self.tasks.close()

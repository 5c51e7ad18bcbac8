"""Which source the events of an object are of: known for good once the first was read.

Order keys of two sources, or of two binary logs of MySQL, cannot be compared.  What is known stands
in the position, since the files that it was learned from leave it.  Pure.
"""

from __future__ import annotations

from tidegate.producer.datastream.errors import MixedSources
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.metadata import MySqlMetadata
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.read_methods import ReadKind
from tidegate.producer.datastream_source.server_order import ServerOrder

_LOGS = "binary logs of MySQL"
_SERVERS = "servers of MySQL, by their GTIDs; after a failover list them in source.servers"


class ObjectSource:
    """The kind of an object's source, and the base name of its binary log, if it has one."""

    def __init__(self, stored: str, servers: ServerOrder | None = None) -> None:
        """`stored`: what a position says of it, or empty; `servers`: which follow one another."""
        self._servers = servers or ServerOrder()
        self._kind, _, self._log = stored.partition("/")

    @property
    def stored(self) -> str:
        """What a position says of it: `kind/base name`; empty if nothing is known."""
        return f"{self._kind}/{self._log}" if self._kind else ""

    def note(self, event: Event) -> bool:
        """Learn from an event what is not known; return whether that was anything."""
        kind, log = self._source_of(event)
        if self._kind not in ("", kind) or (self._kind and (self._log or not log)):
            return False
        self._kind, self._log = kind, log
        return True

    def require(self, event: Event) -> bool:
        """Note an event; raises MixedSources if its order cannot be compared with the others'."""
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

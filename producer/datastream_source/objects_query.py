"""Names the objects of a location as stream partitions, those that appear later too."""

from __future__ import annotations

from collections.abc import Collection

from tidegate.producer.datastream.errors import MisplacedFile
from tidegate.producer.datastream.file_store import FileStore
from tidegate.producer.datastream.file_tree import object_folders
from tidegate.producer.datastream.position import Position, printable
from tidegate.producer.datastream.store_errors import PathMissing
from tidegate.producer.datastream_source.tokens import object_token
from tidegate.producer.datastream_source.waiting_query import WaitingQuery
from tidegate.producer.ports import Clock, Tasks
from tidegate.producer.records import HeartbeatRecord, PartitionStartRecord
from tidegate.schemas.instants import NS_PER_US


class ObjectsQuery(WaitingQuery):
    """Lists the folders of objects; each is named once, also after a restart."""

    def __init__(
        self,
        store: FileStore,
        location: str,
        *,
        named: Collection[str],
        start_us: int,
        first_minute: int,
        lateness_us: int,
        poll_us: int,
        tasks: Tasks,
        clock: Clock,
        heartbeat_ms: int,
    ) -> None:
        """`named` are the tokens that the position has."""
        super().__init__(tasks=tasks, clock=clock, heartbeat_ms=heartbeat_ms)
        self._store = store
        self._location = location
        self._named = set(named)
        self._first_minute = first_minute
        self._lateness_us = lateness_us
        self._poll_us = poll_us
        self._earliest_us = start_us + 1
        self._next_us = 0

    @property
    def earliest_us(self) -> int:
        """The first time that is open: objects that are named later begin there."""
        return self._earliest_us

    def step(self) -> tuple[list[PartitionStartRecord | HeartbeatRecord], int]:
        """List the folders, if that is due.

        Raises MisplacedFile for one whose name no token can have.
        """
        asked_us, now_us = self.clock.monotonic_us(), self.clock.wall_us()
        if asked_us < self._next_us:
            return [], self._next_us
        tokens = [object_token(self._first_minute, one) for one in self._folders()]
        found: list[PartitionStartRecord | HeartbeatRecord] = [
            PartitionStartRecord(self._earliest_us * NS_PER_US, "0", (token,))
            for token in tokens
            if token not in self._named
        ]
        self._named.update(tokens)
        self._next_us = asked_us + self._poll_us
        self._earliest_us = max(self._earliest_us, now_us - self._lateness_us + 1)
        return [*found, HeartbeatRecord(self._earliest_us * NS_PER_US)], 0

    def _folders(self) -> list[str]:
        try:
            folders = object_folders(self._store, self._location)
        except PathMissing:
            return []  # a bucket has no folder without a file
        names = [one.removeprefix(self._location).strip("/") for one in folders]
        for name in names:
            if printable(name) != name:
                raise MisplacedFile.at(
                    Position(printable(name), 0),
                    "the folder of an object has a name that is not UTF-8",
                )
        return names

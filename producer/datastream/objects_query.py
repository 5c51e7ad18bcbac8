"""The stream partitions of a Datastream source, their tokens, and the query that names objects.

    initial query ─► objects              lists the folders of objects, without an end
    objects       ─► object/<folder>      reads the files of one object, without an end

Each token contains the first minute whose files are read: the minute of the stream's start.  A
folder is named by its path below the location, so a location may move with its files.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tidegate.producer.core.file_position import FILES_PREFIX
from tidegate.producer.datastream.errors import MisplacedFile, Position, printable
from tidegate.producer.datastream.file_store import FileStore, PathMissing
from tidegate.producer.datastream.listing import object_folders
from tidegate.producer.datastream.waiting_query import WaitingQuery
from tidegate.producer.ports import Clock, Tasks
from tidegate.producer.records import HeartbeatRecord, PartitionStartRecord
from tidegate.schemas.instants import NS_PER_US

_OBJECTS = re.compile(rf"{FILES_PREFIX}objects/([0-9]+)")
_OBJECT = re.compile(rf"{FILES_PREFIX}object/([0-9]+)/(.*)", re.DOTALL)


def objects_token(first_minute: int) -> str:
    """Return the token of the stream partition that names the objects' stream partitions."""
    return f"{FILES_PREFIX}objects/{first_minute}"


def objects_minute(token: str) -> int | None:
    """Return the first minute of that token; None for any other token."""
    match = _OBJECTS.fullmatch(token)
    return None if match is None else int(match[1])


def object_token(first_minute: int, folder: str) -> str:
    """Return the token of an object; `folder` is empty if the location is the only object's."""
    return f"{FILES_PREFIX}object/{first_minute}/{folder}"


def object_of(token: str) -> tuple[int, str] | None:
    """Return (first minute, folder) of an object's token; None for any other token."""
    match = _OBJECT.fullmatch(token)
    return None if match is None else (int(match[1]), match[2])


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
        """`named` are the tokens in the position."""
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
        """The first open time: objects that are named later begin there."""
        return self._earliest_us

    def step(self) -> tuple[list[PartitionStartRecord | HeartbeatRecord], int]:
        """List the folders, if that is due.

        Raises MisplacedFile for a folder whose name does not fit a token.
        """
        asked_us, now_us = self.clock.monotonic_us(), self.clock.wall_us()
        if asked_us < self._next_us:
            return [], self._next_us
        tokens = [object_token(self._first_minute, folder) for folder in self._folders()]
        records: list[PartitionStartRecord | HeartbeatRecord] = [
            PartitionStartRecord(self._earliest_us * NS_PER_US, "0", (token,))
            for token in tokens
            if token not in self._named
        ]
        self._named.update(tokens)
        self._next_us = asked_us + self._poll_us
        self._earliest_us = max(self._earliest_us, now_us - self._lateness_us + 1)
        return [*records, HeartbeatRecord(self._earliest_us * NS_PER_US)], 0

    def _folders(self) -> list[str]:
        try:
            folders = object_folders(self._store, self._location)
        except PathMissing:
            return []  # a bucket has no folder without a file
        names = [folder.removeprefix(self._location).strip("/") for folder in folders]
        for name in names:
            if printable(name) != name:
                raise MisplacedFile.at(
                    Position(printable(name), 0),
                    "the folder of an object has a name that is not UTF-8",
                )
        return names

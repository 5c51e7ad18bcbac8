"""Requests of operators for backfills while the stream runs: one for each table.

They are in a compacted topic, as JSON under the table's name; the newest record of a table holds.
A program writes them; workers only read.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tidegate.producer.backfill.table_run import RunChunk, RunWait
from tidegate.producer.records import PartitionStartRecord
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US

CHUNK_ROWS_DEFAULT = 5_000
SHARE_DEFAULT = 20
_NO_REQUEST = "a record is no request for a backfill"


class RunState(StrEnum):
    """The state that a run is to have."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Nothing is read until it runs again, from where it is."""
    CANCELLED = "cancelled"
    """It ends where it is."""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The newest run of a table, with its state and its limits."""

    table: str
    run: int
    parent: str
    """The stream partition of the change stream that announces the run."""
    start_us: int
    """The commit time at which it does so."""
    state: RunState = RunState.RUNNING
    chunk_rows: int = CHUNK_ROWS_DEFAULT
    """Rows of a chunk, at most."""
    share: int = SHARE_DEFAULT
    """Percent of the time in which the watermark may be held for a chunk, until it is committed."""
    by: str = ""
    """The person who asked for it; for people only."""
    at_us: int = 0
    """When it was written, by the clock of the program that wrote it."""
    where: str = ""
    """The condition that rows have to meet; it holds for the whole run.  Empty: all rows."""
    data_boost: bool = False
    """Whether rows are read by Spanner's Data Boost, in the whole run."""

    @property
    def start(self) -> PartitionStartRecord:
        """The record that announces the run, as the parent has it among its changes."""
        wait = RunWait(self.run, self.table, where=self.where, is_boosted=self.data_boost)
        return PartitionStartRecord(self.start_us * NS_PER_US, f"{self.run:08d}", (wait.token,))

    def pause_ns(self, held_ns: int) -> int:
        """Return how long to wait after a chunk for which the watermark was held that long."""
        return held_ns * (100 - self.share) // self.share

    def encode(self) -> bytes:
        """Return the record's value."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, value: bytes) -> TableRequest:
        """Return the request that a record's value holds; raises SchemaError for any other.

        Fields of later versions are passed over.
        """
        try:
            content: dict[str, Any] = json.loads(value)
            known = {name: content[name] for name in cls.__slots__ if name in content}
            request = cls(**{**known, "state": RunState(known.get("state", RunState.RUNNING))})
        except (ValueError, TypeError) as error:
            raise SchemaError(_NO_REQUEST, cause=str(error)) from error
        texts: tuple[object, ...] = (request.table, request.parent, request.where)
        numbers: tuple[object, ...] = (
            request.run, request.start_us, request.chunk_rows, request.share,
        )  # fmt: skip
        is_flag = isinstance(request.data_boost, bool)
        are_texts = all(isinstance(text, str) for text in texts)
        are_numbers = all(isinstance(number, int) and number > 0 for number in numbers)
        if not (is_flag and are_texts and are_numbers):
            raise SchemaError(_NO_REQUEST, value=str(content)[:200])
        return request


class TableRequests:
    """The newest request of each table; for any number of threads."""

    def __init__(self, requests: Iterable[TableRequest] = ()) -> None:
        self._lock = threading.Lock()
        self._by_table: dict[str, TableRequest] = {}
        self._by_parent: dict[str, tuple[TableRequest, ...]] = {}
        for request in requests:
            self.add(request)

    def add(self, request: TableRequest) -> None:
        """Take the next record; an older run of its table does not come back."""
        with self._lock:
            known = self._by_table.get(request.table)
            if known is not None and known.run > request.run:
                return
            self._by_table[request.table] = request
            by_parent: dict[str, tuple[TableRequest, ...]] = {}
            for newest in self._by_table.values():
                by_parent[newest.parent] = (*by_parent.get(newest.parent, ()), newest)
            self._by_parent = by_parent

    @property
    def all(self) -> list[TableRequest]:
        """One for each table, by its name."""
        with self._lock:
            return [self._by_table[table] for table in sorted(self._by_table)]

    def newest(self, table: str) -> TableRequest | None:
        """Return the request of a table; None without one."""
        return self._by_table.get(table)

    def announced_by(self, token: str) -> tuple[TableRequest, ...]:
        """Return the requests whose runs a stream partition announces."""
        return self._by_parent.get(token, ())

    def must_end(self, place: RunWait | RunChunk) -> bool:
        """Whether a run is to end: it was cancelled, or there is a later one of its table."""
        newest = self.newest(place.table)
        if newest is None or newest.run < place.run:
            return False
        return newest.run > place.run or newest.state is RunState.CANCELLED

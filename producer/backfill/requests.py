"""Requests of operators for backfills while the stream runs: one for each table.

They are in a compacted topic, as JSON under the table's name; the newest record of a table applies.
A program writes them; workers only read them.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tidegate.producer.backfill.read_partition import is_number
from tidegate.producer.backfill.table_run import RunChunk, RunWait
from tidegate.producer.records import PartitionStartRecord
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US

CHUNK_ROWS_DEFAULT = 5_000
SHARE_DEFAULT = 20
_START_US_MAX = ((1 << 63) - 1) // NS_PER_US
"""The last time that a progress record can hold."""
_NO_REQUEST = "a record is no request for a backfill"


class RunState(StrEnum):
    """The requested state of a run."""

    RUNNING = "running"
    STOPPED = "stopped"
    """Nothing is read until it runs again, from where it stopped."""
    CANCELLED = "cancelled"
    """It ends without reading more."""


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The newest run of a table, with its state and its limits."""

    table: str
    run: int
    parent: str
    """The stream partition of the change stream that announces the run."""
    start_us: int
    """The commit time of the announcement."""
    state: RunState = RunState.RUNNING
    chunk_rows: int = CHUNK_ROWS_DEFAULT
    """The most rows of a chunk."""
    share: int = SHARE_DEFAULT
    """Percentage of the time in which chunks may hold the watermark, until they are committed."""
    by: str = ""
    """The operator who requested it; for information only."""
    at_us: int = 0
    """When it was written, by the clock of the program that wrote it."""
    where: str = ""
    """The condition for rows, the same for the whole run; empty: all rows."""
    data_boost: bool = False
    """Whether Spanner's Data Boost reads the rows, for the whole run."""

    @property
    def start(self) -> PartitionStartRecord:
        """The record that announces the run, among the parent's changes."""
        wait = RunWait(self.run, self.table, where=self.where, is_boosted=self.data_boost)
        return PartitionStartRecord(self.start_us * NS_PER_US, f"{self.run:08d}", (wait.token,))

    def pause_ns(self, held_ns: int) -> int:
        """Return the pause after a chunk that held the watermark for that long."""
        return held_ns * (100 - self.share) // self.share

    def encode(self) -> bytes:
        """Return the record's value."""
        return json.dumps(asdict(self), ensure_ascii=False).encode()

    @classmethod
    def decode(cls, value: bytes) -> TableRequest:
        """Parse the request in a record's value; raises SchemaError for any other value.

        Fields of later versions are ignored.
        """
        try:
            content: dict[str, Any] = json.loads(value)
            fields = {name: content[name] for name in cls.__slots__ if name in content}
            request = cls(**{**fields, "state": RunState(fields.get("state", RunState.RUNNING))})
        except (ValueError, TypeError, RecursionError) as error:
            raise SchemaError(_NO_REQUEST, cause=str(error)) from error
        texts: tuple[object, ...] = (request.table, request.parent, request.where, request.by)
        numbers = (request.run, request.start_us, request.chunk_rows, request.share)
        is_flag = isinstance(request.data_boost, bool)
        are_texts = all(isinstance(text, str) for text in texts)
        are_numbers = all(is_number(number) and number > 0 for number in numbers)
        is_time = is_number(request.at_us) and are_numbers and request.start_us <= _START_US_MAX
        if not (is_flag and are_texts and is_time):
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
        """Add the next record; an older run of its table is ignored."""
        with self._lock:
            former = self._by_table.get(request.table)
            if former is not None and former.run > request.run:
                return
            self._by_table[request.table] = request
            by_parent: dict[str, tuple[TableRequest, ...]] = {}
            for newest in self._by_table.values():
                by_parent[newest.parent] = (*by_parent.get(newest.parent, ()), newest)
            self._by_parent = by_parent

    @property
    def all(self) -> list[TableRequest]:
        """The newest request of each table, by the table's name."""
        with self._lock:
            return [self._by_table[table] for table in sorted(self._by_table)]

    def newest(self, table: str) -> TableRequest | None:
        """Return the request of a table; None if there is none."""
        return self._by_table.get(table)

    def announced_by(self, token: str) -> tuple[TableRequest, ...]:
        """Return the requests whose runs a stream partition announces."""
        return self._by_parent.get(token, ())

    def must_end(self, place: RunWait | RunChunk) -> bool:
        """Whether a run has to end: it was cancelled, or its table has a later one."""
        newest = self.newest(place.table)
        if newest is None or newest.run < place.run:
            return False
        return newest.run > place.run or newest.state is RunState.CANCELLED

"""A change stream that begins with the rows of some tables: wraps a `ports.ChangeStream`.

The initial query plans the read partitions and returns them in place of the change stream's stream
partitions; `read_partition` describes what follows.  Without a backfill, and for every token that
does not belong to one, the change stream itself answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidegate.producer.backfill.read_partition import (
    READ_PARTITIONS_MAX,
    REST,
    KeyRanges,
    ReadPartition,
    done_token,
    parents_of_rest,
    read_partitions,
    read_token,
    reading_of,
)
from tidegate.producer.ports import ChangeStream, Response, RunningQuery
from tidegate.producer.records import (
    ChildPartitionsRecord,
    HeartbeatRecord,
    PartitionStartRecord,
    StreamRecord,
)
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.progress import ChildPartition
from tidegate.schemas.topics import ROOT_TOKEN

_RESPONSE_BYTES = 64
"""The size that counts for a response without rows."""


class TableReads(Protocol):
    """Reads of tables at one time, in the order of their keys; nothing blocks."""

    def keys(self, table: str, ranges: KeyRanges, *, read_ns: int) -> RunningQuery:
        """Prepare a read that adds a table's keys to `ranges` and returns no record."""
        ...

    def rows(self, part: ReadPartition, *, read_ns: int) -> RunningQuery:
        """Prepare a read of a key range, whose records are INSERTs committed at `read_ns`.

        A row has the same place in the same record whenever the range is read again.  Raises, at
        its end, SchemaError if the number of rows differs from the plan.
        """
        ...


class BackfillStream:
    """The rows of `tables` at the stream's start, then the change stream from there on."""

    def __init__(
        self, stream: ChangeStream, reads: TableReads, *, tables: Sequence[str] = ()
    ) -> None:
        """Only the initial query uses `tables`: later ones follow from their tokens."""
        self._stream = stream
        self._reads = reads
        self._tables = tuple(tables)

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> RunningQuery:
        """Prepare a query; its first `next_size` sends it."""
        if token == ROOT_TOKEN and self._tables:
            return _Planning(self._reads, self._tables, read_ns=start_ns)
        if token == REST:
            query = self._stream.query(
                token=ROOT_TOKEN, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=heartbeat_ms
            )
            return _Adopted(query, parent=REST)
        if (parents := parents_of_rest(token)) is not None:
            return Announcement(ChildPartition(REST, parents, start_ns))
        if (part := reading_of(token)) is not None:
            done = ChildPartition(done_token(part), (token,), next_us_ns(start_ns))
            return _Followed(self._reads.rows(part, read_ns=start_ns), done)
        return self._stream.query(
            token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=heartbeat_ms
        )


def whole_us_ns(at_ns: int) -> int:
    """Return a time that Kafka's records can hold exactly."""
    return at_ns // NS_PER_US * NS_PER_US


def next_us_ns(read_ns: int) -> int:
    """Return the first commit time after a read: commit times are whole microseconds."""
    return (read_ns // NS_PER_US + 1) * NS_PER_US


class OwnResponse:
    """A response with given records, which Tidegate makes itself."""

    size_bytes = _RESPONSE_BYTES

    def __init__(self, *records: StreamRecord) -> None:
        self._records = records

    def decode(self) -> tuple[list[StreamRecord], int]:
        """Return the records; nothing stays unfinished."""
        return list(self._records), 0


class ReplacedResponse:
    """A response whose records are replaced when they are decoded."""

    def __init__(
        self, response: Response, replace: Callable[[list[StreamRecord]], list[StreamRecord]]
    ) -> None:
        self._response = response
        self._replace = replace
        self.size_bytes = response.size_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        """Return the records in their place."""
        records, unfinished = self._response.decode()
        return self._replace(records), unfinished


class Announcement:
    """A query that names children, all with one start, and ends."""

    def __init__(self, *children: ChildPartition) -> None:
        record = ChildPartitionsRecord(children[0].start_ns, "0", children)
        self._left = [OwnResponse(record)]

    async def next_size(self) -> int | None:
        """Return the size of the only response; None once it was received."""
        return _RESPONSE_BYTES if self._left else None

    async def receive(self) -> Response:
        """Return the children's announcement."""
        return self._left.pop()

    def cancel(self) -> None:
        """End the query."""
        self._left.clear()


class _Followed:
    """The read of a key range, which names its child when it has ended without error."""

    def __init__(self, read: RunningQuery, child: ChildPartition) -> None:
        self._read = read
        self._announcing = Announcement(child)
        self._has_ended = False

    async def next_size(self) -> int | None:
        if not self._has_ended:
            size = await self._read.next_size()
            if size is not None:
                return size
            self._has_ended = True
        return await self._announcing.next_size()

    async def receive(self) -> Response:
        return await (self._announcing if self._has_ended else self._read).receive()

    def cancel(self) -> None:
        self._announcing.cancel()
        self._read.cancel()


class _Adopted:
    """The change stream's initial query, whose stream partitions get another parent."""

    def __init__(self, query: RunningQuery, *, parent: str) -> None:
        self._query = query
        self._parents = (parent,)
        self.next_size = query.next_size
        self.cancel = query.cancel

    async def receive(self) -> Response:
        response = await self._query.receive()
        return ReplacedResponse(response, lambda records: [*map(self._adopted, records)])

    def _adopted(self, record: StreamRecord) -> StreamRecord:
        if isinstance(record, ChildPartitionsRecord):
            names = [child.token for child in record.children]
        elif isinstance(record, PartitionStartRecord):
            names = list(record.tokens)
        else:
            return record
        children = tuple(ChildPartition(name, self._parents, record.start_ns) for name in names)
        return ChildPartitionsRecord(record.start_ns, record.record_sequence, children)


class _Planning:
    """Reads the keys of all tables, then names the read partitions."""

    def __init__(self, reads: TableReads, tables: Sequence[str], *, read_ns: int) -> None:
        self._read_ns = read_ns
        self._ranges = {
            table: KeyRanges(ranges_max=max(1, READ_PARTITIONS_MAX // len(tables)))
            for table in tables
        }
        self._queries = [
            reads.keys(table, ranges, read_ns=read_ns) for table, ranges in self._ranges.items()
        ]
        self._announcing: Announcement | None = None

    async def next_size(self) -> int | None:
        while self._queries:
            size = await self._queries[0].next_size()
            if size is not None:
                return size
            del self._queries[0]
        if self._announcing is None:
            self._announcing = Announcement(*self._children())
        return await self._announcing.next_size()

    async def receive(self) -> Response:
        if self._announcing is not None:
            return await self._announcing.receive()
        # A silent query would count as stalled.
        alive = HeartbeatRecord(self._read_ns)
        response = await self._queries[0].receive()
        return ReplacedResponse(response, lambda records: [*records, alive])

    def cancel(self) -> None:
        for query in self._queries:
            query.cancel()

    def _children(self) -> tuple[ChildPartition, ...]:
        parts = read_partitions(self._ranges.items())
        if not parts:
            return (ChildPartition(REST, (), next_us_ns(self._read_ns)),)
        return tuple(ChildPartition(read_token(part), (), self._read_ns) for part in parts)

"""A change stream that begins with the rows of some tables: `ports.ChangeStream` around another.

The initial query plans the read partitions and returns them in place of the change stream's own
stream partitions; `read_partition` says what follows.  Without a backfill, and for every token that
is not of one, the change stream itself answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidegate.producer.backfill.read_partition import (
    REST,
    ReadPartition,
    done_token,
    parents_of_rest,
    read_token,
    reading_of,
)
from tidegate.producer.backfill.read_plan import READ_PARTITIONS_MAX, KeyRanges, read_partitions
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

_ANNOUNCEMENT_BYTES = 64
"""What a response without anything but lineage counts for."""


class TableReads(Protocol):
    """Reads of tables as they were at one time, in the order of their keys; nothing blocks."""

    def keys(self, table: str, ranges: KeyRanges, *, read_ns: int) -> RunningQuery:
        """Prepare a read that adds a table's keys to `ranges` and returns no record."""
        ...

    def rows(self, one: ReadPartition, *, read_ns: int) -> RunningQuery:
        """Prepare a read of a key range, whose records are INSERTs committed at `read_ns`.

        A row has its place in the same record whenever the same range is read.  Raises, at its end,
        SchemaError if there were not as many rows as planned.
        """
        ...


class BackfillStream:
    """The rows of `tables` as of the stream's start, then the change stream from there on."""

    def __init__(
        self, stream: ChangeStream, reads: TableReads, *, tables: Sequence[str] = ()
    ) -> None:
        """`tables` matter to the initial query alone: later ones follow from their tokens."""
        self._stream = stream
        self._reads = reads
        self._tables = tuple(tables)

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> RunningQuery:
        """Prepare a query, which its first `next_size` sends."""

        def of_the_stream(parent: str) -> RunningQuery:
            query = self._stream.query(
                token=ROOT_TOKEN, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=heartbeat_ms
            )
            return _Adopted(query, parent=parent)

        if token == ROOT_TOKEN and self._tables:
            return _Planning(self._reads, self._tables, read_ns=start_ns)
        if token == REST:
            return of_the_stream(REST)
        if (parents := parents_of_rest(token)) is not None:
            return _Announcing(ChildPartition(REST, parents, start_ns))
        if (one := reading_of(token)) is not None:
            done = ChildPartition(done_token(one), (token,), _next(start_ns))
            return _Followed(self._reads.rows(one, read_ns=start_ns), done)
        return self._stream.query(
            token=token, start_ns=start_ns, end_ns=end_ns, heartbeat_ms=heartbeat_ms
        )


def _next(read_ns: int) -> int:
    """Return where changes begin that a read does not show: commit times are whole microseconds."""
    return (read_ns // NS_PER_US + 1) * NS_PER_US


class _Response:
    """A response with records of our own, beside those of the one that it stands for."""

    def __init__(self, *records: StreamRecord, of: Response | None = None) -> None:
        self._records = records
        self._of = of
        self.size_bytes = _ANNOUNCEMENT_BYTES if of is None else of.size_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        found, unfinished = ([], 0) if self._of is None else self._of.decode()
        return [*found, *self._records], unfinished


class _Mapped:
    """A response whose records are replaced."""

    def __init__(self, response: Response, replace: Callable[[StreamRecord], StreamRecord]) -> None:
        self._response = response
        self._replace = replace
        self.size_bytes = response.size_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        records, unfinished = self._response.decode()
        return [self._replace(one) for one in records], unfinished


class _Announcing:
    """A query that names children, all with one start, and ends."""

    def __init__(self, *children: ChildPartition) -> None:
        record = ChildPartitionsRecord(children[0].start_ns, "0", children)
        self._left = [_Response(record)]

    async def next_size(self) -> int | None:
        return _ANNOUNCEMENT_BYTES if self._left else None

    async def receive(self) -> Response:
        return self._left.pop()

    def cancel(self) -> None:
        self._left.clear()


class _Followed:
    """The read of a key range; once it has ended without error, its child is named."""

    def __init__(self, read: RunningQuery, child: ChildPartition) -> None:
        self._read = read
        self._announcing = _Announcing(child)
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
    """The change stream's initial query, whose stream partitions become children of another one."""

    def __init__(self, query: RunningQuery, *, parent: str) -> None:
        self._query = query
        self._parents = (parent,)

    async def next_size(self) -> int | None:
        return await self._query.next_size()

    async def receive(self) -> Response:
        return _Mapped(await self._query.receive(), self._adopted)

    def cancel(self) -> None:
        self._query.cancel()

    def _adopted(self, record: StreamRecord) -> StreamRecord:
        if isinstance(record, ChildPartitionsRecord):
            names = [child.token for child in record.children]
        elif isinstance(record, PartitionStartRecord):
            names = list(record.tokens)
        else:
            return record
        children = tuple(ChildPartition(one, self._parents, record.start_ns) for one in names)
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
        self._announcing: _Announcing | None = None

    async def next_size(self) -> int | None:
        while self._queries:
            size = await self._queries[0].next_size()
            if size is not None:
                return size
            del self._queries[0]
        if self._announcing is None:
            self._announcing = _Announcing(*self._children())
        return await self._announcing.next_size()

    async def receive(self) -> Response:
        if self._announcing is not None:
            return await self._announcing.receive()
        # A query that says nothing would be taken for one that hangs.
        alive = HeartbeatRecord(self._read_ns)
        return _Response(alive, of=await self._queries[0].receive())

    def cancel(self) -> None:
        for query in self._queries:
            query.cancel()

    def _children(self) -> tuple[ChildPartition, ...]:
        found = read_partitions(self._ranges.items())
        if not found:
            return (ChildPartition(REST, (), _next(self._read_ns)),)
        return tuple(ChildPartition(read_token(one), (), self._read_ns) for one in found)

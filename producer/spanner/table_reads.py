"""Reads of whole tables on Spanner's API, at one time; implements `backfill.stream.TableReads`."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from google.cloud.spanner_v1.types import (
    ExecuteSqlRequest,
    PartitionReadRequest,
    ReadRequest,
    TypeCode,
)

from tidegate.producer.backfill.read_partition import Key, KeyRanges, ReadPartition
from tidegate.producer.backfill.table_run import RunChunk
from tidegate.producer.errors import ConditionRefused, QueryError, QueryRefused
from tidegate.producer.ports import Response, RunningQuery
from tidegate.producer.records import DataChangeRecord, RecordColumn, StreamRecord
from tidegate.producer.spanner.catalogue import SpannerCatalogue, TablesAt
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.chunk_sql import chunk_query, unordered_key
from tidegate.producer.spanner.decoding.response import Decoder
from tidegate.producer.spanner.stream import QueryOptions, SpannerQuery
from tidegate.producer.spanner.table_rows import (
    BoostedDecoder,
    ChunkDecoder,
    KeysDecoder,
    RowsDecoder,
)
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339
from tidegate.schemas.tables import Column, TableSchema

if TYPE_CHECKING:
    import grpc
    from google.protobuf.struct_pb2 import ListValue, Value


class _Keys(RunningQuery, Protocol):
    """A read of a chunk's keys, which is like the read of its rows."""

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]: ...


class _KeysResponse:
    """A response with keys: none of its records is published; port: `ports.Response`."""

    def __init__(self, response: Response, decoder: BoostedDecoder) -> None:
        self._response = response
        self._decoder = decoder
        self.size_bytes = response.size_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        records, unfinished = self._response.decode()
        self._decoder.expect(records)
        return [], unfinished


class BoostedChunk:
    """A read of one chunk: `backfill.chunk_query.ChunkRows`; its `rest` returns all records."""

    def __init__(
        self,
        keys: _Keys,
        decoder: BoostedDecoder,
        cut: Callable[[Key], Awaitable[Iterable[RunningQuery]]],
    ) -> None:
        """Read `keys` first; `cut` returns the shares of the rows up to a key, for `decoder`."""
        self._keys = keys
        self._decoder = decoder
        self._cut = cut
        self._query: RunningQuery = keys
        self._shares: deque[RunningQuery] | None = None
        self._is_cancelled = False

    async def next_size(self) -> int | None:
        """As `ports.RunningQuery`."""
        while (size := await self._query.next_size()) is None:
            if self._is_cancelled or not await self._go_on():
                return None
        return size

    async def receive(self) -> Response:
        """As `ports.RunningQuery`."""
        response = await self._query.receive()
        return _KeysResponse(response, self._decoder) if self._shares is None else response

    def cancel(self) -> None:
        """As `ports.RunningQuery`."""
        self._is_cancelled = True
        self._query.cancel()

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return all records, in the order of their keys, and the last key of a full chunk.

        Raises SchemaError unless the shares had exactly one row for each key.
        """
        return self._decoder.rest()

    async def _go_on(self) -> bool:
        """Continue with the next share; return False after the last one."""
        if self._shares is None:
            self._decoder.expect(self._keys.rest()[0])
            last = self._decoder.last_key
            self._shares = deque(() if last is None else await self._cut(last))
        if not self._shares:
            return False
        self._query = self._shares.popleft()
        if self._is_cancelled:  # while it was cut
            self._query.cancel()
        return True


_FACTOR = 8
"""Memory of a message until it is decoded and translated, itself included, relative to its size."""

_CUT_TIMEOUT_S = 60.0
"""Deadline of a request for the shares of a read."""
_TOO_OLD = re.compile("read timestamp|staleness|version_retention|garbage", re.IGNORECASE)
_KEPT_NS = 1_800_000_000_000
"""Half of the shortest retention period: every database keeps old rows longer."""
_CONDITION_CODES = {"INVALID_ARGUMENT", "OUT_OF_RANGE"}
"""Codes with which Spanner rejects the text of a query, or a value that it computes."""


class SpannerTableReads:
    """Reads of the tables that a change stream watches, with the columns of that time."""

    def __init__(
        self, channels: SpannerChannels, tables: TablesAt, options: QueryOptions | None = None
    ) -> None:
        self._channels = channels
        self._tables = tables
        self._options = options or QueryOptions()

    def keys(self, table: str, ranges: KeyRanges, *, read_ns: int) -> RunningQuery:
        """Prepare a read of all keys."""

        def query(schema: TableSchema) -> SpannerQuery:
            columns = schema.key_columns
            request = self._request(table, columns, read_ns=read_ns)
            request.key_set.all_ = True
            return self._query(request, KeysDecoder(ranges, width=len(columns)), read_ns=read_ns)

        return _OfTable(lambda: self._table(table, read_ns), query)

    def rows(self, partition: ReadPartition, *, read_ns: int) -> RunningQuery:
        """Prepare a read of the rows of a key range."""

        def query(schema: TableSchema) -> SpannerQuery:
            columns = _read_columns(schema)
            request = self._request(partition.table, columns, read_ns=read_ns)
            bounds = request.key_set.ranges.add()
            _set_key(
                bounds.start_closed if partition.after is None else bounds.start_open,
                partition.after,
            )
            _set_key(bounds.end_closed, partition.through)
            return self._query(
                request, RowsDecoder(partition, columns, read_ns=read_ns), read_ns=read_ns
            )

        return _OfTable(lambda: self._table(partition.table, read_ns), query)

    async def _table(self, name: str, read_ns: int) -> TableSchema:
        try:
            table = await self._tables.table(name, read_ns=read_ns)
        except QueryError as error:
            raise _explained(error) from error
        if table is None:
            raise SchemaError(
                "a table of the backfill does not exist any more",
                hint="Start a new stream (tidegate-producer reset), without the table",
                table=name,
            )
        return table

    def _request(self, table: str, columns: Iterable[Column], *, read_ns: int) -> Any:
        request = ReadRequest.pb()(table=table, columns=[column.name for column in columns])
        request.transaction.single_use.read_only.read_timestamp.FromNanoseconds(read_ns)
        self._options.apply(request)
        return request

    def _query(self, request: Any, decoder: Decoder, *, read_ns: int) -> SpannerQuery:
        return _TableQuery(
            self._channels,
            request,
            decoder,
            {"table": request.table, "read_timestamp": format_rfc3339(read_ns)},
            factor=_FACTOR,
        )


class SpannerChunkReads:
    """Reads of chunks on Spanner's API: `backfill.chunk_query.ChunkReads`."""

    def __init__(
        self, channels: SpannerChannels, tables: TablesAt, options: QueryOptions | None = None
    ) -> None:
        self._channels = channels
        self._tables = tables
        self._options = options or QueryOptions()
        self._catalogue = SpannerCatalogue(channels)

    async def chunk(self, place: RunChunk) -> ChunkQuery | BoostedChunk | None:
        """Prepare a read of the rows of a chunk; None if the table does not exist.

        Raises ConditionRefused for a condition on a table whose keys SQL cannot compare.
        """
        table = await self._tables.table(place.table, read_ns=place.read_ns)
        if table is None:
            return None
        columns = _read_columns(table)
        interval = {"table": place.table, "read_timestamp": format_rfc3339(place.read_ns)}
        if place.where:
            request = await self._sql(place, table, columns)
            decoder = ChunkDecoder(place, columns)
            return ConditionQuery(self._channels, request, decoder, interval)
        if place.is_boosted:
            keys = self._limited(place, table.key_columns, interval)
            boosted = BoostedDecoder(place, columns)
            return BoostedChunk(keys, boosted, lambda last: self._shares(place, last, boosted))
        return self._limited(place, columns, interval)

    def _limited(
        self, place: RunChunk, columns: Sequence[Column], interval: dict[str, str]
    ) -> ChunkQuery:
        """Return the read of the chunk's number of next rows."""
        request = _range_read(ReadRequest, place, columns, last=None)
        request.limit = place.rows
        request.transaction.single_use.read_only.read_timestamp.FromNanoseconds(place.read_ns)
        self._options.apply(request)
        return ChunkQuery(self._channels, request, ChunkDecoder(place, columns), interval)

    async def _shares(
        self, place: RunChunk, last: Key, decoder: BoostedDecoder
    ) -> list[RunningQuery]:
        """Return the reads of the shares of a chunk up to its last key, in one transaction."""
        cut_request = _range_read(PartitionReadRequest, place, decoder.columns, last=last)
        cut_request.transaction.begin.read_only.read_timestamp.FromNanoseconds(place.read_ns)
        interval = {"table": place.table, "read_timestamp": format_rfc3339(place.read_ns)}
        try:
            cut = await self._tables.in_thread(
                lambda: self._channels.partition_read(cut_request, timeout_s=_CUT_TIMEOUT_S)
            )
        except QueryError as error:
            raise _explained_boost(error) from error
        shares: list[RunningQuery] = []
        for share in cut.partitions:
            request = _range_read(ReadRequest, place, decoder.columns, last=last)
            request.transaction.id = cut.transaction.id
            request.partition_token = share.partition_token
            request.data_boost_enabled = True
            self._options.apply(request)
            shares.append(_BoostedQuery(self._channels, request, decoder, interval, factor=_FACTOR))
        return shares

    async def _sql(self, place: RunChunk, table: TableSchema, columns: Iterable[Column]) -> Any:
        """Return the query of a chunk whose rows have to meet a condition."""
        if (wrong := unordered_key(table)) is not None:
            message = f"the key column {wrong.name} has the type {wrong.type.code}"
            raise ConditionRefused(message, details=message, table=place.table)
        order = await self._tables.in_thread(
            lambda: self._catalogue.key_order(place.table, read_ns=place.read_ns)
        )
        query = chunk_query(
            table, order, [column.name for column in columns],
            after=place.after, where=place.where, rows=place.rows,
        )  # fmt: skip
        request = ExecuteSqlRequest.pb()(sql=query.sql)
        request.transaction.single_use.read_only.read_timestamp.FromNanoseconds(place.read_ns)
        self._options.apply(request)
        for name, (code, value) in query.parameters.items():
            _set_value(request.params.fields[name], value)
            request.param_types[name].code = getattr(TypeCode, code)
        return request


class _TableQuery(SpannerQuery):
    """A query like that of a change stream, with the errors of a read."""

    method = "StreamingRead"

    def _failed(self, error: grpc.RpcError, session: str) -> QueryError:
        fields: dict[str, Any] = dict(self._interval)
        return _explained(
            self._channels.failed(error, session, action="read a table from Spanner", **fields)
        )


class _BoostedQuery(_TableQuery):
    """The read of a share of a chunk."""

    def _failed(self, error: grpc.RpcError, session: str) -> QueryError:
        return _explained_boost(super()._failed(error, session))


class _OfTable:
    """A query that is prepared once its table is known: `ports.RunningQuery`."""

    def __init__(
        self,
        table: Callable[[], Awaitable[TableSchema]],
        make: Callable[[TableSchema], SpannerQuery],
    ) -> None:
        self._table = table
        self._make = make
        self._query: SpannerQuery | None = None
        self._is_cancelled = False

    async def next_size(self) -> int | None:
        if self._query is None:
            self._query = self._make(await self._table())
            if self._is_cancelled:
                self._query.cancel()
        return await self._query.next_size()

    async def receive(self) -> Response:
        assert self._query is not None, "`next_size` comes first"  # noqa: S101 - see the port
        return await self._query.receive()

    def cancel(self) -> None:
        self._is_cancelled = True
        if self._query is not None:
            self._query.cancel()


class ChunkQuery(_TableQuery):
    """The read of a chunk: `backfill.chunk_query.ChunkRows`."""

    def __init__(
        self,
        channels: SpannerChannels,
        request: Any,
        decoder: ChunkDecoder,
        interval: dict[str, str],
    ) -> None:
        super().__init__(channels, request, decoder, interval, factor=_FACTOR)
        self._chunk = decoder

    def rest(self) -> tuple[list[DataChangeRecord], Key | None]:
        """Return, once the query has ended, the records of the last rows, and the last key."""
        return self._chunk.rest()


class ConditionQuery(ChunkQuery):
    """The read of a chunk whose rows have to meet a condition, as a query in SQL."""

    method = "ExecuteStreamingSql"

    def _failed(self, error: grpc.RpcError, session: str) -> QueryError:
        failed = super()._failed(error, session)
        is_too_old = failed.code == "OUT_OF_RANGE" and self._may_be_too_old(failed)
        if failed.code not in _CONDITION_CODES or is_too_old:
            return failed
        fields: dict[str, Any] = failed.fields
        return ConditionRefused("a condition cannot be evaluated", **fields)

    def _may_be_too_old(self, failed: QueryError) -> bool:
        """Whether rows of this time may be gone; the message alone may contain values of a row."""
        read_at = self._request.transaction.single_use.read_only.read_timestamp
        is_young = time.time_ns() - read_at.ToNanoseconds() < _KEPT_NS
        return not is_young and _TOO_OLD.search(str(failed.fields.get("details", ""))) is not None


def _read_columns(table: TableSchema) -> list[Column]:
    return [
        column for column in table.columns if column.is_watched or column.key_position is not None
    ]


def _explained(error: QueryError) -> QueryError:
    """Return the error, with the fix if rows of that time are no longer kept."""
    details = str(error.fields.get("details", ""))
    if error.code not in ("FAILED_PRECONDITION", "OUT_OF_RANGE") or not _TOO_OLD.search(details):
        return error
    hint = (
        "The backfill took longer than Spanner keeps old rows: raise the database's "
        "version_retention_period (up to 7 days), and begin again (tidegate-producer reset)"
    )
    return QueryRefused(error.message, hint=hint, **error.fields)


def _explained_boost(error: QueryError) -> QueryError:
    """Return the error, with the permissions that only Data Boost needs if one is missing."""
    if error.code != "PERMISSION_DENIED":
        return error
    hint = (
        "For --data-boost grant the worker's account spanner.databases.useDataBoost and "
        "spanner.databases.partitionRead (roles/spanner.databaseReaderWithDataBoost); or cancel "
        "the run, and begin another without --data-boost"
    )
    return QueryRefused(error.message, hint=hint, **error.fields)


def _range_read(
    kind: Any, place: RunChunk, columns: Iterable[Column | RecordColumn], *, last: Key | None
) -> Any:
    """Return a request for the rows of a chunk, up to a key or, without a key, the table's end."""
    request = kind.pb()(table=place.table, columns=[column.name for column in columns])
    bounds = request.key_set.ranges.add()
    _set_key(bounds.start_closed if place.after is None else bounds.start_open, place.after)
    _set_key(bounds.end_closed, last)
    return request


def _set_key(target: ListValue, key: Key | None) -> None:
    """Set a bound; without a value it is the beginning or the end of the table."""
    target.SetInParent()
    for part in key or ():
        _set_value(target.values.add(), part)


def _set_value(target: Value, part: str | float | bool | None) -> None:  # noqa: FBT001 - a value
    match part:
        case None:
            target.null_value = 0
        case bool():
            target.bool_value = part
        case str():
            target.string_value = part
        case _:
            target.number_value = part

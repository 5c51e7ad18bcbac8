"""Reads of whole tables on Spanner's API, at one time: `backfill.stream.TableReads`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from google.cloud.spanner_v1.types import ReadRequest

from tidegate.producer.errors import QueryRefused
from tidegate.producer.spanner.query_options import QueryOptions
from tidegate.producer.spanner.stream import SpannerQuery
from tidegate.producer.spanner.table_rows import ChunkDecoder, KeysDecoder, RowsDecoder
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import grpc
    from google.protobuf.struct_pb2 import ListValue

    from tidegate.producer.backfill.read_partition import Key, ReadPartition
    from tidegate.producer.backfill.read_plan import KeyRanges
    from tidegate.producer.backfill.table_run import RunPlace
    from tidegate.producer.errors import QueryError
    from tidegate.producer.records import DataChangeRecord
    from tidegate.producer.spanner.channel import SpannerChannels
    from tidegate.producer.spanner.forms import Decoder
    from tidegate.schemas.tables import Column, TableSchema

__all__ = ["ChunkQuery", "SpannerChunkReads", "SpannerTableReads"]

_FACTOR = 8
"""What a message takes until it is decoded and translated, itself included, by its size."""

_TOO_OLD = re.compile("read timestamp|staleness|version_retention|garbage", re.IGNORECASE)


class SpannerTableReads:
    """Reads of the tables that a change stream watches: `tables` returns one as it is now."""

    def __init__(
        self,
        channels: SpannerChannels,
        tables: Callable[[str], TableSchema | None],
        options: QueryOptions | None = None,
    ) -> None:
        self._channels = channels
        self._tables = tables
        self._options = options or QueryOptions()

    def keys(self, table: str, ranges: KeyRanges, *, read_ns: int) -> SpannerQuery:
        """Prepare a read of all keys."""
        columns = self._table(table).key_columns
        request = self._request(table, columns, read_ns=read_ns)
        request.key_set.all_ = True
        return self._query(request, KeysDecoder(ranges, width=len(columns)), read_ns=read_ns)

    def rows(self, one: ReadPartition, *, read_ns: int) -> SpannerQuery:
        """Prepare a read of the rows of a key range."""
        columns = [
            column
            for column in self._table(one.table).columns
            if column.is_watched or column.key_position is not None
        ]
        request = self._request(one.table, columns, read_ns=read_ns)
        bounds = request.key_set.ranges.add()
        _set_key(bounds.start_closed if one.after is None else bounds.start_open, one.after)
        _set_key(bounds.end_closed, one.through)
        return self._query(request, RowsDecoder(one, columns, read_ns=read_ns), read_ns=read_ns)

    def _table(self, name: str) -> TableSchema:
        found = self._tables(name)
        if found is None:
            message = "a table of the backfill does not exist any more"
            hint = "Start a new stream (tidegate-producer reset), without the table"
            raise SchemaError(message, hint=hint, table=name)
        return found

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
    """Reads of chunks on Spanner's API: `backfill.on_demand.ChunkReads`.

    `table` returns a table as it is now, and may block for as long as a query of the catalogue
    takes; `in_thread` runs it beside the other queries.
    """

    def __init__(
        self,
        channels: SpannerChannels,
        table: Callable[[str], TableSchema | None],
        options: QueryOptions | None = None,
        *,
        in_thread: Callable[[Callable[[], TableSchema | None]], Awaitable[TableSchema | None]],
    ) -> None:
        self._channels = channels
        self._table = table
        self._options = options or QueryOptions()
        self._in_thread = in_thread

    async def chunk(self, place: RunPlace) -> ChunkQuery | None:
        """Prepare a read of the rows of a chunk; None if there is no such table."""
        found = await self._in_thread(lambda: self._table(place.table))
        if found is None:
            return None
        columns = [one for one in found.columns if one.is_watched or one.key_position is not None]
        request = ReadRequest.pb()(
            table=place.table, columns=[one.name for one in columns], limit=place.rows
        )
        request.transaction.single_use.read_only.read_timestamp.FromNanoseconds(place.read_ns)
        self._options.apply(request)
        bounds = request.key_set.ranges.add()
        _set_key(bounds.start_closed if place.after is None else bounds.start_open, place.after)
        _set_key(bounds.end_closed, None)
        interval = {"table": place.table, "read_timestamp": format_rfc3339(place.read_ns)}
        return ChunkQuery(self._channels, request, ChunkDecoder(place, columns), interval)


class _TableQuery(SpannerQuery):
    """As a change stream query; its errors are those of a read."""

    method = "StreamingRead"

    def _failed(self, error: grpc.RpcError, session: str) -> QueryError:
        fields: dict[str, Any] = dict(self._interval)
        found = self._channels.failed(error, session, what="read a table from Spanner", **fields)
        details = str(found.fields["details"])
        if found.code in ("FAILED_PRECONDITION", "OUT_OF_RANGE") and _TOO_OLD.search(details):
            hint = (
                "The backfill took longer than Spanner keeps old rows: raise the database's "
                "version_retention_period (up to 7 days), and begin again (tidegate-producer reset)"
            )
            return QueryRefused(found.message, hint=hint, **found.fields)
        return found


class ChunkQuery(_TableQuery):
    """The read of a chunk: `backfill.on_demand.ChunkRows`."""

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


def _set_key(target: ListValue, key: Key | None) -> None:
    """Set a bound; no value at all is the beginning or the end of the table."""
    target.SetInParent()
    for part in key or ():
        value = target.values.add()
        match part:
            case None:
                value.null_value = 0
            case bool():
                value.bool_value = part
            case str():
                value.string_value = part
            case _:
                value.number_value = part

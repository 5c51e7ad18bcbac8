"""`ports.ChangeStream` on Spanner's API: GoogleSQL, immutable key ranges.

Builds the query (seed: "Change stream read functions and query syntax"), runs it without a
deadline, as a stream partition may live for hours, and turns its end into what the port promises.
It does not retry: where to go on is the core's knowledge.
"""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import grpc
from google.cloud.spanner_v1.types import ExecuteSqlRequest, TypeCode

from tidegate.producer.adapters.spanner_decode import ColumnTypesCache, ResponseDecoder
from tidegate.producer.errors import PositionExpired, QueryError, QueryRefused
from tidegate.schemas.errors import ConfigError
from tidegate.schemas.instants import format_rfc3339

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tidegate.producer.adapters.spanner_channel import ResponseStream, SpannerChannels
    from tidegate.producer.spanner_records import StreamRecord

__all__ = ["SpannerChangeStream", "SpannerQuery"]

_STREAM_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,117}")
_EARLIEST = re.compile(r"earliest read timestamp: ([0-9T:.+-]+Z?)")


class SpannerChangeStream:
    """One change stream of one database; its queries share channels and decoded column lists."""

    def __init__(self, channels: SpannerChannels, name: str) -> None:
        if not _STREAM_NAME.fullmatch(name):
            raise ConfigError(
                f"change_stream {name!r} is no name of a change stream",
                hint="Use the name as in CREATE CHANGE STREAM",
            )
        self._channels = channels
        self._columns = ColumnTypesCache()
        self._sql = (
            f"SELECT ChangeRecord FROM `READ_{name}`("  # noqa: S608 - the name is checked above
            "start_timestamp => @start_timestamp, end_timestamp => @end_timestamp, "
            "partition_token => @partition_token, "
            "heartbeat_milliseconds => @heartbeat_milliseconds)"
        )

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> SpannerQuery:
        """Prepare a query; it begins when it is iterated."""
        request = ExecuteSqlRequest.pb()(sql=self._sql)
        request.transaction.single_use.read_only.strong = True
        for name, code, value in (
            ("start_timestamp", TypeCode.TIMESTAMP, format_rfc3339(start_ns)),
            ("end_timestamp", TypeCode.TIMESTAMP, format_rfc3339(end_ns) if end_ns else None),
            ("partition_token", TypeCode.STRING, token or None),
            ("heartbeat_milliseconds", TypeCode.INT64, str(heartbeat_ms)),
        ):
            request.params[name] = value
            request.param_types[name].code = code
        interval = {
            "token": token,
            "start": format_rfc3339(start_ns),
            "end": format_rfc3339(end_ns) if end_ns else "none",
        }
        return SpannerQuery(self._channels, request, ResponseDecoder(self._columns), interval)


class SpannerQuery:
    """One change stream query, iterated once and by one thread; any thread may cancel it."""

    def __init__(
        self,
        channels: SpannerChannels,
        request: Any,
        decoder: ResponseDecoder,
        interval: dict[str, str],
    ) -> None:
        self._channels = channels
        self._request = request
        self._decoder = decoder
        self._interval = interval
        self._lock = threading.Lock()
        self._responses: ResponseStream | None = None
        self._cancelled = False

    def __iter__(self) -> Iterator[list[StreamRecord]]:
        """Yield the records of each response message that completes any; raises QueryError."""
        session = self._channels.session()
        with self._lock:
            if self._cancelled:
                return
            responses = self._responses = self._channels.stream_sql(self._request, session)
        try:
            for message in responses:
                records = self._decoder.decode(message)
                if records:
                    yield records
        except grpc.RpcError as error:
            raise self._failed(error, session) from error
        finally:
            responses.close()
        self._decoder.end()

    def cancel(self) -> None:
        """End the query; does not block."""
        with self._lock:
            self._cancelled = True
            if self._responses is not None:
                self._responses.cancel()

    def _failed(self, error: grpc.RpcError, session: str) -> QueryError:
        fields: dict[str, Any] = dict(self._interval)
        what = "read a stream partition from Spanner"
        translated = self._channels.failed(error, session, what=what, **fields)
        if translated.code != "OUT_OF_RANGE":
            return translated
        details = str(translated.fields["details"])
        if "heartbeat_milliseconds" in details:
            hint = "Choose heartbeat_ms between 1000 and 300000"
            return QueryRefused(translated.message, hint=hint, **translated.fields)
        if "too far in the future" in details:
            hint = "Check the setting start, and this host's clock"
            return QueryRefused(translated.message, hint=hint, **translated.fields)
        earliest = _EARLIEST.search(details)
        lost_until = earliest[1].rstrip(".") if earliest else "unknown"
        return PositionExpired(
            "changes that were to be read are outside the change stream's retention",
            hint="What committed in this interval cannot be read any more; begin a new stream",
            **translated.fields,
            lost_from=self._interval["start"],
            lost_until=lost_until,
        )

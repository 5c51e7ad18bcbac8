"""Change stream queries on Spanner's API.

Fills in the arguments of a form's query, runs it without a deadline, because a stream partition may
last for hours, and translates errors.  It does not retry: the core decides where a query continues.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.cloud.spanner_v1.types import (
    DirectedReadOptions,
    ExecuteSqlRequest,
    RequestOptions,
    TypeCode,
)

from tidegate.producer.errors import (
    PositionExpired,
    QueryError,
    QueryRefused,
    TokenRefused,
)
from tidegate.producer.ports import Response
from tidegate.producer.records import StreamRecord
from tidegate.producer.spanner.channel import SpannerChannels
from tidegate.producer.spanner.transport.call import WAITING
from tidegate.producer.spanner.transport.stream_channels import ResponseStream
from tidegate.schemas.errors import SchemaError, TidegateError
from tidegate.schemas.instants import format_rfc3339, parse_rfc3339_ns

if TYPE_CHECKING:
    from tidegate.producer.spanner.decoding.response import Decoder
    from tidegate.producer.spanner.forms import StreamForm


@dataclass(frozen=True, slots=True)
class QueryOptions:
    """Options of every query of a stream; by default none is sent, and Spanner decides."""

    priority: str = ""
    """`LOW`, `MEDIUM` or `HIGH`, as `RequestOptions.Priority` names them."""
    tag: str = ""
    """Appears in Spanner's query statistics."""
    replicas: tuple[tuple[str, str], ...] = ()
    """Replicas that serve queries, the preferred first: a location, and the type or ""."""

    def apply(self, request: Any) -> None:
        """Set the options in an `ExecuteSqlRequest`."""
        if self.priority:
            request.request_options.priority = getattr(
                RequestOptions.Priority, f"PRIORITY_{self.priority}"
            )
        if self.tag:
            request.request_options.request_tag = self.tag
        for location, kind in self.replicas:
            selection = request.directed_read_options.include_replicas.replica_selections.add()
            selection.location = location
            if kind:
                selection.type_ = getattr(DirectedReadOptions.ReplicaSelection.Type, kind)


_PART_EVERY_S = 1.0
_T = TypeVar("_T")
_TOKEN_ERROR = re.compile(
    "partition_token is invalid|does not belong to the (Change Stream|placement)", re.IGNORECASE
)
_LATER_NS = 1_000_000_000
_TOO_OLD = re.compile("staleness|retention|expired", re.IGNORECASE)
_EARLIEST = re.compile(r"earliest read timestamp: ([0-9T:.+-]+Z?)")


class SpannerChangeStream:
    """One change stream, queried in the form of its database; port: `ports.ChangeStream`."""

    def __init__(
        self, channels: SpannerChannels, form: StreamForm, options: QueryOptions | None = None
    ) -> None:
        self._channels = channels
        self._form = form
        self._options = options or QueryOptions()

    def query(
        self, *, token: str, start_ns: int, end_ns: int | None, heartbeat_ms: int
    ) -> SpannerQuery:
        """Prepare a query; its first `next_size` sends it."""

        def at(instant_ns: int) -> SpannerQuery:
            return self._query(token, instant_ns, instant_ns, heartbeat_ms)

        return self._query(token, start_ns, end_ns, heartbeat_ms, at=at if token else None)

    def _query(
        self,
        token: str,
        start_ns: int,
        end_ns: int | None,
        heartbeat_ms: int,
        *,
        at: Callable[[int], SpannerQuery] | None = None,
    ) -> SpannerQuery:
        form = self._form
        request = ExecuteSqlRequest.pb()(sql=form.sql)
        request.transaction.single_use.read_only.strong = True
        self._options.apply(request)
        for name, code, value in (
            (form.start, TypeCode.TIMESTAMP, format_rfc3339(start_ns)),
            (form.end, TypeCode.TIMESTAMP, format_rfc3339(end_ns) if end_ns else None),
            (form.token, TypeCode.STRING, token or None),
            (form.heartbeat, TypeCode.INT64, str(heartbeat_ms)),
        ):
            request.params[name] = value
            request.param_types[name].code = code
        interval = {
            "token": token,
            "start": format_rfc3339(start_ns),
            "end": format_rfc3339(end_ns) if end_ns else "none",
        }
        return SpannerQuery(
            self._channels,
            request,
            form.decoder(),
            interval,
            factor=form.decoding_factor,
            at=at,
        )


class SpannerResponse:
    """One response message, not yet decoded; port: `ports.Response`."""

    __slots__ = ("_decoder", "_message", "size_bytes")

    def __init__(self, message: bytes, decoder: Decoder) -> None:
        self._message = message
        self._decoder = decoder
        self.size_bytes = len(message)

    def decode(self) -> tuple[list[StreamRecord], int]:
        """Return the message's records, and the size of the value that it leaves unfinished."""
        message, self._message = self._message, b""
        return self._decoder.decode(message), self._decoder.unfinished_bytes


class _PartOfMessage:
    """A part of an incomplete message: no record, and no bytes are released."""

    size_bytes = 0

    def __init__(self, held_bytes: int) -> None:
        self._held_bytes = held_bytes

    def decode(self) -> tuple[list[StreamRecord], int]:
        return [], self._held_bytes


class SpannerQuery:
    """One change stream query; port: `ports.RunningQuery`."""

    method = "ExecuteStreamingSql"

    def __init__(
        self,
        channels: SpannerChannels,
        request: Any,
        decoder: Decoder,
        interval: dict[str, str],
        *,
        factor: int,
        at: Callable[[int], SpannerQuery] | None = None,
    ) -> None:
        """Prepare a query; `at` makes a query for the same token at one instant."""
        self._at = at
        self._probe: SpannerQuery | None = None
        self._channels = channels
        self._request = request
        self._decoder = decoder
        self._interval = interval
        self._factor = factor
        self._lock = threading.Lock()
        self._responses: ResponseStream | None = None
        self._session = ""
        self._is_cancelled = False
        self._is_accepted = False
        self._is_waiting = False
        self._held_bytes = 0
        """Bytes taken for a message that has begun and is incomplete."""

    async def next_size(self) -> int | None:
        """Return the bytes that the next response message needs until it is decoded.

        They do not include the value that the preceding message left unfinished.  None at the end;
        raises QueryError. 0 while a part of the message is still missing, or nothing of it came and
        the connection is busy with other queries.
        """
        if self._held_bytes:
            return 0
        if self._responses is None:
            self._session = await self._channels.stream_session()
            with self._lock:
                if self._is_cancelled:
                    return None
                self._responses = self._channels.stream(self.method, self._request, self._session)
        size = await self._attempt(self._responses.next_size())
        self._is_waiting = size == WAITING
        if size == WAITING:
            return 0
        if not self._is_accepted:
            self._is_accepted = True
            self._channels.accept()
        if size is None:
            self._responses.close()
            self._decoder.end()
            return None
        unfinished = self._decoder.unfinished_bytes
        self._held_bytes = (size + unfinished) * self._factor
        return self._held_bytes - unfinished

    async def receive(self) -> Response:
        """Return the response message whose size was returned; raises QueryError.

        While the message is incomplete, returns a response without records every second, so that a
        message that takes long on a slow link does not count as silence.
        """
        assert self._responses is not None, "`next_size` comes first"  # noqa: S101 - see the port
        if self._is_waiting:
            return _PartOfMessage(self._decoder.unfinished_bytes)
        message = await self._attempt(self._responses.read(pause_s=_PART_EVERY_S))
        if message is None:
            return _PartOfMessage(self._held_bytes)
        self._held_bytes = 0
        return SpannerResponse(message, self._decoder)

    def cancel(self) -> None:
        """End the query; does not block."""
        with self._lock:
            self._is_cancelled = True
            for running in (self._responses, self._probe):
                if running is not None:
                    running.cancel()

    async def _attempt(self, step: Awaitable[_T]) -> _T:
        assert self._responses is not None  # noqa: S101 - its callers have it
        try:
            return await step
        except grpc.RpcError as error:
            self._responses.close()
            failed = self._failed(error, self._session)
            if isinstance(failed, PositionExpired) and self._at is not None:
                failed = await self._refusal_of_token(failed, self._at)
            raise failed from error
        except asyncio.CancelledError:
            self._responses.close()
            raise

    async def _refusal_of_token(
        self, expired: PositionExpired, at: Callable[[int], SpannerQuery]
    ) -> QueryError:
        """Return TokenRefused if the token belongs to another stream.

        Spanner compares a start with the stream's retention and creation before it checks the
        token.  So for a stream that was dropped and re-created under its name, the first error is
        that the start is too old; only a valid start shows that the token is invalid.
        """
        try:
            earliest_ns = parse_rfc3339_ns(str(expired.fields["lost_until"]))
        except SchemaError:
            return expired  # unknown, or in an undocumented form
        # Later than the text: retention moves on, and texts may be rounded.
        query = at(earliest_ns + _LATER_NS)
        with self._lock:
            if self._is_cancelled:
                return expired
            self._probe = query
        try:
            while await query.next_size() == 0:
                await query.receive()  # nothing came yet
        except TokenRefused as refused:
            fields: dict[str, Any] = {**self._interval, "code": refused.code}
            fields["details"] = refused.fields["details"]
            return TokenRefused(refused.message, hint=refused.hint, **fields)
        except TidegateError:
            return expired  # another text for the same error, or no answer at present
        finally:
            query.cancel()
        return expired

    def _failed(self, error: grpc.RpcError, session: str) -> QueryError:
        fields: dict[str, Any] = dict(self._interval)
        action = "read a stream partition from Spanner"
        translated = self._channels.failed(error, session, action=action, **fields)
        details = str(translated.fields["details"])
        if translated.code == "INVALID_ARGUMENT" and _TOKEN_ERROR.search(details):
            hint = "Was the change stream dropped and created again? Then start a new stream"
            return TokenRefused(translated.message, hint=hint, **translated.fields)
        is_too_old = translated.code == "FAILED_PRECONDITION" and _TOO_OLD.search(details)
        if translated.code != "OUT_OF_RANGE" and not is_too_old:
            return translated
        if "heartbeat_milliseconds" in details:
            hint = "Choose heartbeat_ms between 1000 and 300000"
            return QueryRefused(translated.message, hint=hint, **translated.fields)
        if "too far in the future" in details:
            hint = "Check the setting start, and this host's clock"
            return QueryRefused(translated.message, hint=hint, **translated.fields)
        earliest = _EARLIEST.search(details)
        lost_until = earliest[1].rstrip(".") if earliest else "unknown"
        return PositionExpired(
            "the requested changes are outside the change stream's retention",
            hint=(
                "Changes committed in this interval can no longer be read: accept their loss "
                "(tidegate-producer accept-gap), or start a new stream"
            ),
            **translated.fields,
            lost_from=self._interval["start"],
            lost_until=lost_until,
        )

"""Handlers around the services: bytes to a request, a reply or `SpannerError` to a status.

Requests are parsed here and not by gRPC, so that invalid bytes are INVALID_ARGUMENT. Injected
faults are applied here to every method, except to change stream queries, which apply theirs exactly
at a row.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn

import grpc
from google.protobuf.message import DecodeError

from spanner_simulator.core.change_streams.change_stream_call import is_change_stream_query
from spanner_simulator.errors import Code, SpannerError, invalid_argument, unsupported
from spanner_simulator.server.faults import Fault
from spanner_simulator.server.host import Host
from spanner_simulator.server.messages import Message
from spanner_simulator.server.statuses import sendable, trailing_metadata
from spanner_simulator.server.transport.faulty_calls import faulty_reply, faulty_stream

_LOG = logging.getLogger(__name__)


class Calls:
    """Makes gRPC handlers of service methods."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def unary(
        self, method: str, answer: Callable[[Message], Awaitable[Message]], request_type: Any
    ) -> Any:
        """A handler for a method with one reply: a message or its bytes."""
        parse = _parser(request_type)
        faults = self._host.faults

        async def handle(raw: bytes, context: Any) -> bytes:
            try:
                request = parse(raw)
                fault = self._fault(method, request) if faults.rules else None
                if fault is not None:
                    return await faulty_reply(
                        self._host, fault, context, lambda: _serialised(answer, request)
                    )
                reply = await answer(request)
                return reply if type(reply) is bytes else bytes(reply.SerializeToString())
            except Exception as error:  # noqa: BLE001  # a bug must not end the server
                await _abort(context, _refusal(error, method))

        return grpc.unary_unary_rpc_method_handler(handle)

    def streaming(
        self, method: str, answer: Callable[..., AsyncGenerator[bytes, None]], request_type: Any
    ) -> Any:
        """A handler for a method with many replies."""
        has_own_faults = method == "ExecuteStreamingSql"
        parse = _parser(request_type)
        faults = self._host.faults

        async def handle(raw: bytes, context: Any) -> AsyncIterator[bytes]:
            try:
                request = parse(raw)
                replies = answer(request, context) if has_own_faults else answer(request)
                fault = self._fault(method, request) if faults.rules else None
                if fault is not None:
                    replies = faulty_stream(self._host, fault, context, replies)
                # Closed at once when the call is cancelled, so that readers are detached.
                async with aclosing(replies):
                    async for message in replies:
                        yield message
            except Exception as error:  # noqa: BLE001  # a bug must not end the server
                await _abort(context, _refusal(error, method))

        return grpc.unary_stream_rpc_method_handler(handle)

    def refused(self, method: str) -> Any:
        """A handler for an unsupported method."""

        async def handle(_: bytes, context: Any) -> bytes:
            await _abort(context, unsupported(f"the method {method}"))

        return grpc.unary_unary_rpc_method_handler(handle)

    def _fault(self, method: str, request: Message) -> Fault | None:
        if method == "ExecuteStreamingSql" and is_change_stream_query(request.sql):
            return None
        return self._host.faults.plan(method, database=_database_of(request))


def _database_of(request: Message) -> str | None:
    for field in ("session", "database", "name", "parent"):
        value = getattr(request, field, None)
        if isinstance(value, str) and "/databases/" in value:
            return "/".join(value.split("/")[:6])
    return None


async def _serialised(answer: Callable[[Message], Awaitable[Message]], request: Message) -> bytes:
    reply = await answer(request)
    return reply if isinstance(reply, bytes) else bytes(reply.SerializeToString())


def _parser(request_type: Any) -> Callable[[bytes], Message]:
    raw = request_type.pb() if hasattr(request_type, "pb") else request_type
    parse: Callable[[bytes], Message] = raw.FromString
    return parse


def _refusal(error: Exception, method: str) -> SpannerError:
    """The status that ends a call; a bug is logged."""
    if isinstance(error, SpannerError):
        return error
    if isinstance(error, DecodeError):
        return invalid_argument(f"The request cannot be parsed: {error}")
    _LOG.error("%s failed", method, exc_info=error)
    return SpannerError(Code.INTERNAL, f"The simulator failed: {type(error).__name__}")


async def _abort(context: Any, error: SpannerError) -> NoReturn:
    code = grpc.StatusCode[error.code.name]
    await context.abort(code, sendable(error.message), trailing_metadata(error))
    raise error

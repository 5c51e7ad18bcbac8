"""What a failed call's status says beyond its code: the resource, a pause, and who answered."""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ResourceInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tidegate.producer.spanner.call import RETRY_AFTER_HEADER, CallError
from tidegate.program.calls import WAIT_MAX_S, asked_wait_s
from tidegate.schemas.instants import NS_PER_US, US_PER_SECOND

_Detail = TypeVar("_Detail", ResourceInfo, RetryInfo)

DETAILS_TRAILER = "grpc-status-details-bin"
_SESSION_TYPE = "google.spanner.v1.Session"
_SESSION_WORD = re.compile(r"^[^:]*(?<![-\w/.])session\b(?![-\w/])", re.IGNORECASE)
"""Before the first colon, where names begin: a database or a stream may have this name."""
_SESSION_PATH = re.compile(r"/databases/[^/\s]+/sessions/")
_WEB_PAGE = re.compile(r"received http2 header with (status|content-type)", re.IGNORECASE)
"""How gRPC names a response that is not one of gRPC, in unary calls."""


def is_lost_session(error: grpc.RpcError) -> bool:
    """Whether a call failed because its session does not exist (any more)."""
    if error.code() is not grpc.StatusCode.NOT_FOUND:
        return False
    named = _details(error, ResourceInfo)
    types = [one.resource_type for one in named if one.resource_type]
    if types:
        return any(one.endswith(_SESSION_TYPE) for one in types)
    details = str(error.details() or "")
    return bool(_SESSION_WORD.search(details) or _SESSION_PATH.search(details))


def is_web_page(error: grpc.RpcError) -> bool:
    """Whether the answer has no status of gRPC: a load balancer or a proxy gave it."""
    if isinstance(error, CallError):
        return error.is_web_page
    return _WEB_PAGE.search(str(error.details() or "")) is not None


def is_rejection(error: grpc.RpcError) -> bool:
    """Whether a fresh token, or another way through a load balancer, may let the call pass."""
    return error.code() is grpc.StatusCode.UNAUTHENTICATED or is_web_page(error)


def asked_pause_us(error: grpc.RpcError, now: datetime | None = None) -> int:
    """Return how long the service wants the next attempt to wait, at most a minute.

    A status says so in a `RetryInfo`, a load balancer's page in `Retry-After`; 0 without either.
    """
    for one in _details(error, RetryInfo):
        asked_us: int = one.retry_delay.seconds * US_PER_SECOND + one.retry_delay.nanos // NS_PER_US
        return min(max(asked_us, 0), round(WAIT_MAX_S * US_PER_SECOND))
    for name, value in _trailers(error):
        if name == RETRY_AFTER_HEADER and isinstance(value, str):
            return round(asked_wait_s(value, now or datetime.now(UTC)) * US_PER_SECOND)
    return 0


def _details(error: grpc.RpcError, kind: type[_Detail]) -> Iterator[_Detail]:
    """Return a status's details of one kind; one that cannot be read is left out."""
    for name, value in _trailers(error):
        if name != DETAILS_TRAILER:
            continue
        try:
            data = value if isinstance(value, bytes) else b64decode(value + "==")
            details = Status.FromString(data).details
        except (DecodeError, ValueError):
            continue
        for one in details:
            found = kind()
            try:
                is_of_kind = one.Unpack(found)
            except DecodeError:
                continue
            if is_of_kind:
                yield found


def _trailers(error: grpc.RpcError) -> Iterable[tuple[str, bytes | str]]:
    read = getattr(error, "trailing_metadata", None)
    return () if read is None else (read() or ())

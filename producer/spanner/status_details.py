"""What a failed call's status says beyond its code: the resource, and who answered."""

from __future__ import annotations

import re
from base64 import b64decode
from typing import TYPE_CHECKING

import grpc
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ResourceInfo
from google.rpc.status_pb2 import Status

from tidegate.producer.spanner.call import CallError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["DETAILS_TRAILER", "is_lost_session", "is_rejection", "is_web_page"]

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
    types = [one.resource_type for one in _resources(error) if one.resource_type]
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


def _resources(error: grpc.RpcError) -> Iterable[ResourceInfo]:
    """Return what a status names; a detail that cannot be read is left out."""
    for name, value in _trailers(error):
        if name != DETAILS_TRAILER:
            continue
        try:
            data = value if isinstance(value, bytes) else b64decode(value + "==")
            details = Status.FromString(data).details
        except (DecodeError, ValueError):
            continue
        for one in details:
            found = ResourceInfo()
            try:
                is_resource = one.Unpack(found)
            except DecodeError:
                continue
            if is_resource:
                yield found


def _trailers(error: grpc.RpcError) -> Iterable[tuple[str, bytes | str]]:
    read = getattr(error, "trailing_metadata", None)
    return () if read is None else (read() or ())

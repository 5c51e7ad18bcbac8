"""`SpannerError` as a gRPC status: details that clients act on, and the status inside a reply.

ABORTED carries RetryInfo, which clients obey before they retry; a lost session, database or
instance carries ResourceInfo, which distinguishes it from a missing row.
"""

from __future__ import annotations

from urllib.parse import quote

from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

from spanner_simulator.errors import Code, SpannerError
from spanner_simulator.server.messages import Message

# A call's trailers have 8 KiB, which may contain the message three times.
_TEXT_BYTES_MAX = 1_000

_RESOURCE_TYPES = {
    "Session": "type.googleapis.com/google.spanner.v1.Session",
    "Database": "type.googleapis.com/google.spanner.admin.database.v1.Database",
    "Instance": "type.googleapis.com/google.spanner.admin.instance.v1.Instance",
}


def sendable(text: str) -> str:
    """A text cut to the limit of trailers, because a longer one would hide the status."""
    size = 0
    for index, character in enumerate(text):
        # In trailers, characters outside of ASCII are percent-encoded.
        size += 1 if " " <= character <= "~" else len(quote(character, errors="replace"))
        if size > _TEXT_BYTES_MAX:
            return text[:index] + "..."
    return text


def _details(error: SpannerError) -> list[tuple[str, Message]]:
    details: list[tuple[str, Message]] = []
    if error.retry_delay_ms is not None:
        seconds, milliseconds = divmod(error.retry_delay_ms, 1000)
        delay = Duration(seconds=seconds, nanos=milliseconds * 1_000_000)
        details.append(("retryinfo", error_details_pb2.RetryInfo(retry_delay=delay)))
    if error.code is Code.NOT_FOUND:
        kind, separator, name = error.message.partition(" not found: ")
        if separator and kind in _RESOURCE_TYPES:
            info = error_details_pb2.ResourceInfo(
                resource_type=_RESOURCE_TYPES[kind],
                resource_name=sendable(name),
                description=f"{kind} does not exist.",
            )
            details.append(("resourceinfo", info))
    return details


def status_message(error: SpannerError) -> Message:
    """A google.rpc.Status, for replies with the outcomes of several parts."""
    status = status_pb2.Status(code=error.code.value, message=sendable(error.message))
    for _, detail in _details(error):
        packed = AnyMessage()
        packed.Pack(detail)
        status.details.append(packed)
    return status


def trailing_metadata(error: SpannerError) -> tuple[tuple[str, bytes], ...]:
    """The trailers of a failed call; empty if there are only code and message."""
    details = _details(error)
    if not details:
        return ()
    return (
        *((f"google.rpc.{name}-bin", detail.SerializeToString()) for name, detail in details),
        ("grpc-status-details-bin", status_message(error).SerializeToString()),
    )

"""Protobuf values, parameters and times to plain values and back.

Requests are raw messages (upb), not proto-plus wrappers, which cost more than the work.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from google.protobuf.timestamp_pb2 import Timestamp

from spanner_simulator.core.values import Plain

Message: TypeAlias = Any
"""A raw protobuf message; the generated classes have no static types."""


def plain_of(value: Message) -> Plain:
    """Plain form of a google.protobuf.Value."""
    match value.WhichOneof("kind"):
        case "string_value":
            text: str = value.string_value
            return text
        case "bool_value":
            return bool(value.bool_value)
        case "number_value":
            return float(value.number_value)
        case "list_value":
            return [plain_of(item) for item in value.list_value.values]
        case "struct_value":
            return {name: plain_of(item) for name, item in value.struct_value.fields.items()}
        case _:
            return None


def parameters(request: Message) -> dict[str, Plain]:
    """Query parameters by lower-case name."""
    return {name.lower(): plain_of(value) for name, value in request.params.fields.items()}


def timestamp_message(timestamp_us: int) -> Message:
    """A google.protobuf.Timestamp of microseconds."""
    return Timestamp(seconds=timestamp_us // 10**6, nanos=timestamp_us % 10**6 * 1000)


def timestamp_us_of(message: Message) -> int:
    """Microseconds of a Timestamp or Duration, rounded down."""
    return int(message.seconds) * 10**6 + int(message.nanos) // 1000

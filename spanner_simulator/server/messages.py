"""Protobuf requests to the core's values and back.

Requests are raw messages (upb), not proto-plus wrappers: a wrapper costs more than the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from google.cloud.spanner_v1 import types as spanner
from google.protobuf.timestamp_pb2 import Timestamp

from tidegate.spanner_simulator.core.rows.mutations import (
    Delete,
    KeyBound,
    KeySet,
    KeySpan,
    Mutation,
    Write,
)
from tidegate.spanner_simulator.errors import Code, SpannerError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tidegate.spanner_simulator.core.rows.mutations import WriteKind
    from tidegate.spanner_simulator.core.values import Plain, ValueType

__all__ = [
    "Message",
    "key_set",
    "metadata_bytes",
    "mutation",
    "parameters",
    "plain_of",
    "timestamp_message",
    "timestamp_us_of",
]

Message: TypeAlias = Any
"""A raw protobuf message; the generated classes have no static types."""

_WRITE_KINDS: tuple[WriteKind, ...] = ("insert", "update", "insert_or_update", "replace")


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


def _row(values: Message) -> list[Plain]:
    return [plain_of(value) for value in values.values]


def parameters(request: Message) -> dict[str, Plain]:
    """Query parameters by lower-case name."""
    return {name.lower(): plain_of(value) for name, value in request.params.fields.items()}


def key_set(message: Message) -> KeySet:
    """A KeySet; INVALID_ARGUMENT when a range lacks an end."""
    return KeySet(
        tuple(_row(key) for key in message.keys),
        tuple(_span(one) for one in message.ranges),
        message.all_,
    )


def _span(message: Message) -> KeySpan:
    start, end = message.WhichOneof("start_key_type"), message.WhichOneof("end_key_type")
    if start is None or end is None:
        raise SpannerError(Code.INVALID_ARGUMENT, "A key range needs both a start and an end key.")
    return KeySpan(
        KeyBound(_row(getattr(message, start)), start == "start_closed"),
        KeyBound(_row(getattr(message, end)), end == "end_closed"),
    )


def mutation(message: Message) -> Mutation:
    """One mutation; UNIMPLEMENTED for operations that the simulator does not know."""
    operation = message.WhichOneof("operation")
    if operation == "delete":
        return Delete(message.delete.table, key_set(message.delete.key_set))
    for kind in _WRITE_KINDS:
        if kind == operation:
            write = getattr(message, kind)
            return Write(
                kind, write.table, tuple(write.columns), tuple(_row(row) for row in write.values)
            )
    raise SpannerError(
        Code.UNIMPLEMENTED, f"The simulator does not support: mutations of kind {operation}"
    )


def timestamp_message(timestamp_us: int) -> Message:
    """A google.protobuf.Timestamp of microseconds."""
    return Timestamp(seconds=timestamp_us // 10**6, nanos=timestamp_us % 10**6 * 1000)


def timestamp_us_of(message: Message) -> int:
    """Microseconds of a Timestamp or Duration, rounded down."""
    return int(message.seconds) * 10**6 + int(message.nanos) // 1000


_TYPE_MESSAGES: dict[ValueType, Message] = {}


def _type_message(value_type: ValueType) -> Message:
    message = _TYPE_MESSAGES.get(value_type)
    if message is None:
        message = spanner.Type.pb()(code=getattr(spanner.TypeCode, value_type.code))
        if value_type.element is not None:
            message.array_element_type.CopyFrom(_type_message(value_type.element))
        _TYPE_MESSAGES[value_type] = message
    return message


def metadata_bytes(
    columns: Sequence[tuple[str, ValueType]], transaction: Message | None = None
) -> bytes:
    """A serialised ResultSetMetadata."""
    metadata = spanner.ResultSetMetadata.pb()()
    for name, value_type in columns:
        field = metadata.row_type.fields.add()
        field.name = name
        field.type_.CopyFrom(_type_message(value_type))
    if transaction is not None:
        metadata.transaction.CopyFrom(transaction)
    serialised: bytes = metadata.SerializeToString()
    return serialised

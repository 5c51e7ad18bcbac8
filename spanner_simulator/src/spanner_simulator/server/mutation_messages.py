"""Mutations and key sets of requests to the core's."""

from __future__ import annotations

from spanner_simulator.core.rows.key_sets import KeyBound, KeySet, KeySpan
from spanner_simulator.core.rows.mutations import Delete, Mutation, Write, WriteKind
from spanner_simulator.core.values import Plain
from spanner_simulator.errors import invalid_argument, unsupported
from spanner_simulator.server.messages import Message, plain_of

_WRITE_KINDS: dict[str, WriteKind] = {
    "insert": "insert",
    "update": "update",
    "insert_or_update": "insert_or_update",
    "replace": "replace",
}


def _row(values: Message) -> list[Plain]:
    return [plain_of(value) for value in values.values]


def key_set(message: Message) -> KeySet:
    """A KeySet; INVALID_ARGUMENT if a range lacks an end."""
    return KeySet(
        tuple(_row(key) for key in message.keys),
        tuple(_span(span) for span in message.ranges),
        message.all_,
    )


def _span(message: Message) -> KeySpan:
    start, end = message.WhichOneof("start_key_type"), message.WhichOneof("end_key_type")
    for side, bound in (("start", start), ("end", end)):
        if bound is None:
            raise invalid_argument(f"Key range must contain either {side}_closed or {side}_open.")
    return KeySpan(
        KeyBound(_row(getattr(message, start)), start == "start_closed"),
        KeyBound(_row(getattr(message, end)), end == "end_closed"),
    )


def mutation(message: Message) -> Mutation:
    """One mutation; UNIMPLEMENTED by name for the operations of queues."""
    operation = message.WhichOneof("operation")
    match operation:
        case "insert" | "update" | "insert_or_update" | "replace":
            write = getattr(message, operation)
            if not write.values:
                raise invalid_argument("No value provided for required field: Write.values")
            return Write(
                _WRITE_KINDS[operation],
                write.table,
                tuple(write.columns),
                tuple([_row(row) for row in write.values]),
            )
        case "delete":
            return Delete(message.delete.table, key_set(message.delete.key_set))
        case None:
            raise invalid_argument("No value provided for required field: Mutation.operation")
        case _:
            raise unsupported(f"mutations of kind {operation}")

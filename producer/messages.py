"""What a data change record becomes: Kafka messages, ready to be produced."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ChangeMessage", "PublishableRecord", "batch_bytes"]

_BATCH_HEADER_BYTES = 61
_FIXED_FIELDS_BYTES = 3
"""Of a record that is alone in its batch: attributes, timestamp delta, offset delta."""


class ChangeMessage(NamedTuple):
    """One row change as a Kafka message; `key` and `value` carry Confluent's framing."""

    topic: str
    key: bytes
    value: bytes
    order_key: bytes
    mod: bytes
    """`I`, `U` or `D`."""

    @property
    def size_bytes(self) -> int:
        """What a topic's limit on messages counts (`batch_bytes`)."""
        headers = ((HEADER_ORDER, self.order_key), (HEADER_MOD, self.mod))
        return batch_bytes(self.key, self.value, headers)


class PublishableRecord(NamedTuple):
    """One data change record, translated; it is published whole, in one Kafka transaction."""

    commit_timestamp_us: int
    server_transaction_id: str
    record_sequence: str
    messages: tuple[ChangeMessage, ...]
    """In the order of the record's mods; empty if every change was filtered."""


def batch_bytes(key: bytes, value: bytes, headers: Iterable[tuple[str, bytes]] = ()) -> int:
    """Return the size of a record batch (Kafka's format 2) that holds one record, uncompressed.

    This is what brokers compare with `max.message.bytes`.  Counted before compression, so that
    whether a change fits does not depend on how well it compresses.
    """
    pairs = [(name.encode(), content) for name, content in headers]
    parts = [key, value, *(part for pair in pairs for part in pair)]
    body = _FIXED_FIELDS_BYTES + _varint_bytes(len(pairs))
    body += sum(_varint_bytes(len(part)) + len(part) for part in parts)
    return _BATCH_HEADER_BYTES + _varint_bytes(body) + body


def _varint_bytes(number: int) -> int:
    """Return how many bytes a number >= 0 takes as a zigzag varint."""
    return ((number << 1).bit_length() + 6) // 7 or 1

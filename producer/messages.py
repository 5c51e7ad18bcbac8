"""Kafka messages made from data change records, ready to be produced."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidegate.schemas.topics import (
    HEADER_MOD,
    HEADER_ORDER,
    HEADER_ORIGIN,
    HEADERS_PARKED,
)

FORM_RECORD = b"record"
"""The content is JSON: Spanner's data change record with this one mod."""

FORM_MESSAGE = b"message"
"""The content is the framed Avro value of a valid change that follows a parked one of its key."""

FORM_REDRIVEN = b"redriven"
"""No content: the parked changes of the key, up to this order key, are now in their data topic."""

FORM_EVENT = b"event"
"""The content is JSON: the place of a file's event that cannot be published, and its error.

It parks no key: in such a stream the highest order wins, whatever comes between.
"""

MOD_DELETE = b"D"
"""The `mod` of a DELETE."""

KEY_PARKED = "KeyParked"
"""The reason why a valid change is parked: an earlier change of its key is parked."""

_BATCH_HEADER_BYTES = 61
_FIXED_FIELDS_BYTES = 3
"""Bytes of a record that is alone in its batch: attributes, timestamp delta, offset delta."""


class ChangeMessage(NamedTuple):
    """One row change as a Kafka message; `key` and `value` carry Confluent's framing."""

    topic: str
    key: bytes
    value: bytes
    order_key: bytes
    mod: bytes
    """`I`, `U` or `D`."""
    origin: bytes
    """Id of the stream partition that it comes from (`schemas.checksums.origin_of`)."""
    former_keys: tuple[bytes, ...] = ()
    """Other keys under which an earlier version may have parked changes of the row."""

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The data record's headers, in their order."""
        return [
            (HEADER_ORDER, self.order_key),
            (HEADER_MOD, self.mod),
            (HEADER_ORIGIN, self.origin),
        ]

    @property
    def size_bytes(self) -> int:
        """The size that counts for a topic's limit on messages (`batch_bytes`)."""
        return batch_bytes(self.key, self.value, self.headers)


class ParkedChange(NamedTuple):
    """One change that cannot be published, or that follows such a change of its key."""

    topic: str
    """Its data topic."""
    key: bytes
    """With Confluent's framing, as in the data topic."""
    order_key: bytes
    mod: bytes
    """`I`, `U` or `D`."""
    content: bytes
    """The content, by `form`."""
    form: bytes
    """`FORM_RECORD`, `FORM_MESSAGE`, `FORM_REDRIVEN` or `FORM_EVENT`."""
    reason: str
    """The class of the error; `KEY_PARKED` for a valid change."""
    error: str
    """The error's text, at most 1,000 characters; empty for a valid change."""
    token: str
    """The token of its stream partition."""

    @property
    def value(self) -> bytes | None:
        """The dead-letter record's value; None for `FORM_REDRIVEN`."""
        return None if self.form == FORM_REDRIVEN else self.content

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The dead-letter record's headers, in their order."""
        texts = (self.reason, self.error, self.token)
        encoded = (text.encode(errors="backslashreplace") for text in texts)
        contents = (self.order_key, self.mod, self.topic.encode(), self.form, *encoded)
        return list(zip(HEADERS_PARKED, contents, strict=True))

    @property
    def size_bytes(self) -> int:
        """The size that counts for the dead-letter topic's limit (`batch_bytes`)."""
        return batch_bytes(self.key, self.content, self.headers)


class DeadLetter(NamedTuple):
    """A record of the dead-letter topic, and its place."""

    topic_partition: int
    offset: int
    change: ParkedChange
    at_us: int | None = None
    """When it was written, by the clock of its writer or of the broker."""


class PublishableRecord(NamedTuple):
    """One data change record, translated; it is published completely, in one Kafka transaction."""

    commit_timestamp_us: int
    server_transaction_id: str
    record_sequence: str
    messages: tuple[ChangeMessage, ...]
    """In the order of the record's mods; empty if every change was filtered or is parked."""
    parked: tuple[ParkedChange, ...] = ()
    """The changes that go to the dead-letter topic instead, in the order of the record's mods."""
    filtered: int = 0
    """Number of changes of the record that are left out."""


def batch_bytes(key: bytes, value: bytes, headers: Iterable[tuple[str, bytes]] = ()) -> int:
    """Return the size of a record batch (Kafka's format 2) that holds one record, uncompressed.

    Brokers compare this size with `max.message.bytes`.  It is counted before compression, so that
    whether a change fits does not depend on how well it compresses.
    """
    pairs = [(name.encode(), content) for name, content in headers]
    parts = [key, value, *(part for pair in pairs for part in pair)]
    body = _FIXED_FIELDS_BYTES + _varint_bytes(len(pairs))
    body += sum(_varint_bytes(len(part)) + len(part) for part in parts)
    return _BATCH_HEADER_BYTES + _varint_bytes(body) + body


def _varint_bytes(number: int) -> int:
    """Return the number of bytes of a number >= 0 as a zigzag varint."""
    return ((number << 1).bit_length() + 6) // 7 or 1

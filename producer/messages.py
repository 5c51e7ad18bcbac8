"""What a data change record becomes: Kafka messages, ready to be produced."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ChangeMessage", "PublishableRecord"]


@dataclass(frozen=True, slots=True)
class ChangeMessage:
    """One row change as a Kafka message; `key` and `value` carry Confluent's framing."""

    topic: str
    key: bytes
    value: bytes
    order_key: bytes
    mod: bytes
    """`I`, `U` or `D`."""


@dataclass(frozen=True, slots=True)
class PublishableRecord:
    """One data change record, translated; it is published whole, in one Kafka transaction."""

    commit_timestamp_us: int
    server_transaction_id: str
    record_sequence: str
    messages: tuple[ChangeMessage, ...]
    """In the order of the record's mods; empty if every change was filtered."""

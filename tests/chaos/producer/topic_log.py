"""What Kafka holds of the run, decoded with public libraries only.

The judge of a run of the fleet (`topic_log`, `reader`, `verdict`) imports neither `producer` nor
`schemas`, so that it cannot repeat their mistakes.  It defines the protocol's topics, order key and
progress records a second time, from `docs/protocol.md`.
"""

from __future__ import annotations

import io
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import fastavro
from confluent_kafka import Message
from confluent_kafka.schema_registry import SchemaRegistryClient
from xxhash import xxh64_digest

from tidegate.local_stack.judge.log import Place

Schemas = Callable[[int], Any]
"""Returns the parsed Avro schema of an id in the registry."""

_FRAME = struct.Struct(">BI")
_MICROSECONDS = struct.Struct(">Q")
_TAIL = struct.Struct(">QQI")


_ORIGIN_SEED = 42


class ForeignRecord(Exception):
    """A record that no producer may write."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The names that follow from a prefix."""

    prefix: str

    @property
    def progress(self) -> str:
        """The topic of the progress records."""
        return f"{self.prefix}-progress"

    @property
    def dead_letters(self) -> str:
        """The topic of changes that no data topic takes."""
        return f"{self.prefix}-dead-letter"

    def data(self, table: str) -> str:
        """Return the data topic of a table."""
        return f"{self.prefix}.{table}"

    def is_data(self, topic: str) -> bool:
        """Whether a topic holds data records."""
        rest = r"\.[A-Za-z0-9_]+(\.[A-Za-z0-9_]+)?"
        return re.fullmatch(re.escape(self.prefix) + rest, topic) is not None

    def are_read(self, topic: str) -> bool:
        """Whether the judge reads a topic."""
        return topic in (self.progress, self.dead_letters) or self.is_data(topic)


@dataclass(frozen=True, slots=True)
class DataEntry:
    """One change in a data topic, or in the topic of dead letters."""

    topic: str
    topic_partition: int
    offset: int
    written_ms: int
    data_topic: str
    """The topic that it belongs to; another one than `topic` for a dead letter."""
    key: bytes
    order_key: bytes
    mod: bytes
    origin: bytes
    """The hash of the token of the stream partition that brought it."""
    row: Mapping[str, Any]
    """The key's columns as they were decoded."""
    value: Mapping[str, Any] | None
    """None for a dead letter."""

    @property
    def commit_us(self) -> int:
        """Its commit time, microseconds since 1970."""
        return int(_MICROSECONDS.unpack_from(self.order_key)[0])


@dataclass(frozen=True, slots=True)
class ProgressEntry:
    """One record of the progress topic."""

    slot: int
    offset: int
    written_ms: int
    kind: str
    epoch: str
    body: Mapping[str, Any]

    @property
    def heartbeat_version(self) -> int | None:
        """The version of the progress records, as far as a heartbeat tells it.

        Only version 2 has heartbeats of changes and numbers its tokens; a snapshot without tokens
        may be of either.
        """
        if self.kind == "SLOT_CHANGES":
            return 2
        if self.kind != "SLOT_PROGRESS" or not self.body["tokens"]:
            return None
        return 2 if "number" in self.body["tokens"][0] else 1


def order_key_of(place: Place) -> bytes:
    """Return the order key of a change at a place in the commit order."""
    high, low = place.record_sequence
    return b"".join(
        (
            _MICROSECONDS.pack(place.commit_timestamp_us),
            place.server_transaction_id.encode(),
            b"\0",
            _TAIL.pack(high, low, place.mod_number),
        )
    )


def origin_of(token: str) -> bytes:
    """Return what names a stream partition in the headers of its changes."""
    return xxh64_digest(token.encode(), _ORIGIN_SEED)


def registry_schemas(url: str) -> Schemas:
    """Return the schemas of a registry, each fetched once."""
    client = SchemaRegistryClient({"url": url})
    known: dict[int, Any] = {}

    def schema(schema_id: int) -> Any:
        if schema_id not in known:
            text = client.get_schema(schema_id).schema_str
            known[schema_id] = fastavro.parse_schema(json.loads(text))
        return known[schema_id]

    return schema


@dataclass(slots=True)
class Decoder:
    """Decodes committed messages of all topics of one prefix."""

    topics: Topics
    schemas: Schemas

    def decode(self, message: Message) -> DataEntry | ProgressEntry | None:
        """Return the entry; None for a record without a value, outside the dead-letter topic.

        Raises ForeignRecord for what the protocol does not allow.
        """
        topic, number, offset = message.topic(), message.partition(), message.offset()
        try:
            if topic == self.topics.progress:
                return self._progress(message)
            if message.value() is None and topic != self.topics.dead_letters:
                return None
            return self._data(message)
        except (ValueError, KeyError, IndexError, EOFError, struct.error) as error:
            raise ForeignRecord(
                f"{topic}/{number}@{offset}: {type(error).__name__}: {error}"
            ) from error

    def _progress(self, message: Message) -> ProgressEntry | None:
        key, value = self._read(message.key()), message.value()
        if value is None:
            return None
        record = self._read(value)
        return ProgressEntry(
            slot=message.partition() or 0,
            offset=message.offset() or 0,
            written_ms=message.timestamp()[1],
            kind=key["kind"],
            epoch=record["epoch"],
            body=record["body"],
        )

    def _data(self, message: Message) -> DataEntry:
        headers = message.headers() or []
        topic = message.topic() or ""
        is_dead = topic == self.topics.dead_letters
        first = ["order", "mod", "topic" if is_dead else "origin"]
        if [name for name, _ in headers[:3]] != first:
            raise ValueError(f"its first headers are {headers[:3]}")
        named = dict(headers)
        return DataEntry(
            topic=topic,
            topic_partition=message.partition() or 0,
            offset=message.offset() or 0,
            written_ms=message.timestamp()[1],
            data_topic=named["topic"].decode() if is_dead else topic,
            key=message.key() or b"",
            order_key=bytes(named["order"]),
            mod=bytes(named["mod"]),
            origin=origin_of(named["token"].decode()) if is_dead else bytes(named["origin"]),
            row=self._read(message.key()),
            value=None if is_dead else self._read(message.value()),
        )

    def _read(self, framed: bytes | None) -> Any:
        zero, schema_id = _FRAME.unpack_from(framed or b"")
        if zero:
            raise ValueError("it is not framed")
        body = io.BytesIO((framed or b"")[_FRAME.size :])
        return fastavro.schemaless_reader(body, self.schemas(schema_id), None)

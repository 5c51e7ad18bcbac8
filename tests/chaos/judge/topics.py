"""The records of a stream's topics, decoded for the judge.

The names of topics and headers are defined here a second time, from `docs/protocol.md`.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Message
from confluent_kafka.admin import AdminClient

from tests.chaos.judge.order_key import place_of
from tidegate.local_stack.judge.log import Place, origin_of
from tidegate.local_stack.judge.topics import (
    Schemas,
    Where,
    as_bytes,
    committed_messages,
    read_framed,
)

_ADMIN_S = 15.0


class ForeignRecordError(Exception):
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
    place: Place
    mod: bytes
    origin: bytes
    """The hash of the token of the stream partition that brought it."""
    row: Mapping[str, Any]
    """The key's columns as they were decoded."""
    value: Mapping[str, Any] | None
    """None for a dead letter."""

    @property
    def where(self) -> str:
        """Its place in Kafka, for a report."""
        return f"{self.topic}/{self.topic_partition}@{self.offset}"


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
    def where(self) -> str:
        """Its place in Kafka, for a report."""
        return f"slot {self.slot}@{self.offset}"

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


Entry = DataEntry | ProgressEntry


@dataclass(slots=True)
class Published:
    """All committed records of a stream's topics."""

    topics: Topics
    logs: dict[Where, list[Entry]] = field(default_factory=dict)
    """The records of each topic partition, by offset."""
    ends: dict[Where, int] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    """Records that no producer may write."""

    @property
    def data(self) -> list[DataEntry]:
        """Changes and dead letters, by offset in each topic partition."""
        return [one for log in self.logs.values() for one in log if isinstance(one, DataEntry)]

    @property
    def progress(self) -> list[ProgressEntry]:
        """Progress records, by offset in each slot."""
        return [one for log in self.logs.values() for one in log if isinstance(one, ProgressEntry)]

    def bodies(self, kind: str) -> list[Mapping[str, Any]]:
        """Return the bodies of all progress records of a kind."""
        return [one.body for one in self.progress if one.kind == kind]


@dataclass(slots=True)
class Decoder:
    """Decodes committed messages of all topics of one prefix."""

    topics: Topics
    schemas: Schemas

    def decode(self, message: Message) -> Entry | None:
        """Return the entry; None for a record without a value, outside the dead-letter topic.

        Raises ForeignRecordError for what the protocol does not allow.
        """
        topic, number, offset = message.topic(), message.partition(), message.offset()
        try:
            if message.value() is None and topic != self.topics.dead_letters:
                return None
            if topic == self.topics.progress:
                return self._progress(message)
            return self._data(message)
        except (ValueError, KeyError, IndexError, EOFError, struct.error) as error:
            raise ForeignRecordError(
                f"{topic}/{number}@{offset}: {type(error).__name__}: {error}"
            ) from error

    def _progress(self, message: Message) -> ProgressEntry:
        key, record = self._read(message.key()), self._read(message.value())
        return ProgressEntry(
            slot=message.partition() or 0,
            offset=message.offset() or 0,
            written_ms=message.timestamp()[1],
            kind=key["kind"],
            epoch=record["epoch"],
            body=record["body"],
        )

    def _data(self, message: Message) -> DataEntry:
        headers: Any = message.headers() or []
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
            key=as_bytes(message.key()),
            place=place_of(named["order"]),
            mod=bytes(named["mod"]),
            origin=origin_of(named["token"].decode()) if is_dead else bytes(named["origin"]),
            row=self._read(message.key()),
            value=None if is_dead else self._read(message.value()),
        )

    def _read(self, framed: str | bytes | None) -> Any:
        return read_framed(framed, self.schemas)


def read_published(bootstrap_servers: str, decoder: Decoder) -> Published:
    """Return all committed records up to the present ends of the topics."""
    found = Published(decoder.topics)
    topics = [name for name in topics_in(bootstrap_servers) if decoder.topics.are_read(name)]
    for message in committed_messages(bootstrap_servers, topics):
        where = message.topic() or "", message.partition() or 0
        found.ends[where] = max(found.ends.get(where, 0), (message.offset() or 0) + 1)
        try:
            entry = decoder.decode(message)
        except ForeignRecordError as error:
            found.foreign.append(str(error))
            continue
        if entry is not None:
            found.logs.setdefault(where, []).append(entry)
    return found


def topics_in(bootstrap_servers: str) -> list[str]:
    """Return the names of all topics of a broker."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    return sorted(admin.list_topics(timeout=_ADMIN_S).topics)

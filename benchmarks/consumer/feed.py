"""Rows of a backfill and heartbeats, published to Kafka as a fleet would."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.topics import Change, Topic
from tidegate.schemas.progress import (
    ChildPartition,
    PartitionAnnounced,
    ProgressRecord,
    SlotProgress,
    StreamStarted,
    TokenSnapshot,
    TopicOffset,
)
from tidegate.schemas.progress_codec import RECORD_SCHEMA, encode_key, encode_record
from tidegate.schemas.topics import HEADER_MOD, HEADER_ORDER, HEADER_ORIGIN
from tidegate.schemas.wire_format import frame

COLUMNS = {
    "id": "INT64",
    "owner": "STRING(MAX)",
    "amount": "INT64",
    "note": "STRING(MAX)",
}
_PROGRESS_ID = 1
_TOKEN = "t"
_RANGE_ROWS = 10_000
_RANGES_MAX = 256
_RANGES_AT_ONCE = 8
_NOTE = "a text of about a hundred bytes, so that a change has the size of an average row"


RECORD_ROWS = 20
"""Rows of a backfill in one record, as its transaction counts them."""


class KeyRange:
    """Rows `start` to `end` of a backfill; the value is encoded once, and then filled in."""

    _FIRST_ID = 1 << 28  # so many bytes has each id, up to 2^34
    _SEQUENCE = "99999999"

    def __init__(self, topic: Topic, number: int, start: int, end: int, us: int) -> None:
        self.topic, self.start, self.end = topic, start, end
        self._change = Change(
            "INSERT",
            {"id": self._FIRST_ID},
            {"owner": f"owner {number}", "amount": number, "note": _NOTE},
            us=us,
            transaction=f"spanner-backfill-{number}",
            sequence=int(self._SEQUENCE),
            records=-(-(end - start) // RECORD_ROWS),
            token=f"tidegate-backfill/read/{number}",
        )
        key, value = topic.framed(self._change)
        self._key, _ = key.split(_long(self._FIRST_ID))
        self._head, rest = value.split(_long(self._FIRST_ID))
        self._middle, self._tail = rest.split(self._SEQUENCE.encode() + _long(0))

    def row(self, row: int) -> tuple[bytes, bytes, Change]:
        """Return key, value and change of a row."""
        number = _long(self._FIRST_ID + row)
        sequence, mod_number = divmod(row - self.start, RECORD_ROWS)
        value = b"".join(
            (
                self._head, number, self._middle,
                f"{sequence:08d}".encode(), _long(mod_number), self._tail,
            )
        )  # fmt: skip
        key = {"id": self._FIRST_ID + row}
        change = replace(self._change, key=key, sequence=sequence, mod_number=mod_number)
        return self._key + number, value, change


def _long(number: int) -> bytes:
    """Return a number that is not negative as Avro has it."""
    number *= 2
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


@dataclass
class Feed:
    """One change stream with one slot, and a table whose topic has some topic partitions."""

    prefix: str
    topic_partitions: int = 6
    stream: str = "s"
    ends: dict[str, dict[int, int]] = field(default_factory=dict)
    revision: int = 0

    def __post_init__(self) -> None:
        self.topic = Topic("table0", {100: COLUMNS}, ["id"], key_id=500, prefix=self.prefix)
        self.progress_topic = f"{self.prefix}-progress"
        self.ends = {
            self.progress_topic: {0: 0},
            self.topic.topic: dict.fromkeys(range(self.topic_partitions), 0),
        }

    def schema(self, schema_id: int) -> Mapping[str, Any]:
        """Stand for the registry."""
        if schema_id == _PROGRESS_ID:
            return copy.deepcopy(RECORD_SCHEMA)
        if schema_id == self.topic.key_id:
            return self.topic.key_schema
        return self.topic.schemas[schema_id]

    def opening(self) -> Iterator[Record]:
        """Yield what begins the stream."""
        child = ChildPartition(_TOKEN, ("",), 0)
        yield self._progress(
            StreamStarted(self.stream, "g", 0, None, f"{self.prefix}-fleet", 1, "id", (), (child,))
        )
        yield self._progress(PartitionAnnounced(child, ""))

    def backfilled(self, rows: int, *, us: int) -> Iterator[Record]:
        """Yield rows of the table as a backfill has them: all committed at `us`.

        Key ranges, records and transactions are those of docs/protocol.md, 7.16.  Some ranges are
        read at once, so that their records stand among each other.
        """
        range_rows = _RANGE_ROWS
        while rows > range_rows * _RANGES_MAX:
            range_rows *= 2
        starts = range(0, rows, range_rows)
        for first in range(0, len(starts), _RANGES_AT_ONCE):
            ranges = [
                KeyRange(self.topic, number, start, min(start + range_rows, rows), us)
                for number, start in enumerate(starts)
            ][first : first + _RANGES_AT_ONCE]
            for begin in range(0, range_rows, RECORD_ROWS):
                for one in ranges:
                    for row in range(one.start + begin, one.start + begin + RECORD_ROWS)[
                        : max(0, one.end - one.start - begin)
                    ]:
                        place = row % self.topic_partitions
                        offset = self._next(one.topic.topic, place)
                        yield Record(one.topic.topic, place, offset, *one.row(row))

    def beat(self, watermark_us: int) -> Record:
        """Return a heartbeat: everything up to `watermark_us` is in the topics."""
        self.revision += 1
        vector = tuple(
            TopicOffset(topic, place, end - 1)
            for topic, of in self.ends.items()
            for place, end in of.items()
            if topic != self.progress_topic and end
        )
        tokens = (TokenSnapshot(_TOKEN, 0, (), (), watermark_us),)
        return self._progress(SlotProgress(0, self.revision, 0, 1, vector, tokens))

    def _progress(self, body: Any) -> Record:
        value = frame(_PROGRESS_ID, encode_record(ProgressRecord("e", "w", body)) or b"")
        key = frame(_PROGRESS_ID, encode_key(body))
        offset = self._next(self.progress_topic, 0)
        return Record(self.progress_topic, 0, offset, key, value, None)

    def _next(self, topic: str, place: int) -> int:
        offset = self.ends[topic][place]
        self.ends[topic][place] = offset + 1
        return offset


@dataclass(frozen=True, slots=True)
class Record:
    """A record of Kafka; `change` is None for one of the progress topic."""

    topic: str
    topic_partition: int
    offset: int
    key: bytes
    value: bytes
    change: Change | None

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """The headers of a data record."""
        if self.change is None:
            return []
        origin = self.change.origin.to_bytes(8, "big", signed=True)
        return [
            (HEADER_ORDER, self.change.order_key),
            (HEADER_MOD, self.change.mod[:1].encode()),
            (HEADER_ORIGIN, origin),
        ]


class KafkaFeed:
    """Publishes a feed's records to a broker."""

    def __init__(self, bootstrap_servers: str, feed: Feed) -> None:
        """Create the feed's topics."""
        self.feed = feed
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "enable.idempotence": True,
                "linger.ms": 5,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
            }
        )
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        wanted = [NewTopic(topic, num_partitions=len(of)) for topic, of in feed.ends.items()]
        for done in admin.create_topics(wanted).values():
            done.result(30)

    def send(self, record: Record) -> None:
        """Publish a record; `flush` waits for it."""
        while True:
            try:
                self._producer.produce(
                    record.topic, record.value, record.key,
                    partition=record.topic_partition, headers=record.headers,
                )  # fmt: skip
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def flush(self) -> None:
        """Wait until everything is in the log."""
        self._producer.flush(60)

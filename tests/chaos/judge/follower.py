"""Reads all topics while the run lasts: knows up to when a reader would have every change."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from tests.chaos.judge.topics import Decoder, ForeignRecordError
from tests.chaos.judge.watermark import Reader
from tidegate.local_stack.judge.topics import Where

_BATCH_MAX = 500
_POLL_S = 0.2
_LOOK_EVERY_S = 3.0
_METADATA_S = 5.0


@dataclass(slots=True)
class Follower:
    """A thread with a consumer without a group; `reader` has what was read so far."""

    bootstrap_servers: str
    decoder: Decoder
    reader: Reader = field(init=False)
    broken: list[str] = field(default_factory=list)
    _next: dict[Where, int] = field(default_factory=dict)
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __post_init__(self) -> None:
        """Begin before the first record."""
        self.reader = Reader(self.decoder.topics)

    def start(self) -> None:
        """Start to read."""
        self._thread = threading.Thread(target=self._run, name="follower", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop reading; returns when the consumer is closed."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def require_alive(self) -> None:
        """Raise RuntimeError if the thread has failed."""
        if self._thread is not None and not self._thread.is_alive() and not self._ended.is_set():
            raise RuntimeError("the follower has failed")

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "tidegate-chaos-follower",
                "isolation.level": "read_committed",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        try:
            look_at = 0.0
            while not self._ended.is_set():
                if time.monotonic() >= look_at:
                    self._assign_what_is_new(consumer)
                    look_at = time.monotonic() + _LOOK_EVERY_S
                for message in consumer.consume(_BATCH_MAX, _POLL_S):
                    self._read(message)
                self.reader.advance()
        finally:
            consumer.close()

    def _assign_what_is_new(self, consumer: Consumer) -> None:
        try:
            topics = consumer.list_topics(timeout=_METADATA_S).topics
        except KafkaException:
            return  # the broker is away
        found = {
            (name, number)
            for name, topic in topics.items()
            if self.decoder.topics.are_read(name)
            for number in topic.partitions
        }
        if found - self._next.keys():
            self._next = dict.fromkeys(found, 0) | self._next
            consumer.assign([TopicPartition(*where, at) for where, at in self._next.items()])

    def _read(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._reach(message, message.offset() or 0)
            return  # librdkafka repeats what failed because the broker is away
        try:
            entry = self.decoder.decode(message)
        except ForeignRecordError as reason:
            self.broken.append(str(reason))
            entry = None
        if entry is not None:
            self.reader.read(entry)
        self._reach(message, (message.offset() or 0) + 1)

    def _reach(self, message: Message, offset: int) -> None:
        where = message.topic() or "", message.partition() or 0
        self._next[where] = max(offset, self._next.get(where, 0))
        self.reader.reach(where, offset)

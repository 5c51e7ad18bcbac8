"""Reads the root's slot once, for everything that a worker needs from it.

This is the record that opened the epoch and, as long as the worker lives, the records of later
tables and operators' commands.  After the search no other records are decoded: their keys show that
they can be skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tidegate.producer.core.events import (
    AccessDenied,
    ProgressReadLost,
    ReadInterrupted,
    RootSlotRead,
)
from tidegate.producer.errors import ProgressLost
from tidegate.producer.kafka.slots import HeldMessages
from tidegate.program.kafka_clients import consume_from_beginning
from tidegate.program.kafka_errors import AT_END, OUT_OF_RANGE, is_denied, kafka_failure
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_chunks import ProgressAssembler
from tidegate.schemas.progress_codec import is_root_key
from tidegate.schemas.progress_decoder import ProgressDecoder
from tidegate.schemas.topics import ROOT_TOKEN, slot_of
from tidegate.schemas.wire_format import unframe

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, Message


_BATCH_MAX = 500
_CATCH_UP_BATCHES_MAX = 20
"""Batches in one call, until the slot was read to its end: before that, a worker reads nothing from
Spanner."""
_ROOT_SLOT = slot_of(ROOT_TOKEN, slots=1)
"""The slot of the root with any number of slots: the checksum of an empty token is 0."""


class RootSlotReader:
    """Reads the slot from its beginning; port: `ports.StreamStartFinder`; for one thread."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        topic: str,
        decoder: ProgressDecoder,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Prepare; the first poll begins to read.

        `group` only names the client: the group is neither joined nor committed to.
        """
        self._bootstrap_servers = bootstrap_servers
        self._group = group
        self._topic = topic
        self._decoder = decoder
        self._options = options
        self._consumer: Consumer | None = None
        self._assembler = ProgressAssembler()
        self._held = HeldMessages()
        self._records: list[ProgressRecord] = []
        """Records read and not returned by `poll_records` yet."""
        self._position = 0
        """The next offset after all records that were read."""
        self._returned = 0
        """The next offset after the records that `poll_records` has returned."""
        self._lost: ProgressLost | None = None
        self._interruption: ReadInterrupted | None = None
        """An interruption that `poll_records` has not returned yet."""
        self._is_at_end = False
        self._is_end_reported = False
        self.reported: KafkaError | None = None
        """The client's last error since it read a record or reached the end."""

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord | None, bool]:
        """Return (the record that opened the epoch if it was read just now, whether at the end).

        Not to be called again once the record was returned.  Raises ConfigError if Kafka denies
        access, ProgressLost if the slot lacks the next offset, SchemaError for a record that cannot
        be decoded, and UnreachableError if its schema cannot be found out.  `poll_records` returns
        any other error.  Records wait while the decoder does not know their schema.
        """
        start: ProgressRecord | None = None
        at_end = False
        for message in self._held.take(lambda: self._consume(timeout_s), self._is_ready):
            error = message.error()
            if error is not None:
                if is_denied(error):
                    raise kafka_failure(error, attempt="cannot read the progress topic")
                at_end = self._note(error) or at_end
                continue
            self._advance(message)
            if not self._take_record(message) and start is None:
                start = self._stream_start(message)
        return start, at_end

    def poll_records(
        self,
    ) -> RootSlotRead | AccessDenied | ProgressReadLost | ReadInterrupted | None:
        """Return the records read since the last call, if they contain anything new; never blocks.

        A slot that lacks the next offset ends the reading: that is returned once.  Raises
        SchemaError for a record that cannot be decoded, and UnreachableError if its schema cannot
        be found out.  Any other error is returned after the records read with it; the client
        continues by itself.
        """
        if self._lost is not None:
            return None
        try:
            return self._read_records()
        except ProgressLost as error:
            self._lost = error
            return ProgressReadLost(error)

    def _read_records(self) -> RootSlotRead | AccessDenied | ReadInterrupted | None:
        for _ in range(1 if self._is_at_end else _CATCH_UP_BATCHES_MAX):
            count = 0
            for message in self._held.take(lambda: self._consume(0.0), self._is_root_ready):
                count += 1
                error = message.error()
                if error is None:
                    self._advance(message)
                    self._take_record(message)
                elif is_denied(error):
                    return AccessDenied(f"topic {self._topic}", error.str())
                else:
                    self._note(error)
            if self._is_at_end or count < _BATCH_MAX:
                break
        if not self._records and self._is_end_reported == self._is_at_end:
            interruption, self._interruption = self._interruption, None
            return interruption
        records, self._records = tuple(self._records), []
        self._is_end_reported = self._is_at_end
        begin, self._returned = self._returned, self._position
        return RootSlotRead(records, self._is_at_end, begin=begin, end=self._position)

    def decode_with(self, decoder: ProgressDecoder) -> None:
        """Use this decoder from now on, which need not look up the worker's own schemas."""
        self._decoder = decoder

    def close(self) -> None:
        """Stop reading."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    # ------------------------------------------------------------ inside

    def _consume(self, timeout_s: float) -> list[Message]:
        if self._consumer is None:
            self._consumer = consume_from_beginning(
                self._topic,
                [_ROOT_SLOT],
                bootstrap_servers=self._bootstrap_servers,
                client_group=f"{self._group}-root",
                options=self._options,
            )
        return self._consumer.consume(_BATCH_MAX, timeout_s)

    def _advance(self, message: Message) -> None:
        """Record the offset of a record; raises ProgressLost if reading moved backwards."""
        self.reported = None
        offset = message.offset()
        if offset is None:
            return
        if offset < self._position:
            raise ProgressLost(
                "reading a slot moved backwards", slot=_ROOT_SLOT, was=self._position, now=offset
            )
        self._position = offset + 1

    def _note(self, error: KafkaError) -> bool:
        """Record a report of the client; return whether it is the slot's end.

        Raises ProgressLost for an offset that is not in the log.
        """
        if error.code() in OUT_OF_RANGE:
            text = "the offset that a slot is read from is not in its log"
            position = self._position
            raise ProgressLost(text, slot=_ROOT_SLOT, position=position, reason=error.str())
        is_end = error.code() == AT_END
        self.reported = None if is_end else error
        if not is_end:
            resource = f"slot {_ROOT_SLOT} of topic {self._topic}"
            self._interruption = ReadInterrupted(resource, error.str())
        self._is_at_end = self._is_at_end or is_end
        return is_end

    def _is_ready(self, message: Message) -> bool:
        """Whether a message can be decoded; always true for one that needs no decoding."""
        value = None if message.error() is not None else message.value()
        return value is None or self._decoder.is_ready(value)

    def _is_root_ready(self, message: Message) -> bool:
        return message.error() is not None or not _is_of_root(message) or self._is_ready(message)

    def _take_record(self, message: Message) -> bool:
        """Keep a record that every worker reads; return False for any other."""
        value = message.value()
        if value is None or not _is_of_root(message):
            return False
        self._records.append(self._decoder.decode(value))
        return True

    def _stream_start(self, message: Message) -> ProgressRecord | None:
        value = message.value()
        if value is None:  # removes an earlier record, for compaction
            return None
        record = self._decoder.decode(value)
        assembled = self._assembler.add(record.body, offset=message.offset() or 0)
        if assembled is None or not isinstance(assembled[0], StreamStarted):
            return None
        return ProgressRecord(record.epoch, record.worker, assembled[0])


def _is_of_root(message: Message) -> bool:
    """Whether every worker reads records with this record's key."""
    key = message.key()
    return key is not None and is_root_key(unframe(key)[1])

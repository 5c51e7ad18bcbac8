"""Reads the root's slot once, for all that a worker learns from it.

These are the record that opened the epoch and, for as long as the worker lives, the records of
later tables and what operators want.  After the search nothing else is decoded: the rest is passed
over by its key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.producer.core.events import AccessDenied, RootSlotRead
from tidegate.program.from_beginning import consume_from_beginning
from tidegate.program.kafka_errors import AT_END, is_denied, kafka_failure
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_chunks import ProgressAssembler
from tidegate.schemas.progress_codec import is_root_key
from tidegate.schemas.topics import ROOT_TOKEN, slot_of
from tidegate.schemas.wire_format import unframe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from confluent_kafka import Consumer, KafkaError, Message

    from tidegate.schemas.progress_decoder import ProgressDecoder

__all__ = ["RootSlotReader"]

_BATCH_MAX = 500
_CATCH_UP_BATCHES_MAX = 20
"""In one call, until the slot was read to its end: a worker reads nothing of Spanner before."""
_ROOT_SLOT = slot_of(ROOT_TOKEN, slots=1)
"""With any number of slots: the checksum of an empty token is 0."""


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

        `group` only names the client, it is neither joined nor committed to.
        """
        self._bootstrap_servers = bootstrap_servers
        self._group = group
        self._topic = topic
        self._decoder = decoder
        self._options = options
        self._consumer: Consumer | None = None
        self._assembler = ProgressAssembler()
        self._found: list[ProgressRecord] = []
        """Read, and not returned by `poll_records` yet."""
        self._is_at_end = False
        self._is_end_reported = False

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord | None, bool]:
        """Return (the record that opened the epoch if it was read just now, whether at the end).

        Not to be called again once the record was returned.  Raises ConfigError if Kafka denies
        access, SchemaError for a record that cannot be decoded, and UnreachableError if its schema
        cannot be found out.
        """
        found: ProgressRecord | None = None
        at_end = False
        for message in self._consume(timeout_s):
            error = message.error()
            if error is not None:
                if is_denied(error):
                    raise kafka_failure(error, attempt="cannot read the progress topic")
                at_end = self._note_end(error) or at_end
            elif not self._take_record(message) and found is None:
                found = self._stream_start(message)
        return found, at_end

    def poll_records(self) -> RootSlotRead | AccessDenied | None:
        """Return what was read since the last call, if it says anything new; never blocks.

        Raises SchemaError for a record that cannot be decoded, and UnreachableError if its schema
        cannot be found out.  Errors that pass are left to the client.
        """
        for _ in range(1 if self._is_at_end else _CATCH_UP_BATCHES_MAX):
            messages = self._consume(0.0)
            for message in messages:
                error = message.error()
                if error is None:
                    self._take_record(message)
                elif is_denied(error):
                    return AccessDenied(f"topic {self._topic}", error.str())
                else:
                    self._note_end(error)
            if self._is_at_end or len(messages) < _BATCH_MAX:
                break
        if not self._found and self._is_end_reported == self._is_at_end:
            return None
        records, self._found = tuple(self._found), []
        self._is_end_reported = self._is_at_end
        return RootSlotRead(records, self._is_at_end)

    def decode_with(self, decoder: ProgressDecoder) -> None:
        """Decode with this from now on: one that need not ask for the worker's own schemas."""
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

    def _note_end(self, error: KafkaError) -> bool:
        is_end = error.code() == AT_END
        self._is_at_end = self._is_at_end or is_end
        return is_end

    def _take_record(self, message: Message) -> bool:
        """Keep a record that every worker reads; return False for any other."""
        key, value = message.key(), message.value()
        if key is None or value is None or not is_root_key(unframe(key)[1]):
            return False
        self._found.append(self._decoder.decode(value))
        return True

    def _stream_start(self, message: Message) -> ProgressRecord | None:
        value = message.value()
        if value is None:  # removes an earlier record, for compaction
            return None
        record = self._decoder.decode(value)
        whole = self._assembler.add(record.body, offset=message.offset() or 0)
        if whole is None or not isinstance(whole[0], StreamStarted):
            return None
        return ProgressRecord(record.epoch, record.worker, whole[0])

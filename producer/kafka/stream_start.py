"""The search for the record that opened the epoch, in the root's slot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.producer.kafka.slot_consumer import consume_slots
from tidegate.program.kafka_errors import AT_END, is_denied, kafka_failure
from tidegate.schemas.progress import ProgressRecord, StreamStarted
from tidegate.schemas.progress_chunks import ProgressAssembler

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.schemas.progress_decoder import ProgressDecoder

__all__ = ["KafkaStreamStartFinder"]

_BATCH_MAX = 500


class KafkaStreamStartFinder:
    """Reads the root's slot from its beginning; port: `ports.StreamStartFinder`."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        topic: str,
        root_slot: int,
        decoder: ProgressDecoder,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Start to read; `group` only names the client, it is neither joined nor committed to."""
        self._assembler = ProgressAssembler()
        self._decoder = decoder
        self._consumer = consume_slots(
            topic,
            [root_slot],
            bootstrap_servers=bootstrap_servers,
            client_group=f"{group}-stream-start",
            options=options,
        )

    def poll(self, timeout_s: float = 0.0) -> tuple[ProgressRecord | None, bool]:
        """Return (the record if it was read just now, whether the slot's end was reached).

        Raises ConfigError if Kafka denies access, SchemaError for a record that cannot be decoded,
        and UnreachableError if its schema cannot be found out.
        """
        at_end = False
        for message in self._consumer.consume(_BATCH_MAX, timeout_s):
            error = message.error()
            if error is not None:
                if is_denied(error):
                    raise kafka_failure(error, attempt="cannot read the progress topic")
                at_end = at_end or error.code() == AT_END
                continue
            value = message.value()
            if value is None:  # removes an earlier record, for compaction
                continue
            record = self._decoder.decode(value)
            whole = self._assembler.add(record.body, offset=message.offset() or 0)
            if whole is not None and isinstance(whole[0], StreamStarted):
                return ProgressRecord(record.epoch, record.worker, whole[0]), False
        return None, at_end

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

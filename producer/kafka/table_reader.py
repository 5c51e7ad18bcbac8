"""Reads the records of later tables from the root's slot, for as long as the worker lives.

Everything else in the slot is passed over by its key, without decoding it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tidegate.producer.core.events import AccessDenied, TablesRead
from tidegate.producer.kafka.slot_consumer import consume_slots
from tidegate.program.kafka_errors import AT_END, is_denied
from tidegate.schemas.progress_codec import is_table_key
from tidegate.schemas.topics import ROOT_TOKEN, slot_of
from tidegate.schemas.wire_format import unframe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.schemas.progress import ProgressRecord
    from tidegate.schemas.progress_decoder import ProgressDecoder

__all__ = ["TableReader"]

_BATCH_MAX = 500


class TableReader:
    """Reads the root's slot from its beginning; for one thread."""

    def __init__(
        self,
        *,
        bootstrap_servers: str,
        group: str,
        topic: str,
        decoder: ProgressDecoder,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Start to read; `group` only names the client."""
        self._topic = topic
        self._decoder = decoder
        self._is_at_end = False
        self._consumer = consume_slots(
            topic,
            [slot_of(ROOT_TOKEN, slots=1)],
            bootstrap_servers=bootstrap_servers,
            client_group=f"{group}-tables",
            options=options,
        )

    def poll(self) -> TablesRead | AccessDenied | None:
        """Return what was read since the last call, if it says anything new; never blocks.

        Raises SchemaError for a record that cannot be decoded, and UnreachableError if its schema
        cannot be found out.  Errors that pass are left to the client.
        """
        records: list[ProgressRecord] = []
        was_at_end = self._is_at_end
        for message in self._consumer.consume(_BATCH_MAX, 0.0):
            error = message.error()
            if error is not None:
                if is_denied(error):
                    return AccessDenied(f"topic {self._topic}", error.str())
                is_end = error.code() == AT_END
                self._is_at_end = self._is_at_end or is_end
                continue
            key, value = message.key(), message.value()
            if key is not None and value is not None and is_table_key(unframe(key)[1]):
                records.append(self._decoder.decode(value))
        if not records and self._is_at_end == was_at_end:
            return None
        return TablesRead(tuple(records), self._is_at_end)

    def close(self) -> None:
        """Stop reading."""
        self._consumer.close()

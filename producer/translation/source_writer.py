"""Writes the source of a change: the fields of its record that are no values, in Avro.

The mod number stands in the middle and varies with each change of a record; what is after it
repeats in most records of a stream partition.  The token is left out: the message's header names
the stream partition, in fewer bytes than any other part of the message.
"""

from __future__ import annotations

from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.avro_fields import write_boolean, write_long, write_text

SOURCE_FIELDS = [
    "commit_timestamp",
    "server_transaction_id",
    "record_sequence",
    "mod_number",
    "is_last_record_in_transaction_in_partition",
    "number_of_records_in_transaction",
    "number_of_partitions_in_transaction",
    "transaction_tag",
    "is_system_transaction",
    "value_capture_type",
    "change_stream",
    "partition_token",
]
"""The order in which they are written (`docs/protocol.md`, 3.2)."""

_KNOWN_MAX = 1024
_NO_TOKEN = write_text("")


class SourceWriter:
    """Writes the sources of one change stream; thread-safe."""

    def __init__(self, change_stream: str) -> None:
        self._change_stream = change_stream
        self._known: dict[tuple[object, ...], bytes] = {}

    def before_mod_number(self, record: DataChangeRecord, commit_timestamp_us: int) -> bytes:
        """Return the fields before the mod number; raises SchemaError if one does not fit."""
        return (
            write_long(commit_timestamp_us)
            + write_text(record.server_transaction_id)
            + write_text(record.record_sequence)
        )

    def after_mod_number(self, record: DataChangeRecord, *, is_flat: bool = False) -> bytes:
        """Return the fields after the mod number; raises SchemaError if one does not fit.

        A flat value names no change stream and no token.
        """
        repeated = (
            record.is_last_record_in_transaction_in_partition,
            record.number_of_records_in_transaction,
            record.number_of_partitions_in_transaction,
            record.transaction_tag,
            record.is_system_transaction,
            record.value_capture_type,
            is_flat,
        )
        known = self._known.get(repeated)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            known = self._known[repeated] = self._write(record, is_flat=is_flat)
        return known

    def _write(self, record: DataChangeRecord, *, is_flat: bool) -> bytes:
        where = b"" if is_flat else write_text(self._change_stream) + _NO_TOKEN
        return b"".join(
            (
                write_boolean(record.is_last_record_in_transaction_in_partition),
                write_long(record.number_of_records_in_transaction),
                write_long(record.number_of_partitions_in_transaction),
                write_text(record.transaction_tag),
                write_boolean(record.is_system_transaction),
                write_text(record.value_capture_type),
                where,
            )
        )

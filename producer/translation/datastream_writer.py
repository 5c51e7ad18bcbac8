"""Writes the changes of one table as events of Datastream (`docs/protocol.md`, 3.10).

Both timestamps of an event are the change's commit timestamp, and its id is computed from the
stream and the change: a change that is published twice has one id.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tidegate.producer.translation.change_writer import Pieces, other_form
from tidegate.producer.translation.event_writer import EventForm, EventWriter, json_text
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.datastream_schema import DATASTREAM_HEAD, PAYLOAD, payload_key
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US, format_rfc3339
from tidegate.schemas.order_key import sequence_pair
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.producer.records import DataChangeRecord, Mod
    from tidegate.schemas.registry import RegisteredSchema
    from tidegate.schemas.tables import TableSchema

__all__ = ["DatastreamWriter"]

_READ_METHOD = "spanner-cdc"
_US_PER_MS = 1_000


class DatastreamWriter(EventWriter):
    """Writes mods as events of Datastream; thread-safe."""

    envelope = Envelope.DATASTREAM
    facts = DATASTREAM_HEAD

    def __init__(
        self,
        table: TableSchema,
        *,
        key: RegisteredSchema,
        value: RegisteredSchema,
        timestamps: TimestampForm = TimestampForm.MICROS,
        form: EventForm | None = None,
    ) -> None:
        """Raise SchemaError for a value schema that is not of the envelope's form."""
        super().__init__(table, key=key, value=value, timestamps=timestamps, form=form)
        self._schema_key = payload_key(row_fields(value.schema).values())

    @staticmethod
    def _require_form(schema: Mapping[str, Any]) -> None:
        """Raise SchemaError unless the fields before the payload are those of the contract."""
        fields = schema["fields"]
        if fields[-1]["name"] != PAYLOAD or fields[:-1] != list(DATASTREAM_HEAD):
            raise other_form(schema)

    def _value_pieces(self, mod_type: str, mod: Mod) -> Pieces:
        """Return the row after the change, of a DELETE that before it; the facts come before it."""
        is_delete = mod_type == "DELETE"
        document, captured = ("old", mod.old_values) if is_delete else ("new", mod.new_values)
        row, _ = self._row_pieces(document, captured)
        return row[1:]  # a payload is never null, so no byte says that it is not

    def _facts_of_record(self, record: DataChangeRecord, token: str) -> Mapping[str, Any]:  # noqa: ARG002 - the message's header names the stream partition
        commit_us = record.commit_timestamp_ns // NS_PER_US
        schema, _, table = record.table_name.rpartition(".")
        high, low = sequence_pair(record.record_sequence)
        return {
            "uuid": _event_id(self._form.stream_path, record),
            "read_timestamp": commit_us // _US_PER_MS,
            "source_timestamp": commit_us // _US_PER_MS,
            "object": record.table_name,
            "read_method": _READ_METHOD,
            "stream_name": self._form.stream_path,
            "schema_key": self._schema_key,
            "sort_keys": [
                commit_us // _US_PER_MS,
                commit_us,
                record.server_transaction_id,
                f"{high:016x}{low:016x}",
            ],
            "source_metadata": {
                "database": self._form.database,
                "schema": schema,
                "table": table,
                "primary_keys": self._keys,
                "is_deleted": record.mod_type == "DELETE",
                "change_type": record.mod_type,
                "tx_id": record.server_transaction_id,
                "record_sequence": record.record_sequence,
                "mod_number": 0,
                "commit_timestamp": commit_us,
                "is_last_record_in_transaction_in_partition": (
                    record.is_last_record_in_transaction_in_partition
                ),
                "number_of_records_in_transaction": record.number_of_records_in_transaction,
                "number_of_partitions_in_transaction": record.number_of_partitions_in_transaction,
                "transaction_tag": record.transaction_tag,
                "is_system_transaction": record.is_system_transaction,
                "value_capture_type": record.value_capture_type,
                "captured_columns": [],
            },
        }

    def _facts_of_mod(
        self, of_record: Mapping[str, Any], mod_type: str, mod: Mod, number: int
    ) -> dict[str, Any]:
        captured = mod.old_values if mod_type == "DELETE" else mod.new_values
        return {
            **of_record,
            "uuid": f"{of_record['uuid']}{number:08x}",
            "sort_keys": [*of_record["sort_keys"], number],
            "source_metadata": {
                **of_record["source_metadata"],
                "mod_number": number,
                "captured_columns": self._captured(captured),
            },
        }

    def _joined_avro(self, rows: bytes, facts: bytes) -> bytes:
        return b"".join((self._value_frame, facts, rows))

    def _json_value(self, mod_type: str, mod: Mod, facts: dict[str, Any]) -> str:
        captured = mod.old_values if mod_type == "DELETE" else mod.new_values
        metadata = facts["source_metadata"]
        commit_us = metadata["commit_timestamp"]
        at = _text(commit_us)[: -len("456Z")] + "Z"
        shown = {
            **facts,
            "read_timestamp": at,
            "source_timestamp": at,
            "source_metadata": {**metadata, "commit_timestamp": _text(commit_us)},
        }
        # A column that was not captured has no name here either: null is a value.
        payload = self._row_text(captured, mod, metadata["captured_columns"])
        return f'{json_text(shown)[:-1]},"{PAYLOAD}":{payload}}}'


def _text(at_us: int) -> str:
    return format_rfc3339(at_us * NS_PER_US)


def _event_id(stream: str, record: DataChangeRecord) -> str:
    """Return the id of a record's events, all but the eight digits of the mod's number.

    A UUID of version 8, whose digits are computed from the stream and Spanner's coordinates of the
    record.  Raises SchemaError for coordinates that are not Unicode.
    """
    named = (
        stream,
        str(record.commit_timestamp_ns),
        record.server_transaction_id,
        record.record_sequence,
    )
    try:
        digest = hashlib.sha256("\0".join(named).encode()).digest()[:12]
    except UnicodeEncodeError as error:
        raise SchemaError("coordinates of a change that are not Unicode") from error
    digits = (int.from_bytes(digest, "big") & ~_FIXED_DIGITS | _FIXED).to_bytes(12, "big").hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


# The version's four bits and the variant's two, among the first 96 bits of a UUID.
_FIXED_DIGITS = 0xF << 44 | 0b11 << 30
_FIXED = 8 << 44 | 0b10 << 30

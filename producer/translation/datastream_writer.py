"""Writes the changes of one table as events of Datastream (`docs/protocol.md`, 3.10).

Both timestamps of an event are the change's commit timestamp, and its id is computed from the
stream and the change: a change that is published twice has one id.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.change_writer import Pieces, other_form
from tidegate.producer.translation.event_writer import EventForm, EventWriter, json_text
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.datastream_event import (
    DATASTREAM_HEAD,
    PAYLOAD,
    event_facts,
    facts_as_json,
    payload_key,
    record_facts,
)
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import TableSchema


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
        return record_facts(
            {
                "commit_timestamp": record.commit_timestamp_ns // NS_PER_US,
                "server_transaction_id": record.server_transaction_id,
                "record_sequence": record.record_sequence,
                "is_last_record_in_transaction_in_partition": (
                    record.is_last_record_in_transaction_in_partition
                ),
                "number_of_records_in_transaction": record.number_of_records_in_transaction,
                "number_of_partitions_in_transaction": record.number_of_partitions_in_transaction,
                "transaction_tag": record.transaction_tag,
                "is_system_transaction": record.is_system_transaction,
                "value_capture_type": record.value_capture_type,
            },
            mod_type=record.mod_type,
            table=record.table_name,
            key_columns=self._keys,
            stream=self._form.stream_path,
            database=self._form.database,
            schema_key=self._schema_key,
        )

    def _facts_of_mod(
        self, of_record: Mapping[str, Any], mod_type: str, mod: Mod, number: int
    ) -> dict[str, Any]:
        captured = mod.old_values if mod_type == "DELETE" else mod.new_values
        return event_facts(of_record, number=number, captured=self._captured(captured))

    def _joined_avro(self, rows: bytes, facts: bytes) -> bytes:
        return b"".join((self._value_frame, facts, rows))

    def _json_value(self, mod_type: str, mod: Mod, facts: dict[str, Any]) -> str:
        captured = mod.old_values if mod_type == "DELETE" else mod.new_values
        # A column that was not captured has no name here either: null is a value.
        payload = self._row_text(captured, mod, facts["source_metadata"]["captured_columns"])
        return f'{json_text(facts_as_json(facts))[:-1]},"{PAYLOAD}":{payload}}}'

"""Writes the changes of one table as Debezium's connector for Spanner does.

The form is in `docs/protocol.md`, 3.9.  What the connector takes from its clock is the commit
timestamp here, and what it knows only while it runs (its watermark, when it read the record) is
null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.avro_fields import NULL
from tidegate.producer.translation.change_writer import Pieces, other_form
from tidegate.producer.translation.event_fields import debezium_field
from tidegate.producer.translation.event_writer import EventForm, EventWriter, json_text
from tidegate.schemas.debezium_schema import BEFORE, DEBEZIUM_TAIL
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.output_form import Envelope
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import TableSchema

_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_NS_PER_MS = 1_000_000
_VERSION = "tidegate"
"""`source.version`: no number, so that another version of the program writes equal bytes."""


class DebeziumWriter(EventWriter):
    """Writes mods as Debezium's envelopes; thread-safe."""

    envelope = Envelope.DEBEZIUM
    facts = DEBEZIUM_TAIL

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
        self._values = {column.name: debezium_field(column.type) for column in table.columns}

    @staticmethod
    def _require_form(schema: Mapping[str, Any]) -> None:
        """Raise SchemaError unless the fields beside the rows are those of the contract."""
        names = [field["name"] for field in schema["fields"][:2]]
        if names != [BEFORE, "after"] or schema["fields"][2:] != list(DEBEZIUM_TAIL):
            raise other_form(schema)

    def _value_pieces(self, mod_type: str, mod: Mod) -> Pieces:
        """Return the frame, and the rows before and after the change."""
        before: Pieces = [NULL]
        after: Pieces = [NULL]
        if _has_before(mod_type, mod):
            before, _ = self._row_pieces("old", mod.old_values)
        if mod_type != "DELETE":
            after, _ = self._row_pieces("new", mod.new_values)
        return [self._value_frame, *before, *after]

    def _facts_of_record(self, record: DataChangeRecord, token: str) -> Mapping[str, Any]:
        form, at_ns = self._form, record.commit_timestamp_ns
        sequence = record.record_sequence
        return {
            "version": _VERSION,
            "connector": "spanner",
            "name": form.prefix,
            "ts_ms": at_ns // _NS_PER_MS,
            "snapshot": "false",
            "db": form.database,
            # A number without leading zeros, as Debezium has it, where it is one.
            "sequence": str(int(sequence)) if sequence.isdecimal() else sequence,
            "ts_us": at_ns // NS_PER_US,
            "ts_ns": at_ns,
            "project_id": form.project,
            "instance_id": form.instance,
            "database_id": form.database,
            "change_stream_name": form.change_stream,
            "table": record.table_name,
            "server_transaction_id": record.server_transaction_id,
            "low_watermark": None,
            "read_at_timestamp": None,
            "number_records_in_transaction": record.number_of_records_in_transaction,
            "transaction_tag": record.transaction_tag,
            "system_transaction": record.is_system_transaction,
            "value_capture_type": record.value_capture_type,
            "partition_token": token,
            "mod_number": 0,
            "is_last_record_in_transaction_in_partition": (
                record.is_last_record_in_transaction_in_partition
            ),
            "number_of_partitions_in_transaction": record.number_of_partitions_in_transaction,
            "before_columns": None,
            "after_columns": None,
        }

    def _facts_of_mod(
        self, of_record: Mapping[str, Any], mod_type: str, mod: Mod, number: int
    ) -> dict[str, Any]:
        columns = {
            "before_columns": self._captured(mod.old_values)
            if _has_before(mod_type, mod)
            else None,
            "after_columns": None if mod_type == "DELETE" else self._captured(mod.new_values),
        }
        return {
            "source": {**of_record, "mod_number": number, **columns},
            "op": _OPS[mod_type],
            "ts_ms": of_record["ts_ms"],
            "ts_us": of_record["ts_us"],
            "ts_ns": of_record["ts_ns"],
            "transaction": None,
        }

    def _joined_avro(self, rows: bytes, facts: bytes) -> bytes:
        return rows + facts

    def _json_value(self, mod_type: str, mod: Mod, facts: dict[str, Any]) -> str:
        before = after = "null"
        if _has_before(mod_type, mod):
            before = self._row_text(mod.old_values, mod, self._row)
        if mod_type != "DELETE":
            after = self._row_text(mod.new_values, mod, self._row)
        return f'{{"{BEFORE}":{before},"after":{after},{json_text(facts)[1:]}'


def _has_before(mod_type: str, mod: Mod) -> bool:
    return mod_type == "DELETE" or (mod_type == "UPDATE" and bool(mod.old_values))

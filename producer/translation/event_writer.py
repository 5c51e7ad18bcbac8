"""Writes changes as events of Debezium's connector for Spanner or of Datastream, in Avro or JSON.

The forms are in `docs/protocol.md`, 3.9 and 3.10.  An event is one or two rows and facts about the
change.  Rows in Avro are compiled by shape, as in `change_writer`; the facts are one mapping for
both formats, written under their part of the value schema.  Every event is a function of its change
and these schemas, without a clock, so a change that is read again has the same bytes, and a change
that is published twice has one id.  Keys are those of every other envelope, in either format,
unless they are to be JSON as well.
"""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro
import orjson

from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.avro_fields import NULL
from tidegate.producer.translation.change_writer import ChangeWriter, Pieces, other_form
from tidegate.producer.translation.event_fields import (
    as_bytes,
    debezium_field,
    json_field,
    json_form,
    json_key_field,
    json_key_form,
)
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.datastream_event import (
    DATASTREAM_HEAD,
    PAYLOAD,
    event_facts,
    facts_as_json,
    payload_key,
    record_facts,
)
from tidegate.schemas.debezium_schema import BEFORE, DEBEZIUM_TAIL
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.output_form import Envelope, KeyFormat, ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import TableSchema

_DEBEZIUM_OPS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_DEBEZIUM_VERSION = "tidegate"
"""`source.version`: not a version number, so that another version of the program writes equal
bytes."""
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class EventForm:
    """The stream's name in events, and the formats of values and keys."""

    prefix: str = ""
    """The prefix of the stream's topics."""
    project: str = ""
    instance: str = ""
    database: str = ""
    change_stream: str = ""
    value_format: ValueFormat = ValueFormat.AVRO
    key_format: KeyFormat = KeyFormat.AVRO
    """JSON only if values are JSON too."""

    @property
    def stream_path(self) -> str:
        """The change stream's full name, as recorded in `StreamStarted`."""
        return (
            f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"
            f"/changeStreams/{self.change_stream}"
        )


class EventWriter(ChangeWriter):
    """Writes mods as events, under one table's registered schemas; thread-safe."""

    envelope: Envelope
    facts: Sequence[Mapping[str, Any]]
    """The fields of the value schema that do not hold a row."""

    def __init__(
        self,
        table: TableSchema,
        *,
        key: RegisteredSchema,
        value: RegisteredSchema,
        timestamps: TimestampForm = TimestampForm.MICROS,
        form: EventForm | None = None,
    ) -> None:
        """Raise SchemaError for a value schema that does not have the envelope's form."""
        super().__init__(table, key=key, value=value, timestamps=timestamps)
        self._form = form or EventForm()
        self._facts_schema = fastavro.parse_schema(
            {"type": "record", "name": "Facts", "fields": list(self.facts)}
        )
        self._is_json = self._form.value_format is ValueFormat.JSON
        if self._is_json:
            self._values = {
                c.name: as_bytes(json_field(c.type, self.envelope)) for c in table.columns
            }
            self._value_forms = {c.name: json_form(c.type, self.envelope) for c in table.columns}
        self._is_key_json = self._form.key_format is KeyFormat.JSON
        if self._is_key_json:
            self._key_fields = {c.name: as_bytes(json_key_field(c.type)) for c in table.key_columns}
            self._forms = {c.name: json_key_form(c.type) for c in table.key_columns}
        self._labels = {name: f"{json.dumps(name)}:".encode() for name in self._row}
        self._prepare(table, value.schema)

    def write_events(self, record: DataChangeRecord, token: str) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of a record's changes, in their order.

        Raises TableChanged for an unknown column, and SchemaError for a value that does not fit or
        a key that is not the primary key.
        """
        shared, mod_type = self._record_facts(record, token), record.mod_type
        if self._is_json:
            shared = self._shared_json(shared)
        numbered = enumerate(record.mods, record.first_mod_number)
        return [
            self._event(mod_type, mod, self._mod_facts(shared, mod_type, mod, number))
            for number, mod in numbered
        ]

    def key(self, keys: Mapping[str, Any]) -> bytes:
        """Return the key of a change, framed in Avro or as JSON.

        Equal keys have equal bytes in either format, because the bytes decide the topic partition.
        Raises as `ChangeWriter.key` does.
        """
        if not self._is_key_json:
            return super().key(keys)
        self._require_primary_key(keys)
        parts = (
            mark + self._key_fields[name](keys[name]) for mark, name in self._marked(self._keys)
        )
        return b"".join((*parts, _end(self._keys)))

    # ------------------------------------------------------------ parts of an envelope

    @abstractmethod
    def _prepare(self, table: TableSchema, schema: dict[str, Any]) -> None:
        """Prepare the parts of events that follow from the table and its value schema."""

    @abstractmethod
    def _record_facts(self, record: DataChangeRecord, token: str) -> Mapping[str, Any]:
        """Return the facts that all events of a record share."""

    @abstractmethod
    def _mod_facts(
        self, shared: Mapping[str, Any], mod_type: str, mod: Mod, number: int
    ) -> dict[str, Any]:
        """Return the facts of one event, by the fields of the value schema."""

    @abstractmethod
    def _joined(self, rows: bytes, facts: bytes) -> bytes:
        """Return the value made of these rows and facts, in the stream's format."""

    def _shared_json(self, shared: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a record's facts as events in JSON have them."""
        return shared

    # ------------------------------------------------------------ the two formats

    def _event(self, mod_type: str, mod: Mod, facts: dict[str, Any]) -> tuple[bytes, bytes]:
        key, rows = self.write(mod_type, mod, before=b"", number=b"", after=b"")
        try:
            if self._is_json:
                written = orjson.dumps(facts)
            else:
                buffer = io.BytesIO()
                fastavro.schemaless_writer(buffer, self._facts_schema, facts)
                written = buffer.getvalue()
        except (ValueError, TypeError, OverflowError) as error:
            raise SchemaError("an event's metadata do not fit", cause=str(error)[:200]) from error
        return key, self._joined(rows, written)

    def _key_pieces(self) -> Pieces:
        if not self._is_key_json:
            return super()._key_pieces()
        pieces: Pieces = []
        for mark, name in self._marked(self._keys):
            pieces += [mark, self._key_piece(name)]
        return [*pieces, _end(self._keys)]

    def _json_pieces(
        self, document: str, captured: Mapping[str, Any], names: Sequence[str]
    ) -> Pieces:
        """Return a row with these columns as JSON; a column that was not captured is null."""
        for name in captured:
            if name not in self._fields:
                raise self._unknown(name)
        pieces: Pieces = []
        for mark, name in self._marked(names):
            pieces.append(mark)
            if name in captured or name in self._keys:
                pieces.append(self._value_piece(document if name in captured else "keys", name))
            else:
                pieces.append(b"null")
        return [*pieces, _end(names)]

    def _marked(self, names: Iterable[str]) -> Iterator[tuple[bytes, str]]:
        """Yield each name with the text before its value: the mark that separates it, its label."""
        mark = b"{"
        for name in names:
            yield mark + self._labels[name], name
            mark = b","

    def _captured(self, captured: Mapping[str, Any]) -> list[str]:
        """Return the names of the captured and key columns, in the order of the row."""
        return [name for name in self._row if name in captured or name in self._keys]


class DebeziumWriter(EventWriter):
    """Writes mods as Debezium's connector does; thread-safe.

    The connector's clock is replaced by the commit timestamp; fields about its run (its watermark,
    when it read the record) are null.
    """

    envelope = Envelope.DEBEZIUM
    facts = DEBEZIUM_TAIL

    @staticmethod
    def _require_form(schema: Mapping[str, Any]) -> None:
        """Raise SchemaError unless the fields besides the rows are the contract's."""
        names = [field["name"] for field in schema["fields"][:2]]
        if names != [BEFORE, "after"] or schema["fields"][2:] != list(DEBEZIUM_TAIL):
            raise other_form(schema)

    def _prepare(self, table: TableSchema, schema: dict[str, Any]) -> None:  # noqa: ARG002 - for another envelope
        if not self._is_json:
            self._values = {column.name: debezium_field(column.type) for column in table.columns}
            self._value_forms = {}

    def _value_pieces(self, mod_type: str, mod: Mod) -> Pieces:
        """Return the frame, and the rows before and after the change."""
        before: Pieces
        after: Pieces
        before = after = [b"null" if self._is_json else NULL]
        if _has_before(mod_type, mod):
            before = self._debezium_row("old", mod.old_values)
        if mod_type != "DELETE":
            after = self._debezium_row("new", mod.new_values)
        if self._is_json:
            return [f'{{"{BEFORE}":'.encode(), *before, b',"after":', *after]
        return [self._value_frame, *before, *after]

    def _debezium_row(self, document: str, captured: Mapping[str, Any]) -> Pieces:
        if self._is_json:
            return self._json_pieces(document, captured, self._row)
        return self._row_pieces(document, captured)[0]

    def _record_facts(self, record: DataChangeRecord, token: str) -> Mapping[str, Any]:
        form, at_ns = self._form, record.commit_timestamp_ns
        sequence = record.record_sequence
        return {
            "version": _DEBEZIUM_VERSION,
            "connector": "spanner",
            "name": form.prefix,
            "ts_ms": at_ns // _NS_PER_MS,
            "snapshot": "false",
            "db": form.database,
            # A number without leading zeros, as in Debezium, if it is a number.
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

    def _mod_facts(
        self, shared: Mapping[str, Any], mod_type: str, mod: Mod, number: int
    ) -> dict[str, Any]:
        columns = {
            "before_columns": self._captured(mod.old_values)
            if _has_before(mod_type, mod)
            else None,
            "after_columns": None if mod_type == "DELETE" else self._captured(mod.new_values),
        }
        return {
            "source": {**shared, "mod_number": number, **columns},
            "op": _DEBEZIUM_OPS[mod_type],
            "ts_ms": shared["ts_ms"],
            "ts_us": shared["ts_us"],
            "ts_ns": shared["ts_ns"],
            "transaction": None,
        }

    def _joined(self, rows: bytes, facts: bytes) -> bytes:
        return b"".join((rows, b",", facts[1:])) if self._is_json else rows + facts


def _end(names: Sequence[str]) -> bytes:
    """Return the end of an object with these names, and its begin where it has none."""
    return b"}" if names else b"{}"


def _has_before(mod_type: str, mod: Mod) -> bool:
    return mod_type == "DELETE" or (mod_type == "UPDATE" and bool(mod.old_values))


class DatastreamWriter(EventWriter):
    """Writes mods as events of Datastream, both times the commit timestamp; thread-safe."""

    envelope = Envelope.DATASTREAM
    facts = DATASTREAM_HEAD

    @staticmethod
    def _require_form(schema: Mapping[str, Any]) -> None:
        """Raise SchemaError unless the fields before the payload are the contract's."""
        fields = schema["fields"]
        if fields[-1]["name"] != PAYLOAD or fields[:-1] != list(DATASTREAM_HEAD):
            raise other_form(schema)

    def _prepare(self, table: TableSchema, schema: dict[str, Any]) -> None:  # noqa: ARG002 - for another envelope
        self._schema_key = payload_key(row_fields(schema).values())

    def _value_pieces(self, mod_type: str, mod: Mod) -> Pieces:
        """Return the facts, then the row after the change (of a DELETE, the row before it)."""
        is_delete = mod_type == "DELETE"
        document, captured = ("old", mod.old_values) if is_delete else ("new", mod.new_values)
        if self._is_json:
            # A column that was not captured has no name here either: null is a value.
            return self._json_pieces(document, captured, self._captured(captured))
        row, _ = self._row_pieces(document, captured)
        return row[1:]  # a payload is never null, so no byte marks it as present

    def _record_facts(self, record: DataChangeRecord, token: str) -> Mapping[str, Any]:  # noqa: ARG002 - the message's header names the stream partition
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

    def _mod_facts(
        self, shared: Mapping[str, Any], mod_type: str, mod: Mod, number: int
    ) -> dict[str, Any]:
        captured = mod.old_values if mod_type == "DELETE" else mod.new_values
        return event_facts(shared, number=number, captured=self._captured(captured))

    def _shared_json(self, shared: Mapping[str, Any]) -> Mapping[str, Any]:
        return facts_as_json(shared)

    def _joined(self, rows: bytes, facts: bytes) -> bytes:
        if self._is_json:
            return b"".join((facts[:-1], f',"{PAYLOAD}":'.encode(), rows, b"}"))
        return b"".join((self._value_frame, facts, rows))

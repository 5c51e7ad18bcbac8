"""Writes changes as events of another product, in Avro or in JSON: what both products share.

An event is one or two rows and facts about the change.  Rows in Avro are compiled by shape, as in
`change_writer`; the facts are one mapping for both formats, written under their part of the value
schema.  Every event is a function of its change and these schemas: no clock is in it, so a change
that is read again has the same bytes.  Keys are those of every other envelope, in either format,
unless they are to be JSON as well.
"""

from __future__ import annotations

import io
import json
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import fastavro

from tidegate.producer.records import DataChangeRecord, Mod
from tidegate.producer.translation.change_writer import ChangeWriter
from tidegate.producer.translation.event_fields import json_field, json_key_field
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.output_form import Envelope, KeyFormat, ValueFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import TableSchema


@dataclass(frozen=True, slots=True)
class EventForm:
    """What events say of their stream, and how they are written."""

    prefix: str = ""
    """The prefix of the stream's topics."""
    project: str = ""
    instance: str = ""
    database: str = ""
    change_stream: str = ""
    value_format: ValueFormat = ValueFormat.AVRO
    key_format: KeyFormat = KeyFormat.AVRO
    """JSON where values are, too."""

    @property
    def stream_path(self) -> str:
        """The change stream's full name, as `StreamStarted` records it."""
        return (
            f"projects/{self.project}/instances/{self.instance}/databases/{self.database}"
            f"/changeStreams/{self.change_stream}"
        )


class EventWriter(ChangeWriter):
    """Writes mods as events, under one table's registered schemas; thread-safe."""

    envelope: Envelope
    facts: Sequence[Mapping[str, Any]]
    """The fields of the value schema that hold no row."""

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
        super().__init__(table, key=key, value=value, timestamps=timestamps)
        self._form = form or EventForm()
        self._facts_schema = fastavro.parse_schema(
            {"type": "record", "name": "Facts", "fields": list(self.facts)}
        )
        if self._form.value_format is ValueFormat.JSON:
            self._texts = {c.name: json_field(c.type, self.envelope) for c in table.columns}
        if self._form.key_format is KeyFormat.JSON:
            self._key_texts = {c.name: json_key_field(c.type) for c in table.key_columns}

    def write_events(self, record: DataChangeRecord, token: str) -> list[tuple[bytes, bytes]]:
        """Return the keys and values of a record's changes, in their order.

        Raises TableChanged for an unknown column, and SchemaError for a value that does not fit or
        a key that is not the primary key.
        """
        of_record = self._facts_of_record(record, token)
        write = self._json if self._form.value_format is ValueFormat.JSON else self._avro
        numbered = enumerate(record.mods, record.first_mod_number)
        return [
            write(record.mod_type, mod, self._facts_of_mod(of_record, record.mod_type, mod, number))
            for number, mod in numbered
        ]

    def key(self, keys: Mapping[str, Any]) -> bytes:
        """Return the key of a change, framed in Avro or as JSON.

        Equal keys have equal bytes in either: they decide the topic partition.  Raises as
        `ChangeWriter.key` does.
        """
        if self._form.key_format is KeyFormat.AVRO:
            return super().key(keys)
        self._require_primary_key(keys)
        columns = [f"{json.dumps(name)}:{self._key_texts[name](keys[name])}" for name in self._keys]
        try:
            return f"{{{','.join(columns)}}}".encode()
        except UnicodeEncodeError as error:
            raise SchemaError("a text that is not Unicode", cause=str(error)[:200]) from error

    # ------------------------------------------------------------ what an envelope defines

    @abstractmethod
    def _facts_of_record(self, record: DataChangeRecord, token: str) -> Mapping[str, Any]:
        """Return what is the same in all events of a record."""

    @abstractmethod
    def _facts_of_mod(
        self, of_record: Mapping[str, Any], mod_type: str, mod: Mod, number: int
    ) -> dict[str, Any]:
        """Return the facts of one event, by the fields of the value schema."""

    @abstractmethod
    def _joined_avro(self, rows: bytes, facts: bytes) -> bytes:
        """Return a value of its rows and its facts."""

    @abstractmethod
    def _json_value(self, mod_type: str, mod: Mod, facts: dict[str, Any]) -> str:
        """Return a value as JSON."""

    # ------------------------------------------------------------ the two formats

    def _avro(self, mod_type: str, mod: Mod, facts: dict[str, Any]) -> tuple[bytes, bytes]:
        key, rows = self.write(mod_type, mod, before=b"", number=b"", after=b"")
        buffer = io.BytesIO()
        try:
            fastavro.schemaless_writer(buffer, self._facts_schema, facts)
        except (ValueError, TypeError, OverflowError) as error:
            raise SchemaError("an event's metadata do not fit", cause=str(error)[:200]) from error
        return key, self._joined_avro(rows, buffer.getvalue())

    def _json(self, mod_type: str, mod: Mod, facts: dict[str, Any]) -> tuple[bytes, bytes]:
        for document in mod:
            iter(document)  # values that cannot be read are refused, whether they are needed or not
        try:
            key = self.key(mod.keys)
        except SchemaError as error:
            raise self._located(error, mod) from error
        try:
            return key, self._json_value(mod_type, mod, facts).encode()
        except UnicodeEncodeError as error:
            raise SchemaError("a text that is not Unicode", cause=str(error)[:200]) from error

    def _row_text(self, captured: Mapping[str, Any], mod: Mod, names: Iterable[str]) -> str:
        """Return a row with these columns as JSON; one that was not captured is null."""
        for name in captured:
            if name not in self._fields:
                raise self._unknown(name)
        columns = []
        for name in names:
            document = captured if name in captured else mod.keys
            text = "null"
            if name in document:
                try:
                    text = self._texts[name](document[name])
                except SchemaError as error:
                    fields: dict[str, Any] = {**error.fields, "column": name}
                    raise SchemaError(error.message, hint=error.hint, **fields) from error
            columns.append(f"{json.dumps(name)}:{text}")
        return f"{{{','.join(columns)}}}"

    def _captured(self, captured: Mapping[str, Any]) -> list[str]:
        """Return the names of the captured columns and the key's, in the order of the row."""
        return [name for name in self._row if name in captured or name in self._keys]


def json_text(facts: Mapping[str, Any]) -> str:
    """Return facts as a JSON object, without spaces."""
    return json.dumps(facts, ensure_ascii=False, separators=(",", ":"))

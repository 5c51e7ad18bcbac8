"""Translates data change records to Kafka messages: their topic, key, value and order key.

A record that shows an unknown column or type raises `TableChanged`; nothing is left out silently.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegate.producer.accelerator import accelerator
from tidegate.producer.errors import TableChanged
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.producer.records import DataChangeRecord, Mod, RecordColumn, UnreadableValues
from tidegate.producer.translation.avro_fields import write_long
from tidegate.producer.translation.change_writer import ChangeWriter, FlatWriter, SourceWriter
from tidegate.producer.translation.event_writer import (
    DatastreamWriter,
    DebeziumWriter,
    EventForm,
    EventWriter,
)
from tidegate.producer.translation.keys import FormerKeys
from tidegate.schemas.avro_types import avro_type
from tidegate.schemas.change_schema import envelope_of
from tidegate.schemas.checksums import origin_of
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.order_key import OrderKey, sequence_pair
from tidegate.schemas.output_form import Envelope, KeyFormat
from tidegate.schemas.progress import TimestampForm
from tidegate.schemas.registry import RegisteredSchema
from tidegate.schemas.tables import Column, ColumnType, TableSchema, folded

_MODS = {"INSERT": b"I", "UPDATE": b"U", "DELETE": b"D"}
_PLANS_MAX = 4096
_ORIGINS_MAX = 65_536
_WRITERS: dict[Envelope, type[ChangeWriter]] = {
    Envelope.TIDEGATE: ChangeWriter,
    Envelope.FLAT: FlatWriter,
}
_EVENT_WRITERS: dict[Envelope, type[EventWriter]] = {
    Envelope.DEBEZIUM: DebeziumWriter,
    Envelope.DATASTREAM: DatastreamWriter,
}


@dataclass(frozen=True, slots=True)
class TableEncoding:
    """The topic of a table's changes, and the registered schemas of their keys and values.

    Raises SchemaError for a value schema that is not the schema of a change.
    """

    table: TableSchema
    topic: str
    key: RegisteredSchema
    value: RegisteredSchema
    timestamps: TimestampForm = TimestampForm.MICROS
    """The form of both schemas."""
    event_form: EventForm | None = None
    """The stream's name in events of other products; other envelopes do not need it."""
    writer: ChangeWriter = field(init=False, repr=False, compare=False)
    events: EventWriter | None = field(init=False, repr=False, compare=False)
    """The writer, if values are events of another product."""
    former_keys: FormerKeys = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the writer of these schemas."""
        envelope, events = envelope_of(self.value.schema), None
        if envelope in _EVENT_WRITERS:
            events = _EVENT_WRITERS[envelope](
                self.table,
                key=self.key,
                value=self.value,
                timestamps=self.timestamps,
                form=self.event_form,
            )
        writer = events or _WRITERS[envelope](
            self.table, key=self.key, value=self.value, timestamps=self.timestamps
        )
        object.__setattr__(self, "events", events)
        object.__setattr__(self, "writer", writer)
        key_format = KeyFormat.AVRO if self.event_form is None else self.event_form.key_format
        former_keys = FormerKeys(self.table, self.key, self.timestamps, key_format, writer.key)
        object.__setattr__(self, "former_keys", former_keys)

    @property
    def is_flat(self) -> bool:
        """Whether values are of the flat envelope."""
        return isinstance(self.writer, FlatWriter)


class ChangePlace(NamedTuple):
    """The topic, key, order key and kind of a change's message."""

    topic: str
    key: bytes
    order_key: bytes
    mod: bytes
    """`I`, `U` or `D`."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """Columns that a table's records show, and that its encoding is known to carry."""

    columns: tuple[RecordColumn, ...]
    encoding: TableEncoding
    renames: Mapping[str, str]
    """Names that records have in another case than the fields, with the fields' names."""


class Translator:
    """Translates the records of one change stream; thread-safe.

    `encodings` holds every known table under the name that Spanner reports.
    """

    def __init__(self, encodings: Mapping[str, TableEncoding], *, change_stream: str) -> None:
        self._encodings = dict(encodings)
        self._keys_only: dict[str, TableEncoding] = {}
        self.change_stream = change_stream
        self._source = SourceWriter(change_stream)
        self._accelerator = accelerator()
        self._plans: dict[tuple[str, int], _Plan] = {}
        self._origins: dict[str, bytes] = {}

    def encoding(self, table: str) -> TableEncoding | None:
        """Return the encoding of a table; None if the table is unknown."""
        return self._encodings.get(table)

    def encodings(self) -> tuple[TableEncoding, ...]:
        """Return the encodings of all known tables, in the order in which they became known."""
        return tuple(self._encodings.values())

    def registered_columns(self, table: str) -> Sequence[str] | None:
        """Return the columns of a table's registered value schema; None for an unknown table.

        It includes columns of other workers and earlier ones, whose types are unknown here.
        """
        encoding = self._encodings.get(table)
        return None if encoding is None else encoding.writer.columns

    def replace(self, encoding: TableEncoding) -> None:
        """Use a table's new encoding for all records translated from now on."""
        self._encodings[encoding.table.name] = encoding

    def todays_key(self, topic: str, key: bytes) -> bytes:
        """Return today's key of a row to which an earlier version gave another key.

        Keys of unknown tables stay the same.
        """
        for encoding in (*self._encodings.values(), *self._keys_only.values()):
            if encoding.topic == topic:
                return encoding.former_keys.todays(key)
        return key

    def know_keys(self, encoding: TableEncoding) -> None:
        """Find the place of an unknown table's changes from its registered key; publish none."""
        self._keys_only[encoding.table.name] = encoding

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return as `translate` does, which never blocks."""
        return self.translate(record, token=token)

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages, in the order of its mods.

        Raises TableChanged for an unknown table, column or type, and SchemaError, with the
        record's coordinates, for a value that its topic's schema cannot represent.
        """
        plan = self._plan(record)
        if plan.renames:
            record = _renamed(record, plan.renames)
        commit_timestamp_us = record.commit_timestamp_ns // NS_PER_US
        try:
            return PublishableRecord(
                commit_timestamp_us=commit_timestamp_us,
                server_transaction_id=record.server_transaction_id,
                record_sequence=record.record_sequence,
                messages=self._messages(record, plan.encoding, token, commit_timestamp_us),
            )
        except SchemaError as error:
            raise _located(
                error,
                table=record.table_name,
                commit_timestamp_us=commit_timestamp_us,
                server_transaction_id=record.server_transaction_id,
                record_sequence=record.record_sequence,
            ) from error

    def place(self, record: DataChangeRecord) -> ChangePlace:
        """Return the place of a record's only change, whether or not it can be published.

        Reads no schema.  Raises TableChanged for a table whose key is unknown or a key column of
        another type, SchemaError for a key or coordinates that cannot be written.
        """
        name = record.table_name
        encoding = self._encodings.get(name) or self._keys_only.get(name)
        if encoding is None:
            raise TableChanged("the table is unknown", table=record.table_name)
        keys = encoding.table.key_columns
        names = {folded(column.name) for column in keys}
        shown = [column for column in record.columns if folded(column.name) in names]
        renames = _require_carried(encoding.table, keys, shown)
        (mod,) = (_renamed(record, renames) if renames else record).mods
        order_key = OrderKey(
            record.commit_timestamp_ns // NS_PER_US,
            record.server_transaction_id,
            sequence_pair(record.record_sequence),
            record.first_mod_number,
        ).encode()
        key = encoding.writer.key(mod.keys)
        return ChangePlace(encoding.topic, key, order_key, _MODS[record.mod_type])

    def _messages(
        self,
        record: DataChangeRecord,
        encoding: TableEncoding,
        token: str,
        commit_timestamp_us: int,
    ) -> tuple[ChangeMessage, ...]:
        topic, write, mod_type = encoding.topic, encoding.writer.write, record.mod_type
        mod_byte = _MODS[mod_type]
        order_keys, before, numbers = self._coordinates(record, commit_timestamp_us)
        origin = self._origins.get(token) or self._origin(token)
        messages: list[ChangeMessage] = []
        if encoding.events is not None:
            events = encoding.events.write_events(record, token)
            for (key, value), order_key in zip(events, order_keys, strict=True):
                messages.append(ChangeMessage(topic, key, value, order_key, mod_byte, origin))
        else:
            after = self._source.after_mod_number(record, is_flat=encoding.is_flat)
            for mod, number, order_key in zip(record.mods, numbers, order_keys, strict=True):
                key, value = write(mod_type, mod, before=before, number=number, after=after)
                messages.append(ChangeMessage(topic, key, value, order_key, mod_byte, origin))
        if encoding.former_keys.may_differ:
            former = encoding.former_keys.former
            return tuple(m._replace(former_keys=former(m.key)) for m in messages)
        return tuple(messages)

    def _coordinates(
        self, record: DataChangeRecord, commit_timestamp_us: int
    ) -> tuple[list[bytes], bytes, list[bytes]]:
        """Return the changes' order keys, the source before the mod number, and these numbers."""
        first, count = record.first_mod_number, len(record.mods)
        if self._accelerator is not None:
            found = self._accelerator.coordinates(
                commit_timestamp_us,
                record.server_transaction_id,
                record.record_sequence,
                first,
                count,
            )
            if found is not None:
                return found
        order_keys = OrderKey(
            commit_timestamp_us,
            record.server_transaction_id,
            sequence_pair(record.record_sequence),
            mod_number=first,
        ).encode_mods(count)
        before = self._source.before_mod_number(record, commit_timestamp_us)
        return order_keys, before, [write_long(number) for number in range(first, first + count)]

    def _origin(self, token: str) -> bytes:
        """Compute a stream partition's origin, and cache it for its other records."""
        if len(self._origins) >= _ORIGINS_MAX:
            self._origins.clear()
        origin = self._origins[token] = origin_of(token)
        return origin

    def _plan(self, record: DataChangeRecord) -> _Plan:
        encoding = self._encodings.get(record.table_name)
        if encoding is None:
            raise TableChanged("a record of an unknown table", table=record.table_name)
        # By identity: the decoder gives equal column lists as one object, and hashing one costs
        # more than the rest of a translation.  The plan keeps the list alive, and so its identity.
        identity = (record.table_name, id(record.columns))
        plan = self._plans.get(identity)
        if plan is None or plan.encoding is not encoding or plan.columns is not record.columns:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            table = encoding.table
            renames = _require_carried(table, table.columns, record.columns)
            plan = self._plans[identity] = _Plan(record.columns, encoding, renames)
        return plan


def _require_carried(
    table: TableSchema, table_columns: Iterable[Column], columns: Iterable[RecordColumn]
) -> dict[str, str]:
    """Return the names that differ in case from the table's columns, with the columns' names.

    Raises TableChanged unless each column is one of the table's and shown with its type, and
    SchemaError for two columns that differ only in case.
    """
    exact = {column.name: column for column in table_columns}
    folded_columns = {folded(name): column for name, column in exact.items()}
    renames: dict[str, str] = {}
    shown_names: dict[str, str] = {}
    for shown in columns:
        column = exact.get(shown.name) or folded_columns.get(folded(shown.name))
        if column is None:
            raise TableChanged(
                "a record shows an unknown column", table=table.name, column=shown.name
            )
        first_shown = shown_names.setdefault(column.name, shown.name)
        if first_shown != shown.name:
            raise SchemaError(
                "a record has two columns whose names differ in case only",
                table=table.name,
                columns=[first_shown, shown.name],
            )
        if column.name != shown.name:
            renames[shown.name] = column.name
        if not _carries(column.type, shown.type):
            raise TableChanged(
                "a record shows a column with another type than the known one",
                table=table.name,
                column=shown.name,
                known=column.type.text,
                type=shown.type.text,
            )
    return renames


def _renamed(record: DataChangeRecord, renames: Mapping[str, str]) -> DataChangeRecord:
    """Return a record whose values have other names; its columns, which name plans, stay."""

    def named(values: Mapping[str, Any]) -> Mapping[str, Any]:
        if isinstance(values, UnreadableValues):
            return values
        return {renames.get(name, name): value for name, value in values.items()}

    mods = tuple(Mod(named(keys), named(new), named(old)) for keys, new, old in record.mods)
    return record._replace(mods=mods)


def _carries(own_type: ColumnType, shown_type: ColumnType) -> bool:
    """Whether values of a type shown in a record fit the Avro type of the table's type.

    A type code that the contract does not know decides nothing (the documentation's example shows
    `INT`): then the catalogue's type is used, and each value is checked against it.
    """
    if own_type == shown_type:
        return True
    try:
        shown_avro = avro_type(shown_type)
    except SchemaError:
        return True
    return bool(avro_type(own_type) == shown_avro)


def _located(error: SchemaError, **where: object) -> SchemaError:
    """Return the error with more coordinates."""
    fields: dict[str, Any] = {**error.fields, **where}
    return SchemaError(error.message, hint=error.hint, **fields)

"""Data change records to Kafka messages: which row, which columns, in which order.

Owns what `docs/protocol.md`, section 4, says about a change: which of `new_values` and `old_values`
is there, and which columns were captured; absent is never told as NULL.  It knows tables and
encoders, which it is given, and neither Avro's bytes nor a registry.  A record that shows a column
or a type that is not known raises `TableChanged`; nothing is left out in silence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tidegate.producer.core.values import Converter, converter
from tidegate.producer.errors import TableChanged
from tidegate.producer.messages import ChangeMessage, PublishableRecord
from tidegate.schemas.change_schema import avro_type
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.order_key import OrderKey, sequence_pair

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tidegate.producer.spanner_records import DataChangeRecord, Mod, RecordColumn
    from tidegate.schemas.tables import ColumnType, TableSchema

__all__ = ["ChangeEncoder", "TableEncoding", "Translator"]

_MODS = {"INSERT": b"I", "UPDATE": b"U", "DELETE": b"D"}
_PLANS_MAX = 4096


class ChangeEncoder(Protocol):
    """Writes plain values under one registered schema."""

    def encode(self, datum: Mapping[str, Any]) -> bytes:
        """Return the framed bytes; raises SchemaError if the datum does not fit the schema."""
        ...


@dataclass(frozen=True, slots=True)
class TableEncoding:
    """Where a table's changes go, and how their keys and values are written."""

    table: TableSchema
    topic: str
    key: ChangeEncoder
    value: ChangeEncoder


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the mods of records with one set of columns are read; made once for each such set."""

    columns: tuple[RecordColumn, ...]
    encoding: TableEncoding
    keys: tuple[tuple[str, Converter], ...]
    converters: Mapping[str, Converter]
    names: tuple[str, ...]


class Translator:
    """Translates the records of one change stream; several threads may share it.

    `encodings` holds every known table under the name that Spanner reports.
    """

    def __init__(self, encodings: Mapping[str, TableEncoding], *, change_stream: str) -> None:
        self._encodings = dict(encodings)
        self._change_stream = change_stream
        self._plans: dict[tuple[str, int], _Plan] = {}

    def encoding(self, table: str) -> TableEncoding | None:
        """Return what is known of a table."""
        return self._encodings.get(table)

    def replace(self, encoding: TableEncoding) -> None:
        """Use a table's new encoding for all records translated from now on."""
        self._encodings[encoding.table.name] = encoding

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages, in the order of its mods.

        Raises TableChanged for an unknown table, column or type, and SchemaError, with the
        record's coordinates, for a value that cannot be told in its topic's schema.
        """
        plan = self._plan(record)
        commit_timestamp_us = record.commit_timestamp_ns // NS_PER_US
        try:
            return PublishableRecord(
                commit_timestamp_us=commit_timestamp_us,
                server_transaction_id=record.server_transaction_id,
                record_sequence=record.record_sequence,
                messages=tuple(self._messages(record, plan, token, commit_timestamp_us)),
            )
        except SchemaError as error:
            raise _located(
                error,
                table=record.table_name,
                commit_timestamp_us=commit_timestamp_us,
                server_transaction_id=record.server_transaction_id,
                record_sequence=record.record_sequence,
            ) from error

    def _messages(
        self, record: DataChangeRecord, plan: _Plan, token: str, commit_timestamp_us: int
    ) -> list[ChangeMessage]:
        encoding = plan.encoding
        sequence = sequence_pair(record.record_sequence)
        mod_byte = _MODS[record.mod_type]
        has_new, has_old = record.mod_type != "DELETE", record.mod_type != "INSERT"
        messages = []
        for mod_number, mod in enumerate(record.mods):
            order_key = OrderKey(
                commit_timestamp_us, record.server_transaction_id, sequence, mod_number
            )
            keys = _key_row(mod, plan)
            new_values, new_columns = None, None
            old_values, old_columns = None, None
            if has_new:
                new_values, new_columns = _row(keys, mod.new_values, plan)
            if has_old:
                old_values, old_columns = _row(keys, mod.old_values, plan)
            value = {
                "mod_type": record.mod_type,
                "new_values": new_values,
                "old_values": old_values,
                "new_columns": new_columns,
                "old_columns": old_columns,
                "source": {
                    "commit_timestamp": commit_timestamp_us,
                    "server_transaction_id": record.server_transaction_id,
                    "record_sequence": record.record_sequence,
                    "mod_number": mod_number,
                    "is_last_record_in_transaction_in_partition": (
                        record.is_last_record_in_transaction_in_partition
                    ),
                    "number_of_records_in_transaction": record.number_of_records_in_transaction,
                    "number_of_partitions_in_transaction": (
                        record.number_of_partitions_in_transaction
                    ),
                    "transaction_tag": record.transaction_tag,
                    "is_system_transaction": record.is_system_transaction,
                    "value_capture_type": record.value_capture_type,
                    "change_stream": self._change_stream,
                    "partition_token": token,
                },
            }
            messages.append(
                ChangeMessage(
                    topic=encoding.topic,
                    key=encoding.key.encode(keys),
                    value=encoding.value.encode(value),
                    order_key=order_key.encode(),
                    mod=mod_byte,
                )
            )
        return messages

    def _plan(self, record: DataChangeRecord) -> _Plan:
        encoding = self._encodings.get(record.table_name)
        if encoding is None:
            raise TableChanged("a record of a table that is not known", table=record.table_name)
        # By identity: the decoder gives equal column lists as one object, and hashing one costs
        # more than the rest of a translation.  The plan keeps the list alive, and so its identity.
        identity = (record.table_name, id(record.columns))
        plan = self._plans.get(identity)
        if plan is None or plan.encoding is not encoding or plan.columns is not record.columns:
            if len(self._plans) >= _PLANS_MAX:
                self._plans.clear()
            plan = _make_plan(encoding, record.columns)
            self._plans[identity] = plan
        return plan


def _make_plan(encoding: TableEncoding, columns: tuple[RecordColumn, ...]) -> _Plan:
    table = encoding.table
    types = {column.name: column.type for column in table.columns}
    converters = {name: converter(column_type) for name, column_type in types.items()}
    for column in columns:
        known = types.get(column.name)
        if known is None:
            raise TableChanged(
                "a record shows a column that is not known", table=table.name, column=column.name
            )
        if not _carries(known, column.type):
            raise TableChanged(
                "a record shows a column with another type than is known",
                table=table.name,
                column=column.name,
                known=known.code,
                type=column.type.code,
            )
    return _Plan(
        columns=columns,
        encoding=encoding,
        keys=tuple((column.name, converters[column.name]) for column in table.key_columns),
        converters=converters,
        names=tuple(column.name for column in table.columns),
    )


def _carries(known: ColumnType, shown: ColumnType) -> bool:
    """Tell whether values of a type shown in a record fit the Avro type of the known one.

    A type code that the contract does not have says nothing (the documentation's example shows
    `INT`): then the catalogue's type holds, and each value is checked against it.
    """
    if known == shown:
        return True
    try:
        shown_avro = avro_type(shown)
    except SchemaError:
        return True
    return bool(avro_type(known) == shown_avro)


def _key_row(mod: Mod, plan: _Plan) -> dict[str, Any]:
    """Return the primary key's values; a key with other columns has no place in a topic."""
    row = {}
    for name, convert in plan.keys:
        try:
            value = mod.keys[name]
            row[name] = None if value is None else convert(value)
        except KeyError as error:
            raise SchemaError("a change lacks a column of its primary key", column=name) from error
        except SchemaError as error:
            raise _located(error, column=name) from error
    if len(mod.keys) != len(row):
        further = sorted(mod.keys.keys() - row.keys())
        raise SchemaError(
            "a change's key has columns that the primary key has not", columns=further
        )
    return row


def _row(
    keys: Mapping[str, Any], captured: Mapping[str, Any], plan: _Plan
) -> tuple[dict[str, Any], list[str] | None]:
    """Return the captured columns with the key's, and their names, or None if they are all."""
    row = dict(keys)
    converters = plan.converters
    for name, value in captured.items():
        convert = converters.get(name)
        if convert is None:
            raise TableChanged(
                "a change holds a column that is not known",
                table=plan.encoding.table.name,
                column=name,
            )
        try:
            row[name] = None if value is None else convert(value)
        except SchemaError as error:
            raise _located(error, column=name) from error
    if len(row) == len(plan.names):
        return row, None
    return row, [name for name in plan.names if name in row]


def _located(error: SchemaError, **where: object) -> SchemaError:
    """Return the error with more coordinates."""
    fields: dict[str, Any] = {**error.fields, **where}
    return SchemaError(error.message, hint=error.hint, **fields)

"""Translates events of files: their place is a file's record; rejected ones are set aside.

Port: `ports.RecordTranslator`, around the one that translates data change records.

A decimal is `NUMERIC` if all of its values fit that, otherwise text, and the value schema of a
topic cannot change between the two.  The records hold the same text in both cases, so values of one
type can be written as the other, if they fit.

Nulls of JSON have no type.  A record holds them as values of columns that it does not show: they
are named if the topic has their columns.  A null whose column has never had a value has no place in
the topic, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from tidegate.producer.datastream.event_records import TEXT_DECIMAL, file_and_record, time_and_turn
from tidegate.producer.datastream.refused_events import dead_letter, set_aside
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.ports import RecordTranslator
from tidegate.producer.records import DataChangeRecord, RecordColumn
from tidegate.producer.translation.pipeline import POISON
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.tables import ColumnType


def with_known_nulls(record: DataChangeRecord, published: Collection[str]) -> DataChangeRecord:
    """Return an event's record without nulls of columns that are neither shown nor `published`."""
    (mod,) = record.mods
    values = mod.new_values or mod.old_values
    if len(values) + len(mod.keys) == len(record.columns):
        return record
    kept = {column.name for column in record.columns}.union(published)
    named = {name: value for name, value in values.items() if name in kept}
    if len(named) == len(values):
        return record
    sides = {"new_values": named} if mod.new_values else {"old_values": named}
    return record._replace(mods=(mod._replace(**sides),))


_OTHER_DECIMAL = {ColumnType("NUMERIC"): TEXT_DECIMAL, TEXT_DECIMAL: ColumnType("NUMERIC")}
_LISTS_MAX = 256


class KnownDecimals:
    """The published types of tables' decimals, for files that have the other type."""

    def __init__(self) -> None:
        self._types: dict[tuple[str, str], ColumnType] = {}
        """By table and column."""
        self._lists: dict[tuple[str, int], tuple[object, tuple[RecordColumn, ...]]] = {}
        """By table and identity: the columns of a record, and the published columns.

        Translators identify equal columns by identity, so the columns are kept.
        """

    def published(self, record: DataChangeRecord) -> DataChangeRecord:
        """Return a record with the published types of its table's decimals."""
        if not self._types:
            return record
        place = (record.table_name, id(record.columns))
        columns = self._lists.get(place)
        if columns is None or columns[0] is not record.columns:
            if len(self._lists) >= _LISTS_MAX:
                self._lists.clear()
            columns = self._lists[place] = record.columns, self._typed(record)
        return record._replace(columns=columns[1])

    def learn(self, record: DataChangeRecord) -> None:
        """Record the types of a record's decimals, which its topic has."""
        for column in record.columns:
            if _may_change(column):
                self._types[record.table_name, column.name] = column.type
        self._lists.clear()

    def _typed(self, record: DataChangeRecord) -> tuple[RecordColumn, ...]:
        table, types = record.table_name, self._types
        return tuple(
            replace(column, type=types.get((table, column.name), column.type))
            if _may_change(column)
            else column
            for column in record.columns
        )


def exchanged(record: DataChangeRecord, name: object) -> DataChangeRecord | None:
    """Return a record with the other decimal type in a column; None for any other column."""
    if not any(column.name == name and _may_change(column) for column in record.columns):
        return None
    columns = (
        replace(column, type=_OTHER_DECIMAL[column.type]) if column.name == name else column
        for column in record.columns
    )
    return record._replace(columns=tuple(columns))


def _may_change(column: RecordColumn) -> bool:
    """Whether a column is a decimal outside of the key, whose type never changes."""
    return column.type in _OTHER_DECIMAL and not column.is_primary_key


class EventTranslator:
    """Gives published records the place of their file's record in a position."""

    def __init__(
        self,
        translator: RecordTranslator,
        *,
        parks: bool,
        columns_of: Callable[[str], Collection[str] | None],
    ) -> None:
        """With `parks` an event that cannot be published becomes a dead letter.

        `columns_of` returns the columns of a table's topic; None if they are not known yet.
        """
        self._translator = translator
        self._parks = parks
        self._columns_of = columns_of
        self._decimals = KnownDecimals()

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        """Return as `translate` does; None if it would block."""
        if not record.mods:
            return _aside(record, token)
        try:
            published = self._decimals.published(self._named(record))
            translated = self._translator.translate_now(published, token=token)
        except POISON:
            return None
        return None if translated is None else _placed(translated, record)

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the event's message; raises the translator's errors unless it is set aside."""
        if not record.mods:
            return _aside(record, token)
        try:
            named = self._named(record)
            translated = self._translated(named, token=token)
            if named is not record:  # the first event of a table makes its columns known
                again = self._named(record)
                if again.mods != named.mods:
                    translated = self._translated(again, token=token)
            return _placed(translated, record)
        except POISON as error:
            if not self._parks:
                raise
            file, number = file_and_record(record.server_transaction_id)
            change = dead_letter(error, record, file=file, number=number, token=token)
            return _placed(PublishableRecord(0, "", "", (), (change,)), record)

    def _named(self, record: DataChangeRecord) -> DataChangeRecord:
        """Return a record with the nulls of JSON for columns of its topic."""
        return with_known_nulls(record, self._columns_of(record.table_name) or ())

    def _translated(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the message of an event, with decimals of its topic's types."""
        attempt = self._decimals.published(record)
        refused: dict[object, IncompatibleChange] = {}
        while True:
            try:
                translated = self._translator.translate(attempt, token=token)
            except IncompatibleChange as error:
                name = error.fields.get("column")
                other = None if name in refused else exchanged(attempt, name)
                if other is None:
                    first = refused.get(name, error)  # the error names the types
                    raise first from first.__cause__
                attempt, refused[name] = other, error
            except SchemaError:
                if refused:
                    self._decimals.learn(attempt)
                raise
            else:
                if refused:
                    self._decimals.learn(attempt)
                return translated


def _aside(record: DataChangeRecord, token: str) -> PublishableRecord:
    file, number = file_and_record(record.server_transaction_id)
    return set_aside(record, file=file, number=number, token=token)


def _placed(translated: PublishableRecord, record: DataChangeRecord) -> PublishableRecord:
    """Return a record with its place in a position; its time is the first open one.

    That is its release time if its place in the order was closed.
    """
    file, number = file_and_record(record.server_transaction_id)
    earliest_us, turn = time_and_turn(record.record_sequence)
    return translated._replace(
        commit_timestamp_us=min(earliest_us, record.commit_timestamp_ns // NS_PER_US),
        server_transaction_id=file,
        record_sequence=f"{number}/{turn}",
    )

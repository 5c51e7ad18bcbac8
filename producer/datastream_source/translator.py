"""Translates events of files: their place is a file's record, and what is refused goes aside.

Port: `ports.RecordTranslator`, around the one that translates data change records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from tidegate.producer.datastream_source.aside import dead_letter, set_aside
from tidegate.producer.datastream_source.event_records import file_and_record, time_and_turn
from tidegate.producer.datastream_source.json_nulls import with_known_nulls
from tidegate.producer.datastream_source.known_decimals import KnownDecimals, exchanged
from tidegate.producer.errors import IncompatibleChange
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.ports import RecordTranslator
from tidegate.producer.records import DataChangeRecord
from tidegate.producer.translation.pipeline import POISON
from tidegate.schemas.errors import SchemaError
from tidegate.schemas.instants import NS_PER_US


class EventTranslator:
    """Gives published records the place that a position knows: the file and its record."""

    def __init__(
        self,
        translator: RecordTranslator,
        *,
        parks: bool,
        columns_of: Callable[[str], Collection[str] | None],
    ) -> None:
        """`parks`: an event that cannot be published becomes a dead letter.

        `columns_of` returns the columns that the topic of a table has; None if it is not known yet.
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
        """Return the event's message; raises what the translator raises unless it is set aside."""
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
        """Return a record with the nulls of JSON that its topic can name."""
        return with_known_nulls(record, self._columns_of(record.table_name) or ())

    def _translated(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the message of an event, with decimals of the types that its topic has."""
        attempt = self._decimals.published(record)
        refused: dict[object, IncompatibleChange] = {}
        while True:
            try:
                translated = self._translator.translate(attempt, token=token)
            except IncompatibleChange as error:
                name = error.fields.get("column")
                other = None if name in refused else exchanged(attempt, name)
                if other is None:
                    first = refused.get(name, error)  # it names the types as they are
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
    """Return a record as a position sees it; its time is the first one that was open.

    That is its release time if its place in the order was closed.
    """
    file, number = file_and_record(record.server_transaction_id)
    earliest_us, turn = time_and_turn(record.record_sequence)
    return translated._replace(
        commit_timestamp_us=min(earliest_us, record.commit_timestamp_ns // NS_PER_US),
        server_transaction_id=file,
        record_sequence=f"{number}/{turn}",
    )

"""A translator that leaves out what the stream's filter says, and one for the tables' catalogue.

The first is the outermost one: what is left out is neither translated nor parked, and no registry
sees its table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import structlog

from tidegate.producer.description import StreamDescription
from tidegate.producer.messages import PublishableRecord
from tidegate.producer.ports import Catalogue, RecordTranslator
from tidegate.producer.record_filter import RecordFilter
from tidegate.producer.records import DataChangeRecord
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.instants import NS_PER_US
from tidegate.schemas.tables import TableSchema

_log = structlog.get_logger()


class FilteringTranslator:
    """Translates what the filter leaves of records; port: `ports.RecordTranslator`."""

    def __init__(self, translator: RecordTranslator, record_filter: RecordFilter) -> None:
        self._translator = translator
        self._filter = record_filter

    def translate_now(self, record: DataChangeRecord, *, token: str) -> PublishableRecord | None:
        """Return as `translate` does; None if it would block."""
        if self._filter.leaves_out(record):
            return _nothing_of(record)
        return self._translator.translate_now(self._filter.narrowed(record), token=token)

    def translate(self, record: DataChangeRecord, *, token: str) -> PublishableRecord:
        """Return the record's changes as messages, none for a record that is left out.

        Raises what the translator raises.
        """
        if self._filter.leaves_out(record):
            return _nothing_of(record)
        return self._translator.translate(self._filter.narrowed(record), token=token)


class FilteredCatalogue:
    """The catalogue as if it held nothing of what is left out; port: `ports.Catalogue`."""

    def __init__(
        self, catalogue: Catalogue, record_filter: RecordFilter, *, is_new: bool = False
    ) -> None:
        """Look through a filter; `is_new`: the stream has not begun, so names can be corrected."""
        self._catalogue = catalogue
        self._filter = record_filter
        self._is_new = is_new

    def describe(self, stream: str) -> StreamDescription:
        """Return a change stream with the tables that are published.

        Raises ConfigError for a new stream of which the filter leaves no table, or a column of a
        primary key out, or that does not watch what the filter names.
        """
        found = self._catalogue.describe(stream)
        wrong = self._filter.unmatched(found.tables) if self._is_new else []
        if wrong:
            watched = ", ".join(table.name for table in found.tables)
            raise ConfigError(
                f"{wrong[0]} is not in the change stream",
                hint=f"It watches {watched}; a name with * in it may be one of a later table",
            )
        tables = tuple(self._narrowed(found.tables))
        if self._is_new and found.tables and not tables and not found.watches_all:
            watched = ", ".join(table.name for table in found.tables)
            raise ConfigError(
                "tables: the filter leaves out every table that the change stream watches",
                hint=f"It watches {watched}",
            )
        return replace(found, tables=tables)

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        """Return a table as it is published; None if there is no such table.

        Raises SchemaError for one whose primary key the filter leaves out in part.
        """
        found = self._catalogue.table(name, stream=stream, read_ns=read_ns)
        return None if found is None else self._filter.narrowed_table(found)

    def _narrowed(self, tables: Iterable[TableSchema]) -> Iterator[TableSchema]:
        for table in tables:
            if not self._filter.takes_table(table.name):
                continue
            try:
                yield self._filter.narrowed_table(table)
            except SchemaError as error:
                if self._is_new:
                    raise ConfigError(error.message, hint=error.hint) from error
                _log.warning("table not registered", table=table.name, error=str(error))


def _nothing_of(record: DataChangeRecord) -> PublishableRecord:
    return PublishableRecord(
        commit_timestamp_us=record.commit_timestamp_ns // NS_PER_US,
        server_transaction_id=record.server_transaction_id,
        record_sequence=record.record_sequence,
        messages=(),
        filtered=len(record.mods),
    )

"""Views of a catalogue: without the tables and columns left out, and with second names of tables.

Rows that are read on demand are records of a table with a second name (`schemas.topics.beside`), so
its topic, its schemas and its place in the progress topic are created like those of a later table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import structlog

from tidegate.producer.description import StreamDescription
from tidegate.producer.ports import Catalogue
from tidegate.producer.record_filter import RecordFilter
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import beside, table_of

_OTHER_NAME_HINT = "Rename the table, or leave it out (tables_left_out)"

_log = structlog.get_logger()


class FilteredCatalogue:
    """A catalogue without the tables and columns that are left out; port: `ports.Catalogue`."""

    def __init__(
        self, catalogue: Catalogue, record_filter: RecordFilter, *, is_new: bool = False
    ) -> None:
        """With `is_new` the stream has not begun, so names can be corrected."""
        self._catalogue = catalogue
        self._filter = record_filter
        self._is_new = is_new

    def describe(self, stream: str) -> StreamDescription:
        """Return a change stream with its published tables.

        Raises ConfigError for a new stream if the filter leaves out all tables or a primary key
        column, or names a table or column that the change stream does not watch.
        """
        described = self._catalogue.describe(stream)
        wrong = self._filter.unmatched(described.tables) if self._is_new else []
        watched = ", ".join(table.name for table in described.tables)
        if wrong:
            raise ConfigError(
                f"{wrong[0]} is not in the change stream",
                hint=f"It watches {watched}; a name with * in it may be one of a later table",
            )
        tables = tuple(self._narrowed(described.tables))
        if self._is_new and described.tables and not tables and not described.watches_all:
            raise ConfigError(
                "tables: the filter leaves out every table that the change stream watches",
                hint=f"It watches {watched}",
            )
        return replace(described, tables=tables)

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        """Return a table as published; None if it does not exist.

        Raises SchemaError for a table with a primary key column that the filter leaves out.
        """
        table = self._catalogue.table(name, stream=stream, read_ns=read_ns)
        return None if table is None else self._filter.narrowed_table(table)

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


class BesideCatalogue:
    """A catalogue that finds tables under both names; port: `ports.Catalogue`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def describe(self, stream: str) -> StreamDescription:
        """Return a change stream and its tables, under their first names."""
        return self._catalogue.describe(stream)

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        """Return a table under either name; None if it does not exist.

        Raises SchemaError for a table of the database whose first name looks like a second one.
        """
        first = table_of(name)
        if first == name:
            return self._catalogue.table(name, stream=stream, read_ns=read_ns)
        if self._catalogue.table(name, stream=stream, read_ns=read_ns) is not None:
            require_other_name(name)
        table = self._catalogue.table(first, stream=stream, read_ns=read_ns)
        return None if table is None else replace(table, name=name)


def require_other_name(table: str) -> None:
    """Raise SchemaError for a table whose name looks like the second name of another one."""
    if table_of(table) != table:
        raise SchemaError(_other_name_message(table), hint=_OTHER_NAME_HINT, table=table)


def require_other_names(tables: Iterable[TableSchema]) -> None:
    """Raise ConfigError for a table of the database whose name looks like a second name."""
    for table in tables:
        if table_of(table.name) != table.name:
            raise ConfigError(_other_name_message(table.name), hint=_OTHER_NAME_HINT)


def _other_name_message(name: str) -> str:
    return f"table {name}: its topic would be that of rows which are read on demand ({beside('')})"

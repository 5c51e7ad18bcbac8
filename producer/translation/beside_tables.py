"""The catalogue with a second name for each table: that of its rows which are read on demand.

Such rows are records of a table of that name (`schemas.topics.beside`), so its topic, its schemas
and its place in the progress topic come about as those of a later table do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tidegate.producer.description import StreamDescription
from tidegate.producer.ports import Catalogue
from tidegate.schemas.errors import ConfigError, SchemaError
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import beside, table_of

_HINT = "Rename the table, or leave it out (tables_left_out)"


class BesideCatalogue:
    """Finds tables under both names; port: `ports.Catalogue`."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def describe(self, stream: str) -> StreamDescription:
        """Return a change stream and its tables, under their own names."""
        return self._catalogue.describe(stream)

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:
        """Return a table under the name that was asked for; None if there is no such table.

        Raises SchemaError for a table of the database that has such a name itself.
        """
        own = table_of(name)
        if own == name:
            return self._catalogue.table(name, stream=stream, read_ns=read_ns)
        if self._catalogue.table(name, stream=stream, read_ns=read_ns) is not None:
            require_other_name(name)
        found = self._catalogue.table(own, stream=stream, read_ns=read_ns)
        return None if found is None else replace(found, name=name)


def require_other_name(table: str) -> None:
    """Raise SchemaError for a table that is named as rows on demand are."""
    if table_of(table) != table:
        raise SchemaError(_message(table), hint=_HINT, table=table)


def require_other_names(tables: Iterable[TableSchema]) -> None:
    """Raise ConfigError for a table of the database that is named as rows on demand are."""
    for table in tables:
        if table_of(table.name) != table.name:
            raise ConfigError(_message(table.name), hint=_HINT)


def _message(name: str) -> str:
    return f"table {name}: its topic would be that of rows which are read on demand ({beside('')})"

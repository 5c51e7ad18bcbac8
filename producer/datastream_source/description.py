"""The files as the catalogue of a stream: tables are known once their first event was read."""

from __future__ import annotations

from tidegate.producer.description import StreamDescription
from tidegate.producer.translation.catalogues import require_other_name
from tidegate.schemas.tables import TableSchema

FILES_DIALECT = "DATASTREAM"
"""In `StreamStarted`, in the place of a database's dialect."""


class FilesCatalogue:
    """Knows no table before its events: they have the columns; port: `ports.Catalogue`."""

    def describe(self, stream: str) -> StreamDescription:
        """Return the stream, which takes each table that appears."""
        return StreamDescription(
            name=stream,
            dialect=FILES_DIALECT,
            exists=True,
            others=(stream,),
            watches_all=True,
            options={},
            tables=(),
        )

    def table(self, name: str, *, stream: str, read_ns: int | None = None) -> TableSchema | None:  # noqa: ARG002 - see the port
        """Return None: a record of the table says what it has.

        Raises SchemaError for a table that is named as rows on demand are: files have none.
        """
        require_other_name(name)
        return None

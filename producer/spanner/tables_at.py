"""Tables as they were at a time: a read at that time can name no column that came later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tidegate.producer.ports import Catalogue, Tasks
from tidegate.schemas.tables import TableSchema

_T = TypeVar("_T")


class TablesAt:
    """Asks the catalogue, beside the other queries; remembers each table at its last time.

    Google's page on the information schema lets its views be read at an exact time.
    """

    def __init__(self, catalogue: Catalogue, *, stream: str, tasks: Tasks) -> None:
        """`stream` is the change stream that says which columns are watched."""
        self._catalogue = catalogue
        self._stream = stream
        self._tasks = tasks
        self._known: dict[str, tuple[int, TableSchema | None]] = {}

    async def table(self, name: str, *, read_ns: int) -> TableSchema | None:
        """Return a table as it was; None if there was none.  Raises QueryError and SchemaError."""
        at, found = self._known.get(name, (None, None))
        if at != read_ns:
            found = await self._tasks.in_thread(
                lambda: self._catalogue.table(name, stream=self._stream, read_ns=read_ns)
            )
            self._known[name] = (read_ns, found)
        return found

    async def in_thread(self, ask: Callable[[], _T]) -> _T:
        """Ask a catalogue something else, beside the other queries."""
        return await self._tasks.in_thread(ask)

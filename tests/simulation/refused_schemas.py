"""A registry that refuses versions of a subject: rules of its own, a quota, a referee who is away.

From the first refusal on it refuses every further version of the subject, until `lift`.  A worker
asks for a version with all columns of a table whenever a change names one that it does not know, so
a refusal concerns every column but those that each worker knows from its start, and every change of
a table that some worker does not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from random import Random
from typing import Any

from tests.simulation.tables import SimTables
from tidegate.schemas.change_schema import row_fields
from tidegate.schemas.registry import InMemorySchemaRegistry
from tidegate.schemas.tables import TableSchema
from tidegate.schemas.topics import TopicNames

__all__ = ["RefusedSchemas"]


class RefusedSchemas:
    """The refusals of one run; `chance` is that of a new version to be refused."""

    def __init__(
        self,
        random: Random,
        registry: InMemorySchemaRegistry,
        tables: SimTables,
        names: TopicNames,
        *,
        chance: float,
    ) -> None:
        self._random = random
        self._tables = tables
        self._registry = registry
        self._names = names
        self._chance = chance
        self._refused: set[str] = set()
        self._known_at_start = {names.data(table) for table in tables.names}
        self.takes_unknown_tables = False
        """A worker cannot even park a change of a table for which it has no schema yet: one that
        came later, or was dropped before the worker started."""
        self.subjects: set[str] = set()
        """All of which a version was ever refused."""
        self.columns: defaultdict[str, set[str]] = defaultdict(set)
        """Data topic -> those that some worker may not have known at a refusal."""
        self.tables: set[str] = set()
        """Data topics of the tables that some worker may not have known at all at a refusal."""

    def refuses(self, subject: str, schema: dict[str, Any]) -> bool:
        """Whether a version is refused."""
        topic = subject.removesuffix("-value").removesuffix("-key")
        is_known = self._is_known(topic)
        if self.takes_unknown_tables and not is_known:
            return False
        if subject not in self._refused and self._random.random() >= self._chance:
            return False
        self._refused.add(subject)
        self.subjects.add(subject)
        if not is_known:
            self.tables.add(topic)
        if subject.endswith("-value"):
            current = self._table(topic)
            present = _names(column.name for column in current.columns) if current else set()
            versions = self._registry.versions(subject)
            first = row_fields(versions[0].schema) if versions else {}
            self.columns[topic] |= _names(row_fields(schema)) - (present & _names(first))
        return True

    def _table(self, topic: str) -> TableSchema | None:
        return self._tables.table(self._names.table(topic) or "", stream="s")

    def _is_known(self, topic: str) -> bool:
        """Whether every worker knows a topic's table from its start."""
        is_there = self._table(topic) is not None
        return is_there and topic in self._known_at_start

    def lift(self) -> None:
        """Let versions in until the next refusal."""
        self._refused.clear()

    def end(self) -> None:
        """Let every version in for good."""
        self.lift()
        self._chance = 0.0


def _names(columns: Iterable[str]) -> set[str]:
    """Return names without case, as Spanner compares them."""
    return {name.lower() for name in columns}

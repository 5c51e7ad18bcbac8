"""The schema registry as the rest of Tidegate sees it, and one in memory for tests."""

from __future__ import annotations

import json
from typing import Any, Protocol

from tidegate.schemas.errors import SchemaError

__all__ = ["InMemorySchemaRegistry", "SchemaRegistry"]


class SchemaRegistry(Protocol):
    """Confluent's registry, reduced to what is needed; ids are for ever, so they may be cached."""

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject, registering it if it is new.

        Raises SchemaError if the registry refuses it (not compatible with the subject's versions),
        UnreachableError if it does not answer.
        """
        ...

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the schema of an id; raises SchemaError if there is none, or UnreachableError."""
        ...

    def require_compatibility(self, subject: str, level: str) -> None:
        """Set the subject's compatibility level (`BACKWARD`, `NONE`, …)."""
        ...


class InMemorySchemaRegistry:
    """A registry for one process: ids count from 1, equal schemas share one; none is refused."""

    def __init__(self) -> None:
        """Start empty."""
        self._ids: dict[str, int] = {}
        self.subjects: dict[str, list[int]] = {}
        self.levels: dict[str, str] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject."""
        schema_id = self._ids.setdefault(json.dumps(schema), len(self._ids) + 1)
        versions = self.subjects.setdefault(subject, [])
        if schema_id not in versions:
            versions.append(schema_id)
        return schema_id

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return the schema of an id; raises SchemaError if there is none."""
        for text, known in self._ids.items():
            if known == schema_id:
                schema: dict[str, Any] = json.loads(text)
                return schema
        message = "the registry knows no schema of this id"
        raise SchemaError(message, schema_id=schema_id)

    def require_compatibility(self, subject: str, level: str) -> None:
        """Remember the level."""
        self.levels[subject] = level

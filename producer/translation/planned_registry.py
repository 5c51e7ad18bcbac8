"""A registry that writes nothing: what would be registered is kept here, under ids of its own.

It answers as the registry would after the registration, except that it does not know whether the
registry would accept a schema.
"""

from __future__ import annotations

from typing import Any

from tidegate.schemas.registry import RegisteredSchema, SchemaRegistry

_ID_MAX = (1 << 31) - 1
"""Ids count down from here, where no registry's ids are."""


class PlannedRegistry:
    """Reads `registry`; implements `schemas.registry.SchemaRegistry`.  For one thread."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._planned: dict[str, list[RegisteredSchema]] = {}
        self._schemas: dict[int, dict[str, Any]] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject, kept here if it is new."""
        for known in self.versions(subject):
            if known.schema == schema:
                return known.schema_id
        schema_id = _ID_MAX - len(self._schemas)
        self._schemas[schema_id] = schema
        self._planned.setdefault(subject, []).append(RegisteredSchema(schema_id, schema))
        return schema_id

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the subject's versions, those that are kept here last."""
        return (*self._registry.versions(subject), *self._planned.get(subject, ()))

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema by id; raises SchemaError for an unknown id."""
        known = self._schemas.get(schema_id)
        return self._registry.schema(schema_id) if known is None else known

    def compatibility(self, subject: str) -> str | None:
        """Return the subject's own level."""
        return self._registry.compatibility(subject)

    def set_compatibility(self, subject: str, level: str) -> None:
        """Set nothing."""

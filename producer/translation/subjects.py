"""The registry's subjects: missing schemas and levels are created, existing ones are respected.

A user that may only read is enough if both exist already.
"""

from __future__ import annotations

from typing import Any

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.registry import RegisteredSchema, SchemaRegistry

_LEVEL = "BACKWARD"
_HINT = f"Set the subject's compatibility to {_LEVEL}"
_SUFFICIENT = ("BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
# Some registries report NONE if no level was set.
_UNSET = (None, "NONE")
_PLANNED_ID_MAX = (1 << 31) - 1
"""Ids of planned schemas count down from here; registries do not use such ids."""


def is_registered(registry: SchemaRegistry, subject: str, schema: dict[str, Any]) -> bool:
    """Whether `register` would find the schema; raises ConfigError for a level that is too weak."""
    require_no_weaker(registry, subject)
    return any(version.schema == schema for version in registry.versions(subject))


def register(registry: SchemaRegistry, subject: str, schema: dict[str, Any]) -> int:
    """Return the id of a schema under a subject, registered if it is new, with its level set.

    Raises SchemaError if the registry rejects the schema, ConfigError if it does not allow this
    user the call or the subject has a weaker level, UnreachableError.
    """
    ids = [version.schema_id for version in registry.versions(subject) if version.schema == schema]
    schema_id = ids[-1] if ids else registry.register(subject, schema)
    # After the first version: some registries have no subject without one.
    require_backward(registry, subject)
    return schema_id


def require_backward(registry: SchemaRegistry, subject: str) -> None:
    """Ensure that the registry rejects versions that cannot read the values of earlier ones.

    Sets the level where it is unset; raises ConfigError if that fails, and for a weaker level.
    """
    if require_no_weaker(registry, subject) in _SUFFICIENT:
        return
    try:
        registry.set_compatibility(subject, _LEVEL)
    except ConfigError as error:
        raise ConfigError(
            f"registry_url: subject {subject} has no compatibility level, and it cannot be set",
            hint=f"{_HINT}, or let the registry's user set it",
            cause=error.message,
        ) from error


def require_no_weaker(registry: SchemaRegistry, subject: str) -> str | None:
    """Return a subject's own level; raises ConfigError if it is weaker than BACKWARD.

    An operator chose it, so it is not overwritten.
    """
    level = registry.compatibility(subject)
    if level not in (*_SUFFICIENT, *_UNSET):
        raise ConfigError(
            f"registry_url: subject {subject} has the compatibility {level}",
            hint=_HINT,
            expected=_LEVEL,
        )
    return level


class PlannedRegistry:
    """A registry that writes nothing; implements `schemas.registry.SchemaRegistry`, for one thread.

    It answers as `registry` would after each registration, except that it does not know whether the
    registry would accept a schema.
    """

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry
        self._planned: dict[str, list[RegisteredSchema]] = {}
        self._schemas: dict[int, dict[str, Any]] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject; a new one is kept in memory."""
        for version in self.versions(subject):
            if version.schema == schema:
                return version.schema_id
        schema_id = _PLANNED_ID_MAX - len(self._schemas)
        self._schemas[schema_id] = schema
        self._planned.setdefault(subject, []).append(RegisteredSchema(schema_id, schema))
        return schema_id

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the subject's versions, the planned ones last."""
        return (*self._registry.versions(subject), *self._planned.get(subject, ()))

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema by id; raises SchemaError for an unknown id."""
        planned = self._schemas.get(schema_id)
        return self._registry.schema(schema_id) if planned is None else planned

    def compatibility(self, subject: str) -> str | None:
        """Return the subject's own level."""
        return self._registry.compatibility(subject)

    def set_compatibility(self, subject: str, level: str) -> None:
        """Change nothing."""

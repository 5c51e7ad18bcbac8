"""The registry's subjects: schemas and levels are made where they are missing, else respected.

A user that may only read needs nothing more where somebody has made both.
"""

from __future__ import annotations

from typing import Any

from tidegate.schemas.errors import ConfigError
from tidegate.schemas.registry import SchemaRegistry

_LEVEL = "BACKWARD"
_HINT = f"Set the subject's compatibility to {_LEVEL}"
_SUFFICIENT = ("BACKWARD", "BACKWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
# Some registries report NONE where nothing was set.
_UNSET = (None, "NONE")


def is_registered(registry: SchemaRegistry, subject: str, schema: dict[str, Any]) -> bool:
    """Whether `register` would find the schema; raises ConfigError for a level that is too weak."""
    require_no_weaker(registry, subject)
    return any(one.schema == schema for one in registry.versions(subject))


def register(registry: SchemaRegistry, subject: str, schema: dict[str, Any]) -> int:
    """Return the id of a schema under a subject, registered if it is new, with its level set.

    Raises SchemaError if the registry refuses the schema, ConfigError if it does not let this user
    do so or the subject has a weaker level, UnreachableError.
    """
    known = [one.schema_id for one in registry.versions(subject) if one.schema == schema]
    schema_id = known[-1] if known else registry.register(subject, schema)
    # After the first version: some registries have no subject without one.
    require_backward(registry, subject)
    return schema_id


def require_backward(registry: SchemaRegistry, subject: str) -> None:
    """Make sure that the registry refuses versions that cannot read what earlier ones wrote.

    Sets the level where it is unset; raises ConfigError if it cannot, and for a weaker level.
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
    """Return a subject's own level; raises ConfigError if it promises less than BACKWARD.

    An operator has chosen it: it is not overwritten.
    """
    level = registry.compatibility(subject)
    if level not in (*_SUFFICIENT, *_UNSET):
        raise ConfigError(
            f"registry_url: subject {subject} has the compatibility {level}",
            hint=_HINT,
            expected=_LEVEL,
        )
    return level

"""The port to the schema registry, and a registry in memory for tests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.schemas.errors import SchemaError, SchemaNotFound


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """One version of a subject."""

    schema_id: int
    schema: dict[str, Any]


class SchemaRegistry(Protocol):
    """Confluent's registry, reduced to five calls; ids never change, so they may be cached.

    Calls block until the registry answers or its time-out has passed.  Each raises UnreachableError
    if the registry does not answer, and ConfigError if it does not allow this user the call.
    """

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject, registering it if it is new.

        Of two concurrent calls, the later version may get the lower id, and equal schemas may
        become two versions with one id.  Raises SchemaError if the registry rejects the schema as
        incompatible with the subject's versions.
        """
        ...

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the subject's versions, the oldest first; empty if the subject does not exist.

        Includes everything that any client registered before the call.
        """
        ...

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema by id; raises SchemaNotFound for an unknown id."""
        ...

    def compatibility(self, subject: str) -> str | None:
        """Return the subject's own compatibility level (`BACKWARD`, `NONE`, …); None if unset."""
        ...

    def set_compatibility(self, subject: str, level: str) -> None:
        """Set the subject's compatibility level."""
        ...


class InMemorySchemaRegistry:
    """A registry for one process: ids count from 1, equal schemas share one.

    `BACKWARD` is checked as Avro defines it, without promotions: a new field has a default, an
    existing field keeps its type, and unions and enums only grow.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._ids: dict[str, int] = {}
        self.subjects: dict[str, list[int]] = {}
        self.levels: dict[str, str] = {}

    def register(self, subject: str, schema: dict[str, Any]) -> int:
        """Return the id of a schema under a subject."""
        text = json.dumps(schema)
        versions = self.subjects.get(subject, [])
        if self._ids.get(text) in versions:
            return self._ids[text]
        if self.levels.get(subject) == "BACKWARD" and versions:
            _require_backward(schema, self.schema(versions[-1]), subject=subject)
        schema_id = self._ids.setdefault(text, len(self._ids) + 1)
        self.subjects.setdefault(subject, []).append(schema_id)
        return schema_id

    def versions(self, subject: str) -> tuple[RegisteredSchema, ...]:
        """Return the subject's versions."""
        return tuple(
            RegisteredSchema(schema_id, self.schema(schema_id))
            for schema_id in self.subjects.get(subject, ())
        )

    def schema(self, schema_id: int) -> dict[str, Any]:
        """Return a schema by id; raises SchemaNotFound for an unknown id."""
        for text, number in self._ids.items():
            if number == schema_id:
                schema: dict[str, Any] = json.loads(text)
                return schema
        raise SchemaNotFound("the registry has no schema with this id", schema_id=schema_id)

    def compatibility(self, subject: str) -> str | None:
        """Return the level that was set."""
        return self.levels.get(subject)

    def set_compatibility(self, subject: str, level: str) -> None:
        """Store the level."""
        self.levels[subject] = level


def _require_backward(reader: Any, writer: Any, *, subject: str) -> None:
    """Raise SchemaError unless `reader` reads what `writer` wrote, by the rules for records."""
    if isinstance(reader, list) and isinstance(writer, list):
        branches = {_branch(branch): branch for branch in reader}
        for old in writer:
            if _branch(old) not in branches:
                _refuse(subject, reader)
            _require_backward(branches[_branch(old)], old, subject=subject)
    elif _is(reader, "array") and _is(writer, "array"):
        _require_backward(reader["items"], writer["items"], subject=subject)
    elif _is(reader, "enum") and _is(writer, "enum"):
        if not set(writer["symbols"]) <= set(reader["symbols"]):
            _refuse(subject, reader)
    elif _is(reader, "record") and _is(writer, "record"):
        old_fields = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            old = old_fields.get(field["name"])
            if old is not None:
                _require_backward(field["type"], old["type"], subject=subject)
            elif "default" not in field:
                _refuse(subject, field["name"])
    elif reader != writer:
        _refuse(subject, reader)


def _is(schema: Any, kind: str) -> bool:
    return isinstance(schema, dict) and schema.get("type") == kind


def _branch(schema: Any) -> tuple[Any, ...]:
    """Return the key by which a union distinguishes its branches."""
    if not isinstance(schema, dict):
        return (schema,)
    return schema["type"], schema.get("name")


def _refuse(subject: str, refused: object) -> None:
    raise SchemaError(
        "the registry rejects a schema as incompatible with earlier versions",
        subject=subject,
        found=refused,
    )

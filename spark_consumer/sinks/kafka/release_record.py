"""The record of a release in the releases topic: what a later run, or a follower, reads of it.

Its key is the query's id, so compaction keeps the newest release; its value is JSON, so a follower
needs no schema.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

from tidegate.schemas.errors import ConfigError

FORMAT = 1
"""The value's format; a program refuses others."""

CHANGES, TRANSACTIONS = "changes", "transactions"

_NOT_OURS = "the newest record of a releases topic is not one of Tidegate's"


@dataclass(frozen=True, slots=True)
class ReleaseRecord:
    """A release that the output topic has; `rows` are its changes there."""

    query_id: str
    release: int
    after_us: int
    through_us: int
    rows: int
    topic_id: str
    """Kafka's id of the output topic: one that is re-created has another."""
    topic_partitions: int
    """Those of the output topic: another number would move keys."""
    holds: str = CHANGES
    """Whether a record of the output topic is a change (`changes`) or a transaction."""

    @property
    def key(self) -> bytes:
        """The record's key."""
        return self.query_id.encode()

    @property
    def value(self) -> bytes:
        """The record's value."""
        content = {"format": FORMAT, **asdict(self)}
        if self.holds == CHANGES:  # what the records of older programs are
            del content["holds"]
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def parse(cls, value: bytes | None, *, topic: str) -> ReleaseRecord:
        """Return what a value says; raises ConfigError for one of another program or version."""
        hint = "Use a topic of its own for each query, and let only tidegate-consumer write to it"
        try:
            found = json.loads(value or b"")
        except ValueError:
            raise ConfigError(_NOT_OURS, hint=hint, topic=topic) from None
        if not isinstance(found, dict) or "format" not in found:
            raise ConfigError(_NOT_OURS, hint=hint, topic=topic)
        if found["format"] != FORMAT:
            raise ConfigError(
                f"a releases topic has format {found['format']!r}, this version knows {FORMAT}",
                hint="Install a newer version of Tidegate",
                topic=topic,
            )
        found.setdefault("holds", CHANGES)
        content: dict[str, Any] = {name: found.get(name) for name, _ in _FIELDS}
        if any(type(content[name]) is not kind for name, kind in _FIELDS):
            raise ConfigError(_NOT_OURS, hint=hint, topic=topic)
        return cls(**content)


_KINDS = {"str": str, "int": int}
_FIELDS = tuple((one.name, _KINDS[str(one.type)]) for one in fields(ReleaseRecord))

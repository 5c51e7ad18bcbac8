"""What a source has to offer before a stream exists: its objects with fields, types and keys.

The same for all kinds of sources, and what `tidegate-producer discover` prints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SourceField:
    """A column of an object."""

    name: str
    type: str
    """Spanner's name of the type, or Datastream's unified type."""
    nullable: bool | None
    """None: the source does not say."""
    key_position: int | None = None
    """From 1, in the order of the primary key; None outside of it."""
    watched_by: tuple[str, ...] = ()
    """With Spanner: the change streams that capture it."""


@dataclass(frozen=True, slots=True)
class SourceObject:
    """A table, or another kind of object with rows."""

    name: str
    """Its names with dots between them, the outermost first."""
    fields: tuple[SourceField, ...]
    watched_by: tuple[str, ...] = ()
    """With Spanner: the change streams that watch it."""
    files_read: int = 0
    """With Datastream: how many."""
    events: Mapping[str, int] = field(default_factory=dict)
    """With Datastream: how many events of each change type the files that were read hold."""

    @property
    def key(self) -> tuple[str, ...]:
        """The columns of the primary key, in its order."""
        keyed = [one for one in self.fields if one.key_position is not None]
        return tuple(one.name for one in sorted(keyed, key=lambda one: one.key_position or 0))


@dataclass(frozen=True, slots=True)
class Discovery:
    """All objects of a source."""

    kind: str
    """`spanner`, or the kind of the source that Datastream reads."""
    source: str
    """The database, or the location of the files."""
    streams: tuple[str, ...]
    """The change streams of the database, or the Datastream streams that wrote the files."""
    objects: tuple[SourceObject, ...]
    notes: tuple[str, ...] = ()
    """What a reader of the list has to know, one sentence each."""

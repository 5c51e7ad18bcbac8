"""The objects of the events in files: their fields, their keys, and their numbers of events.

Pure: files are added one by one, the newest of each object first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

from tidegate.producer.datastream.errors import MixedSources
from tidegate.producer.datastream.event import Event
from tidegate.producer.datastream.event_order import log_of_mysql
from tidegate.producer.datastream.metadata import MySqlMetadata
from tidegate.producer.datastream.read_methods import ReadKind, SourceKind
from tidegate.producer.datastream.unified_types import PayloadField
from tidegate.producer.description import SourceField, SourceObject


class Inventory:
    """The objects of the added files.

    `source` and `streams` are those of the events; a location with two kinds of sources, or two
    logs of MySQL, is rejected.
    """

    def __init__(self) -> None:
        self.source: SourceKind | None = None
        self.streams: set[str] = set()
        self.types_are_inferred = False
        self._log = ""
        self._objects: dict[tuple[str, ...], _Object] = {}

    def add(self, fields: Sequence[PayloadField] | None, events: Iterable[Event]) -> None:
        """Add a file's events; `fields` are its schema's, None for JSON.

        Raises MixedSources, and the errors of reading the events.
        """
        met: set[tuple[str, ...]] = set()
        for event in events:
            self._require_one_source(event)
            self.streams.add(event.stream_name)
            path = event.metadata.path
            source_object = self._objects.setdefault(path, _Object())
            if path not in met:
                met.add(path)
                source_object.files += 1
            source_object.add(fields, event)
        self.types_are_inferred |= fields is None and bool(met)

    def objects(self) -> tuple[SourceObject, ...]:
        """Return the objects by name."""
        return tuple(
            SourceObject(
                name=".".join(path),
                fields=tuple(source_object.source_fields()),
                files_read=source_object.files,
                events=dict(sorted(source_object.events.items())),
            )
            for path, source_object in sorted(self._objects.items())
        )

    def _require_one_source(self, event: Event) -> None:
        source = event.read_method.source
        if self.source is None:
            self.source = source
        elif source is not self.source:
            raise MixedSources.at(
                event.position, f"the location has events of {self.source} and of {source}"
            )
        log = _log_of(event)
        if log:
            if self._log and log != self._log:
                raise MixedSources.at(
                    event.position,
                    "the location has events of two binary logs of MySQL",
                    logs=sorted((self._log, log)),
                )
            self._log = log


class _Object:
    """The facts about one object; the newest event decides its fields and its key."""

    def __init__(self) -> None:
        self.files = 0
        self.events: Counter[str] = Counter()
        self._newest_us: int | None = None
        self._key: tuple[str, ...] = ()
        self._fields: Sequence[PayloadField] | None = None
        self._inferred: dict[str, set[str | None]] = {}

    def add(self, fields: Sequence[PayloadField] | None, event: Event) -> None:
        self.events[event.change_type.value] += 1
        if fields is None:
            for name, value in event.payload.items():
                self._inferred.setdefault(name, set()).add(_json_type(value))
        if self._newest_us is None or event.read_timestamp_us > self._newest_us:
            self._newest_us = event.read_timestamp_us
            self._key = event.metadata.key_columns
            self._fields = fields

    def source_fields(self) -> Iterable[SourceField]:
        positions = {name: number for number, name in enumerate(self._key, 1)}
        if self._fields is not None:
            for field in self._fields:
                yield SourceField(field.name, field.type, field.nullable, positions.get(field.name))
            return
        for name, kinds in self._inferred.items():
            shown = " or ".join(sorted(filter(None, kinds))) or "unknown"
            nullable = True if None in kinds else None
            yield SourceField(name, shown, nullable, positions.get(name))


def _log_of(event: Event) -> str:
    """Return the base name of the binary log of a change of MySQL; otherwise empty."""
    metadata = event.metadata
    if event.read_method.kind is not ReadKind.CDC or not isinstance(metadata, MySqlMetadata):
        return ""
    return log_of_mysql(metadata.log_file, metadata.gtid)


def _json_type(value: Any) -> str | None:
    """Return a unified type that fits a value of JSON; None for null."""
    match value:
        case None:
            return None
        case bool():
            return "BOOLEAN"
        case int():
            return "LONG"
        case Decimal():
            return "NUMBER"
        case str():
            return "STRING"
        case _:
            return "JSON"

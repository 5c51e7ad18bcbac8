"""A sink whose tables get names in the session's catalog after it has written to them.

The names are no part of the query: neither state, plan nor manifest knows of them, so they may be
asked for, left out and asked for again.  What a kill leaves without a name gets it from the next
run: at its start, or with the release that the kill has interrupted.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from tidegate.spark_consumer.checkpoint.storage import Storage
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.sinks.manifest import newest_manifest
from tidegate.spark_consumer.sinks.port import (
    AdmittingSink,
    Merge,
    MergingSink,
    Release,
    Sink,
    TableVersion,
)

if TYPE_CHECKING:
    from tidegate.spark_consumer.sinks.delta.catalog_names import CatalogNames


def named(sink: Sink, names: CatalogNames, *, output: Storage) -> Sink:
    """Return a sink that does what this one does, and then registers its tables."""
    if isinstance(sink, MergingSink):
        return NamedMergingSink(sink, names, output=output)
    return NamedSink(sink, names, output=output)


class NamedSink:
    """A sink under its own name; every method also raises what `CatalogNames` raises."""

    def __init__(self, sink: Sink, names: CatalogNames, *, output: Storage) -> None:
        self._sink = sink
        self._names = names
        self._output = output

    @property
    def name(self) -> str:
        """The sink's own."""
        return self._sink.name

    def open(self, *, query_id: str, release_max: int) -> None:
        """Open the sink, then register the tables that the newest manifest names."""
        self._sink.open(query_id=query_id, release_max=release_max)
        self._names.create_schema(self.name)
        newest = newest_manifest(self._output, watermark_us=sys.maxsize)
        if newest is not None and newest.query_id == query_id:
            tables = newest.tables.items()
            self._register({t: sinks[self.name] for t, sinks in tables if self.name in sinks})

    def admit(self, tables: Iterable[TopicSchemas]) -> None:
        """Let the sink refuse tables."""
        if isinstance(self._sink, AdmittingSink):
            self._sink.admit(tables)

    def write(self, release: Release) -> Mapping[str, TableVersion]:
        """Write a release, then register what is not registered yet."""
        return self._register(self._sink.write(release))

    def _register(self, versions: Mapping[str, TableVersion]) -> Mapping[str, TableVersion]:
        for table, version in versions.items():
            self._names.register(self.name, table, address=self._output.path(version.path))
        return versions


class NamedMergingSink(NamedSink):
    """The same for a sink that takes several releases at once."""

    def __init__(self, sink: MergingSink, names: CatalogNames, *, output: Storage) -> None:
        super().__init__(sink, names, output=output)
        self._merging = sink

    def merge(self, merge: Merge) -> Mapping[str, TableVersion]:
        """Merge releases, then register what is not registered yet."""
        return self._register(self._merging.merge(merge))

    def versions(self, release: int, tables: Iterable[TopicSchemas]) -> Mapping[str, TableVersion]:
        """Return the versions of tables at a release."""
        return self._merging.versions(release, tables)

"""Publishes one release: every sink in turn, then the manifest.

A release may be written again: sinks recognise it by its number, and the manifest is replaced by an
equal one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidegate.spark_consumer.sinks.manifest import Manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tidegate.spark_consumer.sinks.manifest import ManifestWriter
    from tidegate.spark_consumer.sinks.port import Release, Sink, TableVersion

__all__ = ["write_release"]


def write_release(
    release: Release,
    *,
    sinks: Iterable[Sink],
    output: ManifestWriter,
    complete_from_us: int | None = None,
) -> Iterator[str]:
    """Write a release and its manifest; yields the name of each step before the step.

    A caller that stops between two steps leaves a release without a manifest: it is not published.
    """
    tables: dict[str, dict[str, TableVersion]] = {}
    for sink in sinks:
        yield f"sink-{sink.name}"
        for table, version in sink.write(release).items():
            tables.setdefault(table, {})[sink.name] = version
    yield "manifest"
    manifest = Manifest(
        release=release.number,
        query_id=release.query_id,
        batch=release.batch,
        after_us=release.after_us,
        through_us=release.through_us,
        rows=release.rows,
        tables=tables,
        copies=release.copies,
        complete_from_us=complete_from_us,
    )
    write_manifest(output, manifest)

"""Publishes one release: every sink in turn, then the manifest.

A release may be written again: sinks recognise it by its number, and the manifest is replaced by an
equal one.  Where mirrors take several releases at once, the manifests of those that they do not
have yet name their older cut; the last manifest is replaced when they have them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from tidegate.schemas.errors import InvariantViolation
from tidegate.schemas.progress import PartitionGap
from tidegate.spark_consumer.core.plan import MergeMirror, Plan
from tidegate.spark_consumer.core.proof import Mismatch
from tidegate.spark_consumer.core.sink_names import MIRRORS
from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
from tidegate.spark_consumer.errors import CheckpointMismatch
from tidegate.spark_consumer.sinks.manifest import (
    Manifest,
    ManifestWriter,
    read_manifest,
    write_manifest,
)
from tidegate.spark_consumer.sinks.port import Merge, MergingSink, Release, Sink, TableVersion

_NOTHING = -1
"""The release of a mirror before its first merge."""


def write_release(
    release: Release,
    *,
    sinks: Iterable[Sink],
    output: ManifestWriter,
    complete_from_us: int | None = None,
    waiting_mirrors: tuple[Sequence[MergingSink], int] | None = None,
    mismatches: int = 0,
    first_mismatches: Iterable[Mismatch] = (),
    gaps: Iterable[PartitionGap] = (),
    settings_of: Callable[[Sink], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> Iterator[str]:
    """Write a release and its manifest; yields the name of each step before the step.

    `waiting_mirrors` are mirrors that do not take this release, and the release that they are at.
    `mismatches` is the number of contradictions that it is written with, `gaps` are the output's
    accepted gaps.  `settings_of` sets a sink's session settings while it writes.

    A caller that stops between two steps leaves a release without a manifest: it is not published.
    """
    tables: dict[str, dict[str, TableVersion]] = {}
    for sink in sinks:
        yield f"sink-{sink.name}"
        with settings_of(sink):
            written = sink.write(release) or {}  # a program's own sink may return nothing
        if isinstance(sink, MergingSink):
            written = _standing_at(release.number, written)
        _add(tables, sink.name, written)
    yield "manifest"
    if waiting_mirrors is not None:
        mirrors, stands_at = waiting_mirrors
        schemas = [table.schemas for table in release.tables.values()]
        manifest_before = read_manifest(output, release.number)
        for mirror in mirrors:
            # A replay does not go back to an older cut than the manifest names already.
            if manifest_before is not None and (manifest_before.mirror_release or 0) > stands_at:
                versions = _versions_of(mirror.name, manifest_before)
            else:
                versions = _standing_at(stands_at, mirror.versions(stands_at, schemas))
            _add(tables, mirror.name, versions)
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
        mismatches=mismatches,
        first_mismatches=tuple(mismatch.content() for mismatch in first_mismatches),
        gaps=tuple(gaps),
    )
    write_manifest(output, manifest)


def merge_mirrors(
    step: MergeMirror,
    *,
    plan: Plan,
    mirrors: Iterable[MergingSink],
    topics: Mapping[str, TopicSchemas],
    output: ManifestWriter,
) -> Iterator[str]:
    """Merge several releases and name the new cut; yields the name of each step before the step.

    Raises CheckpointMismatch if the last of these releases has no manifest.
    """
    merged: dict[str, dict[str, TableVersion]] = {}
    for mirror in mirrors:
        yield f"sink-{mirror.name}"
        manifest = _manifest_of(step, output)
        schemas = {
            name: topic_schemas
            for name, topic_schemas in topics.items()
            if topic_schemas.table in manifest.tables
        }
        after = _NOTHING if mirror.name in step.joining else step.after
        if after < step.through:
            through_us = manifest.through_us
            versions = mirror.merge(
                Merge(plan.query_id, plan.batch, after, step.through, through_us, tables=schemas)
            )
        else:  # it has the release already, and another mirror joins it
            versions = mirror.versions(step.through, schemas.values())
        _add(merged, mirror.name, _standing_at(step.through, versions))
    yield "manifest"
    manifest = _manifest_of(step, output)
    tables = {table: {**sinks, **merged.get(table, {})} for table, sinks in manifest.tables.items()}
    write_manifest(output, replace(manifest, tables=tables))


def _manifest_of(step: MergeMirror, output: ManifestWriter) -> Manifest:
    manifest = read_manifest(output, step.through)
    if manifest is None:
        raise CheckpointMismatch(
            "a release that the mirrors have yet to take has no manifest",
            hint="Restore the output's _releases folder, or start with a new output and checkpoint",
            release=step.through,
        )
    return manifest


def merging_sinks(sinks: Iterable[Sink], names: Collection[str]) -> list[MergingSink]:
    """Return the mirrors among the sinks of these names.

    Raises InvariantViolation if there is none, or if a mirror takes only one release at a time.
    """
    mirrors = [sink for sink in sinks if sink.name in MIRRORS and sink.name in names]
    merging = [sink for sink in mirrors if isinstance(sink, MergingSink)]
    if not merging or len(merging) < len(mirrors):
        raise InvariantViolation(
            "a mirror does not take several releases at once",
            sinks=names,
            mirrors=[sink.name for sink in mirrors],
        )
    return merging


def _add(
    tables: dict[str, dict[str, TableVersion]], sink: str, versions: Mapping[str, TableVersion]
) -> None:
    for table, version in versions.items():
        tables.setdefault(table, {})[sink] = version


def _standing_at(release: int, versions: Mapping[str, TableVersion]) -> dict[str, TableVersion]:
    return {table: replace(version, release=release) for table, version in versions.items()}


def _versions_of(sink: str, manifest: Manifest) -> dict[str, TableVersion]:
    return {table: sinks[sink] for table, sinks in manifest.tables.items() if sink in sinks}

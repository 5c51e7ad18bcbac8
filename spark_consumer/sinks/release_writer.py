"""Publishes one release: every sink in turn, then the manifest.

A release may be written again: sinks recognise it by its number, and the manifest is replaced by an
equal one.  Where the mirror takes several releases at once, the manifests of those that it does not
have yet name its older cut, and that of the last one is replaced when it has them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tidegate.schemas.errors import InvariantViolation
from tidegate.spark_consumer.core.cadence import MIRROR
from tidegate.spark_consumer.errors import CheckpointMismatch
from tidegate.spark_consumer.sinks.manifest import Manifest, read_manifest, write_manifest
from tidegate.spark_consumer.sinks.port import Merge, MergingSink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tidegate.schemas.progress import PartitionGap
    from tidegate.spark_consumer.core.plan import MergeMirror, Plan
    from tidegate.spark_consumer.core.proof import Mismatch
    from tidegate.spark_consumer.core.topic_schemas import TopicSchemas
    from tidegate.spark_consumer.sinks.manifest import ManifestWriter
    from tidegate.spark_consumer.sinks.port import Release, Sink, TableVersion

__all__ = ["merge_mirror", "merging_sink", "write_release"]


def write_release(
    release: Release,
    *,
    sinks: Iterable[Sink],
    output: ManifestWriter,
    complete_from_us: int | None = None,
    behind: tuple[MergingSink, int] | None = None,
    mismatches: int = 0,
    first_mismatches: Iterable[Mismatch] = (),
    gaps: Iterable[PartitionGap] = (),
) -> Iterator[str]:
    """Write a release and its manifest; yields the name of each step before the step.

    `behind` is a mirror that does not take this release, and the one that it stands at.
    `mismatches` is how many contradictions it is written with, `gaps` what the output lacks.  A
    caller that stops between two steps leaves a release without a manifest: it is not published.
    """
    tables: dict[str, dict[str, TableVersion]] = {}
    for sink in sinks:
        yield f"sink-{sink.name}"
        written = sink.write(release)
        if isinstance(sink, MergingSink):
            written = _standing_at(release.number, written)
        _add(tables, sink.name, written)
    yield "manifest"
    if behind is not None:
        mirror, stands_at = behind
        schemas = [one.schemas for one in release.tables.values()]
        known = read_manifest(output, release.number)
        # A replay does not go back to an older cut than the manifest names already.
        if known is not None and (known.mirror_release or 0) > stands_at:
            versions = _mirrors_of(known)
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
        first_mismatches=tuple(one.content() for one in first_mismatches),
        gaps=tuple(gaps),
    )
    write_manifest(output, manifest)


def merge_mirror(
    step: MergeMirror,
    *,
    plan: Plan,
    mirror: MergingSink,
    topics: Mapping[str, TopicSchemas],
    output: ManifestWriter,
) -> Iterator[str]:
    """Merge several releases and name the new cut; yields the name of each step before the step.

    Raises CheckpointMismatch if the last of these releases has no manifest.
    """
    yield f"sink-{mirror.name}"
    manifest = read_manifest(output, step.through)
    if manifest is None:
        message = "a release that the mirror has yet to take has no manifest"
        hint = "Restore the output's _releases folder, or start with a new output and checkpoint"
        raise CheckpointMismatch(message, hint=hint, release=step.through)
    known = {name: one for name, one in topics.items() if one.table in manifest.tables}
    versions = mirror.merge(
        Merge(
            plan.query_id, plan.batch, step.after, step.through, manifest.through_us, tables=known
        )
    )
    yield "manifest"
    tables = {table: dict(sinks) for table, sinks in manifest.tables.items()}
    _add(tables, mirror.name, _standing_at(step.through, versions))
    write_manifest(output, replace(manifest, tables=tables))


def merging_sink(sinks: Iterable[Sink]) -> MergingSink:
    """Return the mirror; raises InvariantViolation if it takes one release at a time only."""
    for sink in sinks:
        if sink.name == MIRROR and isinstance(sink, MergingSink):
            return sink
    message = "the mirror does not take several releases at once"
    raise InvariantViolation(message, sinks=[sink.name for sink in sinks])


def _add(
    tables: dict[str, dict[str, TableVersion]], sink: str, versions: Mapping[str, TableVersion]
) -> None:
    for table, version in versions.items():
        tables.setdefault(table, {})[sink] = version


def _standing_at(release: int, versions: Mapping[str, TableVersion]) -> dict[str, TableVersion]:
    return {table: replace(version, release=release) for table, version in versions.items()}


def _mirrors_of(manifest: Manifest) -> dict[str, TableVersion]:
    return {table: sinks[MIRROR] for table, sinks in manifest.tables.items() if MIRROR in sinks}

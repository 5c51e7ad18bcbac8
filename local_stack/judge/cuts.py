"""Compares the mirrors at each release with the source tables at the release's watermark.

Mirrors may be those of an older release, which the manifest names: all of them are then compared
with the source at the end of that release.  The source is read again for each cut, so that a mirror
which lost an update and got it back later is found.  Rules about a whole cut (a bank's total) are
passed in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.local_stack.judge.changelog import examples
from tidegate.local_stack.judge.delta import ReleaseManifest, TableRows

CutRule = Callable[[Mapping[str, TableRows], int], Sequence[str]]
"""Takes the mirrors of one cut and its time; returns the rules that they break."""


class SourceReader(Protocol):
    """The source tables, read by the official client."""

    def primary_key(self, table: str) -> Sequence[str]:
        """Return the names of a table's key columns."""

    def tables(self) -> Sequence[str]:
        """Return the names of all watched tables."""

    def read(self, table: str, *, at_us: int | None) -> TableRows:
        """Return a table's content at an instant, or its current content."""


class MirrorReader(Protocol):
    """The mirrors, read from Delta."""

    def mirror_tables(self) -> Sequence[str]:
        """Return the names of the tables that have a mirror."""

    def mirror(self, table: str, *, version: int | None = None) -> TableRows:
        """Return a mirror at a version, or at its head."""


@dataclass(frozen=True, slots=True)
class CutFigures:
    """The faults of the releases.

    `unlike_source` and `with_wrong_total` must be 0, and `mirror_equals_source` must be true.
    """

    releases: int
    cuts: int
    """The number of different cuts that the mirrors of these releases had."""
    behind_us_most: int
    """By how much mirrors were older than their release, at most; microseconds of commit time."""
    unlike_source: int
    with_wrong_total: int
    mirror_equals_source: bool
    examples: tuple[str, ...]


def compare_cuts(
    manifests: Sequence[ReleaseManifest],
    *,
    mirrors: MirrorReader,
    source: SourceReader,
    rule: CutRule = lambda *_: (),
    bounds: Sequence[ReleaseManifest] | None = None,
    progress: Callable[[int], None] = lambda _: None,
) -> CutFigures:
    """Compare each release with the source at its time, then the newest mirrors with the source.

    `bounds` are all releases, where `manifests` are only some.
    """
    unlike: list[str] = []
    wrong: list[str] = []
    unlike_count = wrong_count = behind_us_most = 0
    ends_us = {manifest.number: manifest.through_us for manifest in bounds or manifests}
    compared: set[Hashable] = set()
    for done, manifest in enumerate(manifests):
        progress(done)
        stands_at, at_us, fault = _stands_at(manifest, ends_us)
        behind_us_most = max(behind_us_most, manifest.through_us - at_us)
        versions = [(name, entry.mirror_version) for name, entry in sorted(manifest.tables.items())]
        differences, faults = [fault] if fault else [], []
        if (stands_at, *versions) not in compared:
            compared.add((stands_at, *versions))
            cut = _mirrors_of(manifest, mirrors=mirrors, source=source)
            place = f"release {manifest.number} (mirrors through {at_us} us)"
            differences += [
                f"{place}: {difference}"
                for table in source.tables()
                for difference in [
                    table_difference(
                        table,
                        mirror=cut[table],
                        source=source.read(table, at_us=at_us),
                        key=source.primary_key(table),
                    )
                ]
                if difference
            ]
            faults += [f"{place}: {broken}" for broken in rule(cut, at_us)]
        unlike_count += bool(differences)
        wrong_count += bool(faults)
        unlike += differences
        wrong += faults
    last = [
        f"at the end: {difference}"
        for table in source.tables()
        for difference in [
            table_difference(
                table,
                mirror=mirrors.mirror(table) if table in mirrors.mirror_tables() else {},
                source=source.read(table, at_us=None),
                key=source.primary_key(table),
            )
        ]
        if difference
    ]
    return CutFigures(
        releases=len(manifests),
        cuts=len(compared),
        behind_us_most=behind_us_most,
        unlike_source=unlike_count,
        with_wrong_total=wrong_count,
        mirror_equals_source=not last,
        examples=(
            *examples("release unlike the source", unlike),
            *examples("wrong total", wrong),
            *examples("mirror unlike the source", last),
        ),
    )


def _stands_at(manifest: ReleaseManifest, ends_us: Mapping[int, int]) -> tuple[int, int, str]:
    """Return the release of the mirrors, its end, and a fault of it, or an empty text."""
    releases = {entry.mirror_release for entry in manifest.tables.values()} - {None}
    stands_at = min(
        (release for release in releases if release is not None), default=manifest.number
    )
    at_us = ends_us.get(stands_at)
    if len(releases) > 1:
        fault = f"release {manifest.number}: mirrors stand at releases {sorted(map(str, releases))}"
    elif at_us is None or stands_at > manifest.number:
        fault = f"release {manifest.number}: mirrors stand at release {stands_at}"
    else:
        fault = ""
    return stands_at, manifest.through_us if at_us is None else at_us, fault


def _mirrors_of(
    manifest: ReleaseManifest, *, mirrors: MirrorReader, source: SourceReader
) -> dict[str, TableRows]:
    """Return the mirrors of a release; a table that is not in the release is empty."""
    cut: dict[str, TableRows] = {}
    for table in source.tables():
        entry = manifest.tables.get(table)
        is_mirrored = entry is not None and entry.mirror_version is not None
        cut[table] = (
            mirrors.mirror(table, version=entry.mirror_version) if is_mirrored and entry else {}
        )
    return cut


def table_difference(
    table: str, *, mirror: TableRows, source: TableRows, key: Sequence[str]
) -> str:
    """Return how a mirror differs from its source, or an empty text; the order of rows is free."""
    mirrored = _row_count(mirror)
    expected = _row_count(source)
    if mirrored == 0 and expected == 0:
        return ""
    if mirrored == 0:
        return f"{table} has no row, the source has {expected}"
    if sorted(mirror) != sorted(source):
        return f"{table} has columns {sorted(mirror)}, the source has {sorted(source)}"
    names = sorted(source)
    mirror_rows = _by_key(mirror, key=key, names=names)
    source_rows = _by_key(source, key=key, names=names)
    if len(mirror_rows) != mirrored:
        return f"{table} has {mirrored} rows for {len(mirror_rows)} keys"
    if mirror_rows == source_rows:
        return ""
    absent = source_rows.keys() - mirror_rows.keys()
    extra = mirror_rows.keys() - source_rows.keys()
    shared = source_rows.keys() & mirror_rows.keys()
    changed = sorted(k for k in shared if source_rows[k] != mirror_rows[k])
    text = f"{table}: {len(absent)} rows absent, {len(extra)} too many, {len(changed)} different"
    if changed:
        first = changed[0]
        text += f"; {first} is {mirror_rows[first]}, in the source {source_rows[first]}"
    return text


def _row_count(rows: TableRows) -> int:
    return len(next(iter(rows.values()), ()))


def _by_key(
    rows: TableRows, *, key: Sequence[str], names: Sequence[str]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    keys = zip(*(rows[name] for name in key), strict=True)
    values = zip(*(rows[name] for name in names), strict=True)
    return dict(zip(keys, values, strict=True))

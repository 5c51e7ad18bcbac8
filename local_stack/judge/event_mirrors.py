"""Compares the mirrors of Datastream's events with the source's rows, and with the changelogs.

A mirror keeps deleted rows and marks them.  At each release it has to have the newest event of each
row, of those that the changelog has up to then.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.local_stack.judge.changelog import examples
from tidegate.local_stack.judge.cuts import MirrorReader
from tidegate.local_stack.judge.events import EventRow, SourceEvent

if TYPE_CHECKING:
    from tidegate.local_stack.judge.delta import ReleaseManifest, TableRows


_ADDED = "_datastream_"
_UUID, _KIND = "_datastream_uuid", "_datastream_change_type"


@dataclass(frozen=True, slots=True)
class EventMirrorFigures:
    """What the mirrors have at the end, and the releases whose mirrors are wrong."""

    releases: int
    cuts: int
    """How many of them the mirrors stood at."""
    releases_unlike_changelog: int
    rows: int
    """Rows at the end that were not deleted."""
    deleted_rows: int
    """Rows at the end that are marked as deleted."""
    mirror_equals_source: bool
    examples: tuple[str, ...]


def compare_event_mirrors(
    manifests: Sequence[ReleaseManifest],
    *,
    mirrors: MirrorReader,
    rows: Sequence[EventRow],
    events: Mapping[str, SourceEvent],
    tables: Mapping[str, Mapping[Any, Mapping[str, Any]]],
    key: str,
) -> EventMirrorFigures:
    """Compare the mirrors at each release, and at the end with the source's tables, by key."""
    unlike: list[str] = []
    wrong_releases = set()
    compared = set()
    for manifest in manifests:
        for table, entry in manifest.tables.items():
            if entry.mirror_version is None:
                continue
            stands_at = entry.mirror_release
            identity = (table, entry.mirror_version, stands_at)
            if identity in compared:
                continue
            compared.add(identity)
            found = _uuids(mirrors.mirror(table, version=entry.mirror_version), key)
            expected = _newest(rows, table, through=stands_at)
            if found != expected:
                wrong_releases.add(manifest.number)
                unlike.append(_uuid_difference(manifest.number, table, found, expected))
    wrong, alive, deleted = _compare_with_source(mirrors, events, tables, key)
    return EventMirrorFigures(
        releases=len(manifests),
        cuts=len({stands_at for _, _, stands_at in compared}),
        releases_unlike_changelog=len(wrong_releases),
        rows=alive,
        deleted_rows=deleted,
        mirror_equals_source=not wrong,
        examples=(
            *examples("mirror unlike the changelog", unlike),
            *examples("mirror unlike the source", wrong),
        ),
    )


def _uuids(mirror: TableRows, key: str) -> dict[Any, Any]:
    return dict(zip(mirror.get(key, ()), mirror.get(_UUID, ()), strict=True))


def _newest(rows: Sequence[EventRow], table: str, *, through: int | None) -> dict[Any, Any]:
    """Return the uuid of the newest event of each row up to a release."""
    newest: dict[Any, EventRow] = {}
    for row in rows:
        if row.table == table and (through is None or row.release <= through):
            known = newest.get(row.key)
            if known is None or row.order > known.order:
                newest[row.key] = row
    return {one: row.uuid for one, row in newest.items()}


def _uuid_difference(
    release: int, table: str, found: Mapping[Any, Any], expected: Mapping[Any, Any]
) -> str:
    keys = [one for one in {**found, **expected} if found.get(one) != expected.get(one)]
    return f"release {release}: {table} differs in {len(keys)} rows, such as {keys[0]}"


def _compare_with_source(
    mirrors: MirrorReader,
    events: Mapping[str, SourceEvent],
    tables: Mapping[str, Mapping[Any, Mapping[str, Any]]],
    key: str,
) -> tuple[list[str], int, int]:
    """Return the differences at the end, and how many rows are there, and are marked deleted."""
    last: defaultdict[str, dict[Any, SourceEvent]] = defaultdict(dict)
    for event in events.values():
        known = last[event.table].get(event.key)
        if known is None or _number(event) > _number(known):
            last[event.table][event.key] = event
    wrong: list[str] = []
    alive = deleted = 0
    for table, source in tables.items():
        mirror = mirrors.mirror(table) if table in mirrors.mirror_tables() else {}
        kept, marked, count = _split(mirror, key)
        alive, deleted = alive + len(kept), deleted + len(marked)
        gone = {one for one, event in last[table].items() if event.is_deleted}
        if count != len(kept) + len(marked):
            wrong.append(f"{table} has {count} rows for {len(kept) + len(marked)} keys")
        if kept != source:
            keys = [one for one in {**kept, **source} if kept.get(one) != source.get(one)]
            first = keys[0]
            wrong.append(
                f"{table} differs in {len(keys)} rows; {first} is {kept.get(first)}, in the source "
                f"{source.get(first)}"
            )
        if marked != gone:
            wrong.append(f"{table} marks {len(marked)} rows as deleted, the source {len(gone)}")
    return wrong, alive, deleted


def _number(event: SourceEvent) -> int:
    return -1 if event.number is None else event.number


def _split(mirror: TableRows, key: str) -> tuple[dict[Any, dict[str, Any]], set[Any], int]:
    """Return a mirror's rows by key, the keys that are marked as deleted, and how many rows."""
    names = [name for name in mirror if not name.startswith(_ADDED)]
    kept: dict[Any, dict[str, Any]] = {}
    marked = set()
    kinds = mirror.get(_KIND, ())
    for number, kind in enumerate(kinds):
        row = {name: mirror[name][number] for name in names}
        if str(kind).endswith("DELETE"):
            marked.add(row[key])
        else:
            kept[row[key]] = row
    return kept, marked, len(kinds)

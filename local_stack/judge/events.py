"""Compares changelogs and mirrors of Datastream's events with the changes of their source.

The judge is given the source's order of changes as numbers; the output has it in the column
`_datastream_order`.  A mirror keeps deleted rows and marks them.  At each release it has to have
the newest event of each row, of those that the changelog has up to then.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tidegate.local_stack.judge.changelog import compare_changelog, examples
from tidegate.local_stack.judge.cuts import MirrorReader
from tidegate.local_stack.judge.delta import (
    ChangelogRow,
    ChangelogTable,
    CommitTimes,
    Delivery,
    ReleaseManifest,
    TableRows,
    release_times_us,
)

_ADDED = "_datastream_"
_ORDER, _UUID = "_datastream_order", "_datastream_uuid"
_KIND = "_datastream_change_type"


@dataclass(frozen=True, slots=True)
class SourceEvent:
    """One event: a change of the source, or a row of a backfill, and when files had it."""

    table: str
    """As the output names it."""
    uuid: str
    key: Any
    number: int | None
    """The place among the source's changes; None for a row of a backfill."""
    is_deleted: bool
    row: Mapping[str, Any]
    """In canonical form."""
    source_us: int
    """The source's time."""
    written_us: int = 0
    """When the first file with it was there."""
    is_in_time: bool = False
    """Whether that was early enough for a release in the source's order."""

    def written(self, at_us: int, *, is_in_time: bool) -> SourceEvent:
        """Return the event with the time when a file had it."""
        return replace(self, written_us=at_us, is_in_time=is_in_time)


@dataclass(frozen=True, slots=True)
class EventRow:
    """A row of a changelog that is an event."""

    table: str
    release: int
    ordinal: int
    uuid: str
    order: str
    key: Any
    mod_type: str
    values: Mapping[str, Any]
    """Without the columns that Tidegate adds."""


@dataclass(frozen=True, slots=True)
class EventFigures:
    """The faults of the changelogs, counted; `behind_newer` is not a fault."""

    events_in_changelog: int
    missing: int
    duplicates: int
    invented: int
    unlike_source: int
    """Events whose table, kind or values differ."""
    keys: int
    histories_unlike_source: int
    """Keys whose events, by `_datastream_order`, are not the source's in its order."""
    in_time_out_of_order: int
    """Changes in time that come after a newer one of their table that was in time, or of their
    row."""
    behind_newer: int
    """Late changes that come after a newer change of their row."""
    out_of_order: int
    ordinals_broken: int
    outside_release: int
    examples: tuple[str, ...]


def event_rows(changelogs: Sequence[ChangelogTable], *, key: str) -> list[EventRow]:
    """Return the rows of all changelogs as events, in their order; `key` is the key's column."""
    rows = [_event_row(row, key) for changelog in changelogs for row in changelog.rows]
    return sorted(rows, key=lambda row: (row.release, row.ordinal))


def compare_events(
    events: Mapping[str, SourceEvent],
    *,
    rows: Sequence[EventRow],
    changelogs: Sequence[ChangelogTable],
    manifests: Sequence[ReleaseManifest],
) -> EventFigures:
    """Return the figures for all tables of one output together; `events` are by uuid."""
    # Places, ordinals and bounds of releases are as with any source.
    general = compare_changelog([], changelogs=changelogs, manifests=manifests)
    seen = Counter(row.uuid for row in rows)
    missing = [uuid for uuid in events if uuid not in seen]
    repeated = [uuid for uuid, count in seen.items() if count > 1]
    invented = [uuid for uuid in seen if uuid not in events]
    unlike = [
        f"{row.table}, event {row.uuid}: {difference}"
        for row in rows
        if row.uuid in events
        for difference in [_difference(row, events[row.uuid])]
        if difference
    ]
    histories = _wrong_histories(events, rows)
    overtaken = _behind_newer(events, rows)
    disorder = _disorder_in_time(events, rows) or [
        # No newer change may be before it, however late the newer change was.
        f"{event.table}: change {event.number} stands behind change {newer} of its row"
        for event, newer in overtaken
        if event.is_in_time
    ]
    return EventFigures(
        events_in_changelog=len(rows),
        missing=len(missing),
        duplicates=sum(seen.values()) - len(seen),
        invented=len(invented),
        unlike_source=len(unlike),
        keys=len({(row.table, row.key) for row in rows}),
        histories_unlike_source=len(histories),
        in_time_out_of_order=len(disorder),
        behind_newer=sum(not event.is_in_time for event, _ in overtaken),
        out_of_order=general.out_of_order,
        ordinals_broken=general.ordinals_broken,
        outside_release=general.outside_release,
        examples=(
            *examples("missing", (f"{events[uuid].table}, event {uuid}" for uuid in missing)),
            *examples("duplicate", (f"event {uuid}" for uuid in repeated)),
            *examples("invented", (f"event {uuid}" for uuid in invented)),
            *examples("unlike the source", unlike),
            *examples("history", histories),
            *examples("in time, but out of order", disorder),
            *(
                example
                for example in general.examples
                if example.startswith(("out of order", "ordinals", "outside"))
            ),
        ),
    )


def _event_row(row: ChangelogRow, key: str) -> EventRow:
    values = {**row.keys, **(row.new_values or row.old_values or {})}
    return EventRow(
        table=row.table,
        release=row.release,
        ordinal=row.ordinal,
        uuid=str(values.get(_UUID)),
        order=str(values.get(_ORDER)),
        key=values.get(key),
        mod_type=row.mod_type,
        values={name: value for name, value in values.items() if not name.startswith(_ADDED)},
    )


def _difference(row: EventRow, event: SourceEvent) -> str:
    kind = "DELETE" if event.is_deleted else "INSERT"
    if row.table != event.table:
        return f"it is of the table {event.table}"
    if row.mod_type != kind:
        return f"mod_type is {row.mod_type}, in the source {kind}"
    if row.values != event.row:
        return f"the row is {dict(row.values)}, in the source {dict(event.row)}"
    return ""


def _wrong_histories(events: Mapping[str, SourceEvent], rows: Sequence[EventRow]) -> list[str]:
    expected: defaultdict[tuple[str, Any], list[SourceEvent]] = defaultdict(list)
    for event in events.values():
        expected[event.table, event.key].append(event)
    rows_of_key: defaultdict[tuple[str, Any], list[EventRow]] = defaultdict(list)
    for row in rows:
        rows_of_key[row.table, row.key].append(row)
    wrong = []
    for name, history in expected.items():
        # Rows of a backfill are before all changes.
        history.sort(key=lambda event: -1 if event.number is None else event.number)
        ordered = sorted(rows_of_key[name], key=lambda row: row.order)
        if list(dict.fromkeys(row.uuid for row in ordered)) != [event.uuid for event in history]:
            wrong.append(f"{name[0]}, key {name[1]}: {len(ordered)} events of {len(history)}")
    return wrong


def _disorder_in_time(events: Mapping[str, SourceEvent], rows: Sequence[EventRow]) -> list[str]:
    tables: defaultdict[str, list[int]] = defaultdict(list)
    for row in rows:
        event = events.get(row.uuid)
        if event is not None and event.is_in_time and event.number is not None:
            tables[event.table].append(event.number)
    return [
        f"{table}: change {after} stands behind change {before}"
        for table, numbers in tables.items()
        for before, after in pairwise(numbers)
        if before > after
    ]


def _behind_newer(
    events: Mapping[str, SourceEvent], rows: Iterable[EventRow]
) -> list[tuple[SourceEvent, int]]:
    """Return the changes that come after a newer one of their row, and the newest's number."""
    newest: dict[tuple[str, Any], int] = {}
    overtaken = []
    for row in rows:
        event = events.get(row.uuid)
        if event is None or event.number is None:
            continue
        name = (row.table, row.key)
        newest_number = newest.get(name, -1)
        if event.number < newest_number:
            overtaken.append((event, newest_number))
        newest[name] = max(event.number, newest_number)
    return overtaken


# ---------------------------------------------------------------- mirrors


@dataclass(frozen=True, slots=True)
class EventMirrorFigures:
    """The mirrors' content at the end, and the releases whose mirrors are wrong."""

    releases: int
    cuts: int
    """The number of releases that the mirrors were at."""
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
            mirrored = _uuids(mirrors.mirror(table, version=entry.mirror_version), key)
            expected = _newest(rows, table, through=stands_at)
            if mirrored != expected:
                wrong_releases.add(manifest.number)
                unlike.append(_uuid_difference(manifest.number, table, mirrored, expected))
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
            newest_row = newest.get(row.key)
            if newest_row is None or row.order > newest_row.order:
                newest[row.key] = row
    return {key: row.uuid for key, row in newest.items()}


def _uuid_difference(
    release: int, table: str, mirrored: Mapping[Any, Any], expected: Mapping[Any, Any]
) -> str:
    keys = [key for key in {**mirrored, **expected} if mirrored.get(key) != expected.get(key)]
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
        newest_event = last[event.table].get(event.key)
        if newest_event is None or _number(event) > _number(newest_event):
            last[event.table][event.key] = event
    wrong: list[str] = []
    alive = deleted = 0
    for table, source in tables.items():
        mirror = mirrors.mirror(table) if table in mirrors.mirror_tables() else {}
        kept, marked, count = _split(mirror, key)
        alive, deleted = alive + len(kept), deleted + len(marked)
        deleted_keys = {row_key for row_key, event in last[table].items() if event.is_deleted}
        if count != len(kept) + len(marked):
            wrong.append(f"{table} has {count} rows for {len(kept) + len(marked)} keys")
        if kept != source:
            keys = [
                row_key
                for row_key in {**kept, **source}
                if kept.get(row_key) != source.get(row_key)
            ]
            first = keys[0]
            wrong.append(
                f"{table} differs in {len(keys)} rows; {first} is {kept.get(first)}, in the source "
                f"{source.get(first)}"
            )
        if marked != deleted_keys:
            wrong.append(
                f"{table} marks {len(marked)} rows as deleted, the source {len(deleted_keys)}"
            )
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


# ---------------------------------------------------------------- times


def event_deliveries(
    times: CommitTimes,
    *,
    rows: Sequence[EventRow],
    events: Mapping[str, SourceEvent],
    manifests: Sequence[ReleaseManifest],
) -> list[Delivery]:
    """Return one delivery for each change that was in time.

    Changes of the first release are left out: it waits for the start of a JVM.
    """
    times_us = release_times_us(times, manifests[1:])
    return [
        Delivery(event.written_us, times_us[row.table, row.release], row.release)
        for row in rows
        for event in [events.get(row.uuid)]
        if event is not None and event.number is not None and event.is_in_time
        if (row.table, row.release) in times_us
    ]

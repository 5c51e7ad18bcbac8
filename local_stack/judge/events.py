"""Compares changelogs of Datastream's events with what its source has done.

The source's order of changes is a number that the judge is given; what the output says of it is the
column `_datastream_order`.  Pure: rows and events in, figures out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tidegate.local_stack.judge.changelog import compare_changelog, examples

if TYPE_CHECKING:
    from tidegate.local_stack.judge.delta import ChangelogRow, ChangelogTable, ReleaseManifest


_ADDED = "_datastream_"
_ORDER, _UUID = "_datastream_order", "_datastream_uuid"


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
        """Return the event as it is once a file has it."""
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
    """The faults of the changelogs, counted; `behind_newer` is no fault."""

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
    """Changes in time that stand behind a newer one of their table that was in time, or of their
    row."""
    behind_newer: int
    """Late changes that stand behind a newer change of their row."""
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
    behind = _behind_newer(events, rows)
    disorder = _disorder_in_time(events, rows) or [
        # No newer change, however late that one was, may be before it.
        f"{event.table}: change {event.number} stands behind change {newer} of its row"
        for event, newer in behind
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
        behind_newer=sum(not event.is_in_time for event, _ in behind),
        out_of_order=general.out_of_order,
        ordinals_broken=general.ordinals_broken,
        outside_release=general.outside_release,
        examples=(
            *examples("missing", (f"{events[one].table}, event {one}" for one in missing)),
            *examples("duplicate", (f"event {one}" for one in repeated)),
            *examples("invented", (f"event {one}" for one in invented)),
            *examples("unlike the source", unlike),
            *examples("history", histories),
            *examples("in time, but out of order", disorder),
            *(
                one
                for one in general.examples
                if one.startswith(("out of order", "ordinals", "outside"))
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
    found: defaultdict[tuple[str, Any], list[EventRow]] = defaultdict(list)
    for row in rows:
        found[row.table, row.key].append(row)
    wrong = []
    for name, history in expected.items():
        # Rows of a backfill stand before all changes.
        history.sort(key=lambda one: -1 if one.number is None else one.number)
        ordered = sorted(found[name], key=lambda row: row.order)
        if list(dict.fromkeys(row.uuid for row in ordered)) != [one.uuid for one in history]:
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
        for table, found in tables.items()
        for before, after in pairwise(found)
        if before > after
    ]


def _behind_newer(
    events: Mapping[str, SourceEvent], rows: Iterable[EventRow]
) -> list[tuple[SourceEvent, int]]:
    """Return the changes that stand behind a newer one of their row, and the newest's number."""
    newest: dict[tuple[str, Any], int] = {}
    found = []
    for row in rows:
        event = events.get(row.uuid)
        if event is None or event.number is None:
            continue
        name = (row.table, row.key)
        known = newest.get(name, -1)
        if event.number < known:
            found.append((event, known))
        newest[name] = max(event.number, known)
    return found

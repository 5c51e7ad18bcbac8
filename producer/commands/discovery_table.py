"""The objects of a source as a table for a terminal of 100 columns."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.producer.source_objects import Discovery, SourceField, SourceObject

_NULLABLE = {True: "yes", False: "no", None: "unknown"}


def discovery_table(found: Discovery) -> RenderableType:
    """Return what `discover` prints: a table for each object, and what to know of them."""
    is_spanner = found.kind == "spanner"
    streams = ", ".join(found.streams) or "none"
    kind = "change streams" if is_spanner else "streams"
    parts: list[RenderableType] = [
        f"{found.kind}: {escape(found.source)}",
        f"{kind}: {escape(streams)}; objects: {len(found.objects)}",
    ]
    for one in found.objects:
        # Not the table's title, which would be as narrow as the table.
        parts += ["", escape(_title(one, is_spanner=is_spanner))]
        parts.append(_object_table(one, is_spanner=is_spanner))
    parts += [f"Note: {escape(note)}." for note in found.notes]
    return Group(*parts)


def _object_table(one: SourceObject, *, is_spanner: bool) -> Table:
    table = Table()
    table.add_column("field", overflow="fold", ratio=3)
    table.add_column("type", overflow="fold", ratio=3)
    table.add_column("key", justify="right", no_wrap=True)
    table.add_column("nullable", no_wrap=True)
    if is_spanner:
        table.add_column("watched by", overflow="fold", ratio=2)
    for field in one.fields:
        table.add_row(*_cells(field, is_spanner=is_spanner))
    return table


def _cells(field: SourceField, *, is_spanner: bool) -> list[str]:
    key = "" if field.key_position is None else str(field.key_position)
    cells = [escape(field.name), escape(field.type), key, _NULLABLE[field.nullable]]
    return [*cells, escape(", ".join(field.watched_by))] if is_spanner else cells


def _title(one: SourceObject, *, is_spanner: bool) -> str:
    if is_spanner:
        return one.name if one.watched_by else f"{one.name} (not watched)"
    events = ", ".join(f"{count:,} {kind}" for kind, count in one.events.items())
    key = "" if one.key else "; no key"
    return f"{one.name}: {events} in {one.files_read:,} files{key}"

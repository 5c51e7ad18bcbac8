"""`tidegate-producer discover`: the objects of a source, before any stream exists.

From Spanner's catalogue, or from Datastream's files.  Needs neither Kafka nor the registry, and
changes nothing.
"""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import asdict

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from tidegate.producer.cli.report import Progress, no_progress
from tidegate.producer.cli.source import channels_to
from tidegate.producer.config import DiscoverConfig
from tidegate.producer.datastream.event_file import EventFile
from tidegate.producer.datastream.file_store import FileStore, open_location
from tidegate.producer.datastream.inventory import Inventory
from tidegate.producer.datastream.listing import all_files, newest_files, object_folders
from tidegate.producer.description import DIALECTS, Discovery, SourceField, SourceObject
from tidegate.producer.errors import QueryError
from tidegate.producer.spanner.catalogue import SpannerCatalogue, source_tables
from tidegate.producer.spanner.checks import setup_error
from tidegate.schemas.errors import ConfigError

_FILES = "the files were read to their end: the newest {count} of each object"
_ALL_FILES = "all files were read to their end"
_INFERRED = (
    "JSON files have no schema: types are inferred from the values, and a column that no event "
    "has is missing"
)


def discover_spanner(config: DiscoverConfig) -> Discovery:
    """Return the tables of a database, and the change streams that watch them.

    With the setting `change_stream` only this one is included.  Raises ConfigError for a missing
    database, change stream or permission, and UnreachableError.
    """
    with closing(channels_to(config)) as channels:
        try:
            return _of_spanner(config, SpannerCatalogue(channels))
        except QueryError as error:
            raise setup_error(error) from error


def _of_spanner(config: DiscoverConfig, catalogue: SpannerCatalogue) -> Discovery:
    first = catalogue.describe(config.change_stream)
    if first.dialect not in DIALECTS:
        raise ConfigError(
            f"database: its dialect is {first.dialect}, which is not supported",
            hint=f"Use a database of {' or '.join(DIALECTS)}",
        )
    if config.change_stream and not first.exists:
        others = ", ".join(first.others) or "none"
        raise ConfigError(
            f"change_stream: the database has no change stream {config.change_stream}",
            hint=f"It has: {others}. Leave the setting out to see all",
        )
    names = [config.change_stream] if config.change_stream else list(first.others)
    streams = [first] if config.change_stream else [catalogue.describe(name) for name in names]
    objects = source_tables(catalogue.every_table(), catalogue.nullable_columns(), streams)
    notes = [] if names else ["the database has no change stream: nothing is watched"]
    return Discovery(
        kind="spanner",
        source=f"{config.database_path} ({first.dialect})",
        streams=tuple(names),
        objects=objects,
        notes=tuple(notes),
    )


def discover_files(location: str, *, files_max: int, progress: Progress = no_progress) -> Discovery:
    """Return the objects of a Datastream stream's files; reads `files_max` of each, 0 for all.

    Raises ConfigError for a location that cannot be read or holds no file with events,
    UnreachableError, and DatastreamError for a file that differs from the documentation.
    """
    store, root = open_location(location)
    inventory, files = Inventory(), 0
    for folder in object_folders(store, root):
        chosen = newest_files(store, folder, files_max) if files_max else all_files(store, folder)
        for file in chosen:
            files += 1
            progress(f"reading {file.name}", files)
            _read(store, file.path, inventory)
    if not files:
        raise ConfigError(
            f"--datastream: {location} holds no file with events",
            hint="Files end with .avro, .jsonl or .json, or with .gz after that",
        )
    notes = [_FILES.format(count=files_max) if files_max else _ALL_FILES]
    if inventory.types_are_inferred:
        notes.append(_INFERRED)
    return Discovery(
        kind=inventory.source.value if inventory.source else "unknown",
        source=location,
        streams=tuple(sorted(inventory.streams)),
        objects=inventory.objects(),
        notes=tuple(notes),
    )


def _read(store: FileStore, path: str, inventory: Inventory) -> None:
    with closing(store.open(path)) as stream:
        file = EventFile(path, stream)
        inventory.add(file.fields, file)


def as_json(discovery: Discovery) -> str:
    """Return a discovery as one JSON document."""
    objects = [{**asdict(described), "key": list(described.key)} for described in discovery.objects]
    return json.dumps({**asdict(discovery), "objects": objects})


_NULLABLE = {True: "yes", False: "no", None: "unknown"}


def discovery_table(discovery: Discovery) -> RenderableType:
    """Return the output of `discover`: a table for each object, and the notes."""
    is_spanner = discovery.kind == "spanner"
    streams = ", ".join(discovery.streams) or "none"
    kind = "change streams" if is_spanner else "streams"
    parts: list[RenderableType] = [
        f"{discovery.kind}: {escape(discovery.source)}",
        f"{kind}: {escape(streams)}; objects: {len(discovery.objects)}",
    ]
    for described in discovery.objects:
        # Not the table's title, which would be as narrow as the table.
        parts += ["", escape(_title(described, is_spanner=is_spanner))]
        parts.append(_object_table(described, is_spanner=is_spanner))
    parts += [f"Note: {escape(note)}." for note in discovery.notes]
    return Group(*parts)


def _object_table(described: SourceObject, *, is_spanner: bool) -> Table:
    table = Table()
    table.add_column("field", overflow="fold", ratio=3)
    table.add_column("type", overflow="fold", ratio=3)
    table.add_column("key", justify="right", no_wrap=True)
    table.add_column("nullable", no_wrap=True)
    if is_spanner:
        table.add_column("watched by", overflow="fold", ratio=2)
    for field in described.fields:
        table.add_row(*_cells(field, is_spanner=is_spanner))
    return table


def _cells(field: SourceField, *, is_spanner: bool) -> list[str]:
    key = "" if field.key_position is None else str(field.key_position)
    cells = [escape(field.name), escape(field.type), key, _NULLABLE[field.nullable]]
    return [*cells, escape(", ".join(field.watched_by))] if is_spanner else cells


def _title(described: SourceObject, *, is_spanner: bool) -> str:
    if is_spanner:
        return described.name if described.watched_by else f"{described.name} (not watched)"
    events = ", ".join(f"{count:,} {kind}" for kind, count in described.events.items())
    key = "" if described.key else "; no key"
    return f"{described.name}: {events} in {described.files_read:,} files{key}"

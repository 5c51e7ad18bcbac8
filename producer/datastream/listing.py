"""Listings of a location: its objects, and their files from a minute on or in the order of writing.

Datastream writes `<path>/<object>/yyyy/mm/dd/hh/mm/<file>`, so names sort by time.  A bucket with
years of files is not listed completely to find the newest ones: folders are listed when they are
reached.  From a minute on each hour is listed, with a request per 1,000 files below it, however
many folders of minutes there are.  A long history has thousands of hours, so a listing is yielded
in parts, between which its reader can report that it is alive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from tidegate.producer.datastream.errors import MisplacedFile, Position
from tidegate.producer.datastream.file_ledger import FoundFile, found_file
from tidegate.producer.datastream.file_store import Entry, FileStore, PathMissing

_DEPTH_MAX = 32
_YEAR = re.compile(r"[0-9]{4}", re.ASCII)
_SUFFIXES = (".avro", ".avro.gz", ".jsonl", ".jsonl.gz", ".json", ".json.gz")


def is_event_file(name: str) -> bool:
    """Whether a file's name is that of a file with events; hidden files have none."""
    return name.lower().endswith(_SUFFIXES) and not name.startswith((".", "_"))


def object_folders(store: FileStore, location: str) -> list[str]:
    """Return the folders of the objects below a location, by name; none if it is empty.

    The location is the only one if it holds files, or the years of one object.
    """
    entries = store.entries(location)
    folders = [entry for entry in entries if entry.is_folder and not entry.name.startswith(".")]
    has_files = any(is_event_file(entry.name) for entry in entries if not entry.is_folder)
    if has_files or (folders and all(_YEAR.fullmatch(entry.name) for entry in folders)):
        return [location]
    return [entry.path for entry in folders]


def all_files(store: FileStore, folder: str) -> Iterator[Entry]:
    """Yield the files with events below a folder, the oldest first."""
    return _walk(store, folder, is_reversed=False, depth=0)


def newest_files(store: FileStore, folder: str, count: int) -> list[Entry]:
    """Return at most `count` of the newest files with events below a folder, newest first."""
    return list(islice(_walk(store, folder, is_reversed=True, depth=0), count))


def _walk(store: FileStore, folder: str, *, is_reversed: bool, depth: int) -> Iterator[Entry]:
    entries = store.entries(folder)
    for entry in reversed(entries) if is_reversed else entries:
        if not entry.is_folder:
            if is_event_file(entry.name):
                yield entry
        elif depth < _DEPTH_MAX and not entry.name.startswith("."):
            yield from _walk(store, entry.path, is_reversed=is_reversed, depth=depth + 1)


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS_ASKED_BLINDLY = 3
_LEVELS = 4


def files_from(
    store: FileStore, folder: str, *, from_minute: int, now_minute: int
) -> Iterator[list[FoundFile]]:
    """Yield an object's files with events of that minute and later ones, in no order.

    They come as lists, one for each listed folder; many are empty.  Raises ConfigError,
    UnreachableError and, for a file outside of the folders of minutes, MisplacedFile.
    """
    first = from_minute // 60
    last = now_minute // 60 + 1  # the store's clock may be ahead
    if last - first < _HOURS_ASKED_BLINDLY:
        hours: Iterator[str | None] = iter(
            [f"{folder}/{_hour(item)}" for item in range(first, last + 1)]
        )
    else:
        hours = _hours(store, folder, _hour(first).split("/"), level=0, is_edge=True)
    for hour in hours:
        files = []
        for item in () if hour is None else store.files_below(hour):
            if is_event_file(item.path.rpartition("/")[2]):
                file = found_file(item.path, within=folder, modified_us=item.modified_us)
                if file.minute >= from_minute:
                    files.append(file)
        yield files


def _hours(
    store: FileStore, folder: str, first: list[str], *, level: int, is_edge: bool
) -> Iterator[str | None]:
    """Yield the folders of hours from the first one on; with `is_edge` one may be earlier.

    A None is a folder that was listed to find them.
    """
    if level == _LEVELS:
        yield folder
        return
    try:
        entries = store.entries(folder)
    except PathMissing:
        if level == 0:
            yield folder  # which is missing: listing it shows whether the whole location is
        return
    yield None
    for entry in entries:
        if not entry.is_folder:
            if level == 0 and is_event_file(entry.name):
                raise MisplacedFile.at(
                    Position(entry.path, 0),
                    "the file is not in a folder yyyy/mm/dd/hh/mm of its object",
                )
            continue
        if not entry.name.isdigit() or len(entry.name) != len(first[level]):
            continue
        if is_edge and entry.name < first[level]:
            continue
        is_next = is_edge and entry.name == first[level]
        yield from _hours(store, entry.path, first, level=level + 1, is_edge=is_next)


def _hour(hour: int) -> str:
    return (_EPOCH + timedelta(hours=hour)).strftime("%Y/%m/%d/%H")

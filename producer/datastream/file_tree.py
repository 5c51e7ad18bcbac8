"""The files below a location, in the order of writing, without a list of all of them in memory.

Datastream writes `<path>/<object>/yyyy/mm/dd/hh/mm/<file>`, so names sort as time.  Folders are
listed one by one as they are reached; a bucket with years of files is not listed to find the newest
ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from tidegate.producer.datastream.file_store import Entry, FileStore

_DEPTH_MAX = 32
_YEAR = re.compile(r"[0-9]{4}", re.ASCII)
_SUFFIXES = (".avro", ".avro.gz", ".jsonl", ".jsonl.gz", ".json", ".json.gz")


def is_event_file(name: str) -> bool:
    """Whether a file's name is that of a file with events; hidden files are not."""
    return name.lower().endswith(_SUFFIXES) and not name.startswith((".", "_"))


def object_folders(store: FileStore, location: str) -> list[str]:
    """Return the folders of the objects below a location, by name; none if it is empty.

    The location itself is the only one if it holds files, or the years of one object.
    """
    entries = store.entries(location)
    folders = [one for one in entries if one.is_folder and not one.name.startswith(".")]
    has_files = any(is_event_file(one.name) for one in entries if not one.is_folder)
    if has_files or (folders and all(_YEAR.fullmatch(one.name) for one in folders)):
        return [location]
    return [one.path for one in folders]


def all_files(store: FileStore, folder: str) -> Iterator[Entry]:
    """Yield the files with events below a folder, the oldest first."""
    return _walk(store, folder, is_reversed=False, depth=0)


def newest_files(store: FileStore, folder: str, count: int) -> list[Entry]:
    """Return at most so many of the newest files with events below a folder, the newest first."""
    return list(islice(_walk(store, folder, is_reversed=True, depth=0), count))


def _walk(store: FileStore, folder: str, *, is_reversed: bool, depth: int) -> Iterator[Entry]:
    entries = store.entries(folder)
    for one in reversed(entries) if is_reversed else entries:
        if not one.is_folder:
            if is_event_file(one.name):
                yield one
        elif depth < _DEPTH_MAX and not one.name.startswith("."):
            yield from _walk(store, one.path, is_reversed=is_reversed, depth=depth + 1)

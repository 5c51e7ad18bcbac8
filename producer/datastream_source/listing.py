"""Lists the files of an object from a minute on: a listing per hour, and none of hours before.

Datastream's folders are `yyyy/mm/dd/hh/mm`; a listing of a bucket costs a request per 1,000 files
below an hour, however many folders of minutes there are.  A long history has thousands of hours, so
a listing comes in parts, between which its reader shows that it lives.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from tidegate.producer.datastream.errors import MisplacedFile
from tidegate.producer.datastream.file_store import FileStore
from tidegate.producer.datastream.file_tree import is_event_file
from tidegate.producer.datastream.position import Position
from tidegate.producer.datastream.store_errors import PathMissing
from tidegate.producer.datastream_source.found_file import FoundFile, found_file

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_HOURS_ASKED_BLINDLY = 3
_LEVELS = 4


def files_from(
    store: FileStore, folder: str, *, from_minute: int, now_minute: int
) -> Iterator[list[FoundFile]]:
    """Yield an object's files with events of that minute and later ones, in no order.

    They come as lists, one for each folder that was looked into; many are empty.  Raises
    ConfigError, UnreachableError and, for a file outside of the folders of minutes, MisplacedFile.
    """
    first = from_minute // 60
    last = now_minute // 60 + 1  # the store's clock may be ahead
    if last - first < _HOURS_ASKED_BLINDLY:
        hours: Iterator[str | None] = iter(
            [f"{folder}/{_hour(one)}" for one in range(first, last + 1)]
        )
    else:
        hours = _hours(store, folder, _hour(first).split("/"), level=0, is_edge=True)
    for hour in hours:
        found = []
        for one in () if hour is None else store.files_below(hour):
            if is_event_file(one.path.rpartition("/")[2]):
                file = found_file(one.path, within=folder, modified_us=one.modified_us)
                if file.minute >= from_minute:
                    found.append(file)
        yield found


def _hours(
    store: FileStore, folder: str, first: list[str], *, level: int, is_edge: bool
) -> Iterator[str | None]:
    """Yield the folders of hours that are not before the first one; `is_edge`: one of it may be.

    None stands for a folder that was looked into to find them.
    """
    if level == _LEVELS:
        yield folder
        return
    try:
        entries = store.entries(folder)
    except PathMissing:
        if level == 0:
            yield folder  # which is not there: listing it says whether the whole location is gone
        return
    yield None
    for one in entries:
        if not one.is_folder:
            if level == 0 and is_event_file(one.name):
                raise MisplacedFile.at(
                    Position(one.path, 0),
                    "the file is not in a folder yyyy/mm/dd/hh/mm of its object",
                )
            continue
        if not one.name.isdigit() or len(one.name) != len(first[level]):
            continue
        if is_edge and one.name < first[level]:
            continue
        is_next = is_edge and one.name == first[level]
        yield from _hours(store, one.path, first, level=level + 1, is_edge=is_next)


def _hour(hour: int) -> str:
    return (_EPOCH + timedelta(hours=hour)).strftime("%Y/%m/%d/%H")

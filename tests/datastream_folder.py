"""Files of Datastream in memory, to which a test adds more at any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import BytesIO

from tidegate.producer.datastream.file_store import Entry, PathMissing, StoredFile


def minute_folder(minute: int) -> str:
    """Return the folder `yyyy/mm/dd/hh/mm` of a minute since 1970."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(minutes=minute)).strftime("%Y/%m/%d/%H/%M")


class MemoryFiles:
    """Implements `file_store.FileStore`."""

    def __init__(self):
        self._files = {}
        self.opened = []
        self.listed = []

    def put(self, path, data, *, modified_us=0):
        """Add a file, or replace it."""
        self._files[path] = (data, modified_us)

    def remove(self, path):
        del self._files[path]

    def entries(self, folder):
        names = {}
        for path in self._files:
            if path.startswith(f"{folder}/"):
                name, more, _ = path.removeprefix(f"{folder}/").partition("/")
                names[name] = bool(more)
        if not names:
            raise PathMissing(f"{folder} does not exist")
        return [Entry(name, f"{folder}/{name}", is_folder=names[name]) for name in sorted(names)]

    def files_below(self, folder):
        self.listed.append(folder)
        return [
            StoredFile(path, at)
            for path, (_, at) in self._files.items()
            if path.startswith(f"{folder}/")
        ]

    def open(self, path):
        self.opened.append(path)
        if path not in self._files:
            raise PathMissing(f"{path} does not exist")
        return BytesIO(self._files[path][0])

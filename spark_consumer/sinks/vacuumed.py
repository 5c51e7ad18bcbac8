"""Which versions of tables may lack files, since a run has deleted what they alone need.

One file beside the manifests.  It is written before anything is deleted, so a reader that finds a
version in it reads no further; what others delete is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from tidegate.spark_consumer.checkpoint.json_files import JsonFiles
from tidegate.spark_consumer.sinks.manifest import ManifestWriter

_FILE = "_releases/_vacuumed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class KeptVersions:
    """The versions of a table that can be read."""

    first: int
    """That one and all later ones are whole."""
    same_since: int
    """All versions from here to `first` have the same rows: their files were only rewritten."""

    def readable(self, version: int) -> int | None:
        """Return a whole version with the rows of this one; None if there is none."""
        if version >= self.first:
            return version
        return self.first if version >= self.same_since else None


class VacuumedVersions:
    """The file as its writer sees it."""

    def __init__(self, files: ManifestWriter) -> None:
        """Read nothing yet; the file has one writer, so it is read once."""
        self._files = files
        self._known: dict[str, Any] | None = None

    def last_round(self) -> datetime | None:
        """Return when the last round over all tables began; None before the first."""
        at_us = self._content().get("at_us")
        return None if at_us is None else _EPOCH + timedelta(microseconds=at_us)

    def note_round(self, now: datetime) -> None:
        """Note that a round begins."""
        at_us = (now - _EPOCH) // timedelta(microseconds=1)
        self._write({**self._content(), "at_us": at_us})

    def note_table(self, path: str, kept: KeptVersions) -> None:
        """Note which versions of a table stay whole; they never become older ones."""
        content = self._content()
        tables = dict(content.get("tables", {}))
        before = tables.get(path)
        if before is None or before[0] < kept.first:
            tables[path] = [kept.first, kept.same_since]
        self._write({**content, "tables": tables})

    def _content(self) -> dict[str, Any]:
        if self._known is None:
            self._known = self._files.read_json(_FILE) or {}
        return self._known

    def _write(self, content: dict[str, Any]) -> None:
        self._files.write_json(_FILE, content)
        self._known = content


def kept_versions(files: JsonFiles) -> dict[str, KeptVersions]:
    """Return what can be read of each table, by its path; only of vacuumed tables."""
    tables = (files.read_json(_FILE) or {}).get("tables", {})
    return {path: KeptVersions(*kept) for path, kept in tables.items()}

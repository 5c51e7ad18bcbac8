"""Which versions of tables may lack files, since a run has deleted what they alone need.

One file beside the manifests.  It is written before anything is deleted, so a reader that finds a
version in it reads no further; what others delete is not in it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tidegate.spark_consumer.checkpoint.json_files import JsonFiles
    from tidegate.spark_consumer.sinks.manifest import ManifestWriter

__all__ = ["VacuumedVersions", "first_kept_versions"]

_FILE = "_releases/_vacuumed"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


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

    def note_table(self, path: str, version: int) -> None:
        """Note the first version of a table that stays whole; it never becomes an older one."""
        content = self._content()
        tables = dict(content.get("tables", {}))
        tables[path] = max(version, tables.get(path, 0))
        self._write({**content, "tables": tables})

    def _content(self) -> dict[str, Any]:
        if self._known is None:
            self._known = self._files.read_json(_FILE) or {}
        return self._known

    def _write(self, content: dict[str, Any]) -> None:
        self._files.write_json(_FILE, content)
        self._known = content


def first_kept_versions(files: JsonFiles) -> dict[str, int]:
    """Return the first version that stays whole, by the table's path; only of vacuumed tables."""
    tables: dict[str, int] = (files.read_json(_FILE) or {}).get("tables", {})
    return tables

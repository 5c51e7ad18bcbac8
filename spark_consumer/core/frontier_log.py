"""A frontier and the files that hold it: each batch writes what has changed since the one before.

Its parts (see `part_log`) hold the items of `Frontier.items_since`.  The index of a batch names the
parts that together are its frontier, and who owned the slots.  Names hold the number of the run
that writes, so no two runs write to one file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tidegate.lineage.frontier import Frontier, FrontierMark
from tidegate.lineage.subscription import Subscribed
from tidegate.spark_consumer.core.files import frontier_file, frontier_folder, frontier_part
from tidegate.spark_consumer.core.formats import require_known
from tidegate.spark_consumer.core.part_log import Part, StoredFile, with_changes

FRONTIER_FORMAT = 3
"""An index's format; 2 had no accepted gaps; 1 no number, and the whole frontier in one file."""


@dataclass(frozen=True, slots=True)
class StoredFrontier:
    """What a batch writes: the files in order, the index last."""

    files: tuple[StoredFile, ...]
    dropped: tuple[str, ...]
    """Files and folders that no later batch reads, once this batch's state is stored."""


class FrontierLog:
    """A frontier with what is stored of it; `write` is called once per batch."""

    def __init__(self, frontier: Frontier) -> None:
        """Take a frontier of which nothing is stored."""
        self.frontier = frontier
        self._parts: tuple[Part[FrontierMark | None], ...] = ()
        self._stored: frozenset[str] = frozenset()
        self._mark: FrontierMark | None = None

    @classmethod
    def restore(
        cls,
        name: str,
        index: Mapping[str, Any],
        read: Callable[[str], Mapping[str, Any] | None],
        subscription: Subscribed,
    ) -> FrontierLog | None:
        """Rebuild the log that has an index, also one of an older program; `read` reads its files.

        None if a file is missing.  Raises NewerCheckpoint for an index of a newer program.
        """
        if require_known("frontier", index, newest=FRONTIER_FORMAT) == 1:
            log = cls(Frontier.of_format_1(index, subscription))
            log._stored = frozenset({frontier_file(name)})
            return log
        log = cls(Frontier(subscription))
        for files, size in index["parts"]:
            since = log._mark
            for file in files:
                content = read(file)
                if content is None:
                    return None
                log.frontier.apply(content["items"])
            log._mark = log.frontier.mark()
            log._parts = (*log._parts, Part(tuple(files), size, since))
        workers = index.get("workers", {})  # an older program has stored none
        log.frontier.workers = {int(slot): worker for slot, worker in workers.items()}
        log._stored = log._folders(name)
        return log

    def write(self, name: str, *, code: str) -> StoredFrontier:
        """Return what stores the frontier under a name; `code` is the version of this program."""
        mark = self.frontier.mark()
        parts = self._parts
        files: tuple[StoredFile, ...] = ()
        if mark != self._mark:
            parts, files = with_changes(
                parts,
                since=self._mark,
                items_since=self.frontier.items_since,
                file=lambda number: frontier_part(name, number),
            )
        numbered = [(file, {"format": FRONTIER_FORMAT, **content}) for file, content in files]
        index = {
            "format": FRONTIER_FORMAT,
            "code": code,
            "parts": [[part.files, part.size] for part in parts],
            "workers": {str(slot): one for slot, one in sorted(self.frontier.workers.items())},
        }
        before, self._mark, self._parts = self._stored, mark, parts
        self._stored = self._folders(name)
        dropped = tuple(sorted(before - self._stored))
        return StoredFrontier((*numbered, (frontier_file(name), index)), dropped)

    def _folders(self, name: str) -> frozenset[str]:
        files = (frontier_file(name), *(file for part in self._parts for file in part.files))
        return frozenset(frontier_folder(file) for file in files)

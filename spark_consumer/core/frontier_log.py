"""A frontier and the files that hold it: each batch writes what has changed since the one before.

A part is what changed between two moments, as the items of `Frontier.items_since`, in one or more
files.  The index of a batch names the parts that together are its frontier.  A batch joins its own
part with those before it that are no larger, so each change is written a few times only, and there
are few parts however many batches there were.  Names hold the number of the run that writes, so no
two runs write to one file.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tidegate.lineage.frontier import Frontier
from tidegate.spark_consumer.core.files import frontier_file, frontier_folder, frontier_part
from tidegate.spark_consumer.core.formats import require_known

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tidegate.lineage.frontier import FrontierMark
    from tidegate.lineage.subscription import Subscribed

__all__ = ["FILE_BYTES_MAX", "FRONTIER_FORMAT", "FrontierLog", "StoredFrontier"]

FRONTIER_FORMAT = 2
"""Of an index; 1 had no number, and held the whole frontier in one file."""

FILE_BYTES_MAX = 4_000_000
"""Of JSON in one file; an item that is larger, such as one vector, has a file of its own."""


@dataclass(frozen=True, slots=True)
class StoredFrontier:
    """What a batch writes: the files in order, the index last."""

    files: tuple[tuple[str, Mapping[str, Any]], ...]
    dropped: tuple[str, ...]
    """Files and folders that no later batch reads, once this batch's state is stored."""


@dataclass(frozen=True, slots=True)
class _Part:
    files: tuple[str, ...]
    size: int
    """Bytes of its JSON."""
    since: FrontierMark | None
    """How far the frontier was before it."""


class FrontierLog:
    """A frontier with what is stored of it; `write` is called once per batch."""

    def __init__(self, frontier: Frontier) -> None:
        """Take a frontier of which nothing is stored."""
        self.frontier = frontier
        self._parts: list[_Part] = []
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
            log._parts.append(_Part(tuple(files), size, since))
        log._stored = log._folders(name)
        return log

    def write(self, name: str, *, code: str) -> StoredFrontier:
        """Return what stores the frontier under a name; `code` is the version of this program."""
        mark = self.frontier.mark()
        parts, files = list(self._parts), []
        if mark != self._mark:
            since = self._mark
            items, size = _encoded(self.frontier, since)
            while parts and parts[-1].size <= size:
                since = parts.pop().since
                items, size = _encoded(self.frontier, since)
            for number, cut in enumerate(_cut(items)):
                content = {"format": FRONTIER_FORMAT, "items": [item for item, _ in cut]}
                files.append((frontier_part(name, number), content))
            parts.append(_Part(tuple(file for file, _ in files), size, since))
        index = {
            "format": FRONTIER_FORMAT,
            "code": code,
            "parts": [[part.files, part.size] for part in parts],
        }
        before, self._mark, self._parts = self._stored, mark, parts
        self._stored = self._folders(name)
        dropped = tuple(sorted(before - self._stored))
        return StoredFrontier((*files, (frontier_file(name), index)), dropped)

    def _folders(self, name: str) -> frozenset[str]:
        files = (frontier_file(name), *(file for part in self._parts for file in part.files))
        return frozenset(frontier_folder(file) for file in files)


def _encoded(
    frontier: Frontier, since: FrontierMark | None
) -> tuple[list[tuple[list[Any], int]], int]:
    """Return the items since a mark, each with its size as JSON, and the sum."""
    items = [(item, len(json.dumps(item))) for item in frontier.items_since(since)]
    return items, sum(size for _, size in items)


def _cut(items: Iterable[tuple[list[Any], int]]) -> Iterator[list[tuple[list[Any], int]]]:
    """Yield the items in portions that fit a file."""
    portion: list[tuple[list[Any], int]] = []
    size = 0
    for item, item_size in items:
        if portion and size + item_size > FILE_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append((item, item_size))
        size += item_size
    if portion:
        yield portion

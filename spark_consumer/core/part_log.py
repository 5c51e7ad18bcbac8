"""Data that is stored in parts: the changes between two moments, in one or more files.

New changes are joined with the preceding parts that are not larger.  So each change is written a
few times only, and there are few parts, however many changes there were.  A state's segments and a
frontier are stored this way.  A batch adds and removes a few segments: with all segments in its
state, thousands would be written again in each batch, so a state holds the changes since its newest
part, and names the parts.  The index of a batch's frontier likewise names the parts that hold the
items of `Frontier.items_since`, and who owned the slots.  Names of files hold the number of the run
that writes: no two runs write to one file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from tidegate.lineage.frontier import Frontier, FrontierMark
from tidegate.lineage.subscription import Subscribed
from tidegate.spark_consumer.core.file_names import (
    folder_of,
    frontier_file,
    frontier_folder,
    frontier_part,
    list_part,
    require_known,
)
from tidegate.spark_consumer.errors import CheckpointMismatch

FILE_BYTES_MAX = 4_000_000
"""How much JSON one file holds; a larger item has its own file."""

_Mark = TypeVar("_Mark")

StoredFile: TypeAlias = tuple[str, dict[str, Any]]
"""Name and content."""


@dataclass(frozen=True, slots=True)
class Part(Generic[_Mark]):
    """One part; `since` says how far everything was before it, `size` is the bytes of its JSON."""

    files: tuple[str, ...]
    size: int
    since: _Mark


def with_changes(
    parts: Sequence[Part[_Mark]],
    *,
    since: _Mark,
    items_since: Callable[[_Mark], Iterable[Any]],
    file: Callable[[int], str],
) -> tuple[tuple[Part[_Mark], ...], tuple[StoredFile, ...]]:
    """Return the parts with the changes since the last one, and the files to write for them.

    `items_since` returns the changes since a mark, as plain data; `file` names the files.
    """
    kept = list(parts)
    items, size = _encoded(items_since(since))
    while kept and kept[-1].size <= size:
        since = kept.pop().since
        items, size = _encoded(items_since(since))
    files = tuple(
        (file(number), {"items": [item for item, _ in cut]})
        for number, cut in enumerate(_cut(items))
    )
    if files:
        kept.append(Part(tuple(name for name, _ in files), size, since))
    return tuple(kept), files


def _encoded(items: Iterable[Any]) -> tuple[list[tuple[Any, int]], int]:
    """Return the items, each with its size as JSON, and the sum."""
    sized = [(item, len(json.dumps(item))) for item in items]
    return sized, sum(size for _, size in sized)


def _cut(items: Iterable[tuple[Any, int]]) -> Iterator[list[tuple[Any, int]]]:
    """Yield the items in portions that fit a file."""
    portion: list[tuple[Any, int]] = []
    size = 0
    for item, item_size in items:
        if portion and size + item_size > FILE_BYTES_MAX:
            yield portion
            portion, size = [], 0
        portion.append((item, item_size))
        size += item_size
    if portion:
        yield portion


_REMOVED_PER_SEGMENT = 16
"""Names of removed segments that take about the place of a segment."""


class _Segment(Protocol):
    @property
    def name(self) -> str: ...

    def snapshot(self) -> dict[str, Any]: ...


@dataclass(frozen=True, slots=True)
class SegmentList:
    """The parts that a state names, and the segments that they hold together."""

    parts: tuple[Part[frozenset[str]], ...] = ()
    names: frozenset[str] = frozenset()

    @property
    def folders(self) -> frozenset[str]:
        """The folders of the parts, in which killed runs may have left files."""
        return frozenset(folder_of(file) for part in self.parts for file in part.files)

    def write(
        self, segments: Sequence[_Segment], *, batch: int, writer: int, own_max: int
    ) -> tuple[SegmentList, tuple[StoredFile, ...]]:
        """Return the list for the segments that a batch leaves, and the files to write before it.

        The state's own file gets about `own_max` segments at most.  `segments` are in the order in
        which they were added.
        """
        if len(segments) <= own_max:
            return ALL_IN_THE_STATE, ()
        now = frozenset(segment.name for segment in segments)
        # Counts decide, never sizes: each attempt at a batch writes to its folder, or none does.
        added, removed = len(now - self.names), len(self.names - now)
        if added <= own_max and removed <= own_max * _REMOVED_PER_SEGMENT:
            return self, ()
        parts, names = self.parts, self.names
        live = sum(len(json.dumps(segment.snapshot())) for segment in segments)
        if sum(part.size for part in parts) > 2 * live:
            parts, names = (), frozenset()
        parts, files = with_changes(
            parts,
            since=names,
            items_since=lambda before: _changes(before, segments),
            file=lambda number: list_part(batch, number, writer=writer),
        )
        return SegmentList(parts, now), files

    def rest(self, segments: Sequence[_Segment]) -> dict[str, Any]:
        """Return the plain data that a state stores besides the parts that it names."""
        snapshots = [segment.snapshot() for segment in segments if segment.name not in self.names]
        if not self.parts:
            return {"segments": snapshots}
        return {
            "segments": snapshots,
            "removed_segments": sorted(self.names.difference(segment.name for segment in segments)),
            "segment_parts": [[list(part.files), part.size] for part in self.parts],
        }

    @staticmethod
    def restore(
        data: Mapping[str, Any], read: Callable[[str], Mapping[str, Any] | None]
    ) -> tuple[SegmentList, list[Mapping[str, Any]]]:
        """Return the list of a stored state, and its segments as plain data, in their order.

        `read` reads a file of the folder.  Raises CheckpointMismatch if one is missing.
        """
        stored: dict[str, Mapping[str, Any]] = {}
        parts = []
        for files, size in data.get("segment_parts", ()):
            parts.append(Part(tuple(files), size, frozenset(stored)))
            for file in files:
                _apply(stored, read_named(file, data["batch"], read)["items"])
        listed = SegmentList(tuple(parts), frozenset(stored))
        for name in data.get("removed_segments", ()):
            del stored[name]
        return listed, [*stored.values(), *data["segments"]]


ALL_IN_THE_STATE = SegmentList()


def read_named(
    file: str, batch: int, read: Callable[[str], Mapping[str, Any] | None]
) -> Mapping[str, Any]:
    """Return a file that the state of a batch names; raises CheckpointMismatch if it is missing."""
    content = read(file)
    if content is None:
        raise CheckpointMismatch(
            "a file that the state names is not stored",
            hint="Restore the checkpoint's whole folder",
            batch=batch,
            file=file,
        )
    return content


def _changes(before: frozenset[str], segments: Sequence[_Segment]) -> Iterator[Any]:
    yield from sorted(before.difference(segment.name for segment in segments))
    yield from (segment.snapshot() for segment in segments if segment.name not in before)


def _apply(stored: dict[str, Mapping[str, Any]], items: Sequence[Any]) -> None:
    for item in items:
        if isinstance(item, str):
            del stored[item]
        else:
            stored[item["name"]] = item


FRONTIER_FORMAT = 3
"""An index's format; 2 had no accepted gaps; 1 no number, and the whole frontier in one file."""


@dataclass(frozen=True, slots=True)
class StoredFrontier:
    """The files that a batch writes, in order, the index last."""

    files: tuple[StoredFile, ...]
    dropped: tuple[str, ...]
    """Files and folders that no later batch reads, once this batch's state is stored."""


class FrontierLog:
    """A frontier with its stored parts; `write` is called once per batch."""

    def __init__(self, frontier: Frontier) -> None:
        """Take a frontier that is not stored yet."""
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
            "workers": {
                str(slot): worker for slot, worker in sorted(self.frontier.workers.items())
            },
        }
        before, self._mark, self._parts = self._stored, mark, parts
        self._stored = self._folders(name)
        dropped = tuple(sorted(before - self._stored))
        return StoredFrontier((*numbered, (frontier_file(name), index)), dropped)

    def _folders(self, name: str) -> frozenset[str]:
        files = (frontier_file(name), *(file for part in self._parts for file in part.files))
        return frozenset(frontier_folder(file) for file in files)

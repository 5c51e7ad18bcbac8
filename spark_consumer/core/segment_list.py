"""How waiting segments are stored: a few in the state's own file, more in parts beside it.

A batch adds a few segments and removes a few.  With all of them in its state, thousands would be
written again in each batch.  So a state holds what has changed since its newest part, and names the
parts (see `part_log`).  Names of files hold the number of the run that writes: no two runs write to
one file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tidegate.spark_consumer.core.files import folder_of, list_part
from tidegate.spark_consumer.core.part_log import Part, StoredFile, with_changes
from tidegate.spark_consumer.errors import CheckpointMismatch

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
        """The folders of the parts, with what killed runs have written there."""
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
        """Return what a state that names the parts stores itself, as plain data."""
        own = [segment.snapshot() for segment in segments if segment.name not in self.names]
        if not self.parts:
            return {"segments": own}
        return {
            "segments": own,
            "removed_segments": sorted(self.names.difference(one.name for one in segments)),
            "segment_parts": [[list(part.files), part.size] for part in self.parts],
        }

    @staticmethod
    def restore(
        data: Mapping[str, Any], read: Callable[[str], Mapping[str, Any] | None]
    ) -> tuple[SegmentList, list[Mapping[str, Any]]]:
        """Return the list of a stored state, and its segments as plain data, in their order.

        `read` reads a file of the folder.  Raises CheckpointMismatch if one is missing.
        """
        found: dict[str, Mapping[str, Any]] = {}
        parts = []
        for files, size in data.get("segment_parts", ()):
            parts.append(Part(tuple(files), size, frozenset(found)))
            for file in files:
                _apply(found, read_named(file, data["batch"], read)["items"])
        listed = SegmentList(tuple(parts), frozenset(found))
        for name in data.get("removed_segments", ()):
            del found[name]
        return listed, [*found.values(), *data["segments"]]


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


def _apply(found: dict[str, Mapping[str, Any]], items: Sequence[Any]) -> None:
    for item in items:
        if isinstance(item, str):
            del found[item]
        else:
            found[item["name"]] = item

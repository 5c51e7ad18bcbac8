"""What is stored in parts: a part holds what changed between two moments, in one or more files.

New changes are joined with the parts before them that are no larger.  So each change is written a
few times only, and there are few parts, however many changes there were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

FILE_BYTES_MAX = 4_000_000
"""How much JSON one file holds; an item that is larger has a file of its own."""

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
    """Return the parts with what has changed since the last one, and the files to write for it.

    `items_since` returns what has changed since a mark, as plain data; `file` names the files.
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

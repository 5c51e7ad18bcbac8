"""Rows that a test damages: nested lists in which some places are replaced, left out or doubled."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st


def damaged_row(
    row: list[Any], data: st.DataObject, plain: st.SearchStrategy[Any], *, times: tuple[int, int]
) -> list[Any]:
    """Return a copy of a row, damaged so many times, at least and at most, with `plain` values."""
    row = copy.deepcopy(row)
    for _ in range(data.draw(st.integers(*times))):
        choices = list(places(row))
        if not choices:
            break
        path = data.draw(st.sampled_from(choices))
        target = row
        for index in path[:-1]:
            target = target[index]
        match data.draw(st.sampled_from(["replace", "remove", "repeat"])):
            case "replace":
                target[path[-1]] = data.draw(plain)
            case "remove":
                del target[path[-1]]
            case _:
                target.insert(path[-1], copy.deepcopy(target[path[-1]]))
    return row


def places(plain: Any, path: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield every place in nested lists."""
    if path:
        yield path
    if isinstance(plain, list):
        for index, item in enumerate(plain):
            yield from places(item, (*path, index))

"""Byte strings in order, with fast insertion and removal at any size.

They are in blocks of bounded length, so an insertion moves at most one block's pointers, and the
block is found by bisection over the blocks' last keys.  No block is ever empty.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

_BLOCK_MAX: Final = 2_000


class SortedKeys:
    """A sorted set of keys; adding an existing one, or removing a missing one, is a fault."""

    def __init__(self) -> None:
        self._blocks: list[list[bytes]] = []
        self._lasts: list[bytes] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, key: bytes) -> None:
        """Insert a new key in its place."""
        self._count += 1
        if not self._blocks:
            self._blocks.append([key])
            self._lasts.append(key)
            return
        if key > self._lasts[-1]:
            index = len(self._blocks) - 1
            self._blocks[index].append(key)
            self._lasts[index] = key
        else:
            index = bisect_left(self._lasts, key)
            insort(self._blocks[index], key)
        if len(self._blocks[index]) > _BLOCK_MAX:
            self._halve(index)

    def _halve(self, index: int) -> None:
        block = self._blocks[index]
        # Keys that only grow leave full blocks behind, not half-empty ones.
        middle = len(block) // 2 if index + 1 < len(self._blocks) else len(block) - 1
        self._blocks[index : index + 1] = [block[:middle], block[middle:]]
        self._lasts[index : index + 1] = [block[middle - 1], block[-1]]

    def remove(self, key: bytes) -> None:
        """Remove a key."""
        index = bisect_left(self._lasts, key)
        block = self._blocks[index]
        del block[bisect_left(block, key)]
        self._count -= 1
        if block:
            self._lasts[index] = block[-1]
        else:
            del self._blocks[index], self._lasts[index]

    def between(self, low: bytes, high: bytes | None) -> Iterator[bytes]:
        """The keys from `low` (inclusive) to `high` (exclusive; None: no bound), in order."""
        index = bisect_left(self._lasts, low)
        start = bisect_left(self._blocks[index], low) if index < len(self._blocks) else 0
        while index < len(self._blocks):
            block = self._blocks[index]
            if high is not None and self._lasts[index] >= high:
                yield from block[start : bisect_left(block, high)]
                return
            yield from block[start:]
            start = 0
            index += 1

    def nth(self, position: int) -> bytes:
        """The key at a position in order, from 0."""
        for block in self._blocks:
            if position < len(block):
                return block[position]
            position -= len(block)
        raise IndexError(position)

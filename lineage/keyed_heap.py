"""Tokens in the order of a number that may change, such as a time or a watermark.

A change appends to the heap and leaves the former entry in it, void; void entries are dropped when
they come to the top, or once they are more than half of the heap.  So a change costs the logarithm
of the size, and memory stays in proportion to the tokens.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

_VOID_ALLOWED = 64


class KeyedHeap:
    """A set of tokens, each with a number; the lowest number comes first, then the token's text."""

    def __init__(self) -> None:
        """Start empty."""
        self.keys: dict[str, int] = {}
        """Every token's number; read only."""
        self._heap: list[tuple[int, str]] = []

    def set(self, token: str, key: int) -> None:
        """Add a token, or change its number."""
        if self.keys.get(token) == key:
            return
        self.keys[token] = key
        heappush(self._heap, (key, token))
        if len(self._heap) > 2 * len(self.keys) + _VOID_ALLOWED:
            self._heap = [(key, token) for token, key in self.keys.items()]
            heapify(self._heap)

    def discard(self, token: str) -> None:
        """Remove a token, if it is there."""
        self.keys.pop(token, None)

    def first(self) -> tuple[int, str] | None:
        """Return the lowest number and its token; None if the set is empty."""
        while self._heap:
            key, token = self._heap[0]
            if self.keys.get(token) == key:
                return key, token
            heappop(self._heap)
        return None

    def pop_through(self, key_max: int) -> list[str]:
        """Remove the tokens with a number of at most `key_max`; return them in order."""
        tokens = []
        while (first := self.first()) is not None and first[0] <= key_max:
            tokens.append(first[1])
            self.discard(first[1])
        return tokens

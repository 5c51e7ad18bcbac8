"""Reads of chunks that are broken on purpose."""

from __future__ import annotations

from typing import Any

from tests.simulation.backfill import ChunkedSpanner
from tests.simulation.mutant import Mutant

__all__ = ["BROKEN_CHUNKS"]

_row_at = ChunkedSpanner._row_at


def _earlier(self: ChunkedSpanner, key: int, at_us: int) -> dict[str, Any] | None:
    return _row_at(self, key, at_us - 1_000_000)


BROKEN_CHUNKS = (
    Mutant(
        "a chunk that states a later time than it was read at",
        "chunk_rows",
        ((ChunkedSpanner, "_row_at", _earlier),),
    ),
)

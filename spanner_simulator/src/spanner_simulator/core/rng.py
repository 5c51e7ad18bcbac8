"""The port through which the core draws random numbers, so that a seed decides all of them."""

from __future__ import annotations

from typing import Protocol


class Rng(Protocol):
    """A seeded generator of random numbers; `random.Random` is one."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def getrandbits(self, k: int, /) -> int:
        """An integer of k bits."""
        ...

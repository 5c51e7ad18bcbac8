"""One way in which a core can be wrong, and who has to notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

__all__ = ["Mutant", "Patches", "patched"]

Patches = tuple[tuple[Any, str, Any], ...]
"""(owner, attribute, replacement) each."""


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    """Be wrong for a while."""
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(patch.object(owner, name, replacement))
        yield


@dataclass(frozen=True, slots=True)
class Mutant:
    """One way to be wrong."""

    name: str
    checker: str
    patches: Patches
    first_seed: int = 1
    """Where the search for a seed that shows it begins."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Be wrong for a while."""
        with patched(self.patches):
            yield

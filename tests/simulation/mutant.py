"""One way in which production code can be wrong, and who has to notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

Patches = tuple[tuple[Any, str, Any], ...]  # (owner, attribute, replacement) each


@contextmanager
def patched(patches: Patches) -> Iterator[None]:
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            stack.enter_context(patch.object(owner, name, replacement))
        yield


@dataclass(frozen=True, slots=True)
class Mutant:
    name: str
    checker: str
    patches: Patches
    first_seed: int = 1  # where the search for a seed that shows it begins

    def applied(self) -> AbstractContextManager[None]:
        return patched(self.patches)


class Mutants(list[Mutant]):
    def add(
        self,
        name: str,
        checker: str,
        *places: tuple[Any, str],
        beside: Patches = (),
        first_seed: int = 1,
    ) -> Callable[[Any], Any]:
        """Add a mutant: what is decorated stands in these places, and `beside` is patched too."""

        def take(broken: Any) -> Any:
            patches = tuple((owner, attribute, broken) for owner, attribute in places)
            self.append(Mutant(name, checker, (*patches, *beside), first_seed))
            return broken

        return take

"""One way in which a part can be wrong, and the tests of that part that have to notice."""

from __future__ import annotations

from dataclasses import dataclass

from tests.simulation.mutant import Patches


@dataclass(frozen=True, slots=True)
class UnitMutant:
    """One way to be wrong."""

    name: str
    tests: tuple[str, ...]
    """Each of them must fail: `path::test`, for all parameters; one that fails is enough."""
    patches: Patches

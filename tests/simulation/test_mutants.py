"""Every broken core is caught by the checker that is named for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.simulation.checking import CHECKERS
from tests.simulation.mutants import MUTANTS, caught_after

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant):
    seeds, found = caught_after(mutant)

    assert seeds is not None, f"found by {found or 'nobody'}"


def test_there_are_enough_of_them():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    assert {mutant.checker for mutant in MUTANTS} <= CHECKERS.keys()


def test_what_is_broken_for_a_while_is_whole_again():
    before = [(owner, name, getattr(owner, name)) for m in MUTANTS for owner, name, _ in m.patches]
    for mutant in MUTANTS:
        with mutant.applied():
            pass

    assert [(owner, name, getattr(owner, name)) for owner, name, _ in before] == before

"""Every broken part is noticed by the tests that are named for it, and whole code by none."""

from __future__ import annotations

import pytest

from tests.mutants.mutants import MUTANTS
from tests.mutants.verdicts import verdicts_on
from tests.simulation.mutant import patched


@pytest.mark.deep
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_test_that_it_names_fails(mutant):
    verdicts, printed = verdicts_on(mutant.name)

    assert verdicts == dict.fromkeys(mutant.tests, "failed"), printed


@pytest.mark.deep
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("is_spark", [False, True], ids=["without Spark", "Spark"])
def test_whole_code_passes_all_of_them(is_spark):
    """Apart: where gRPC's threads run already, Spark's JVM cannot be started."""
    chosen = [
        one for one in MUTANTS if is_spark == any("tests/spark" in test for test in one.tests)
    ]
    verdicts, printed = verdicts_on("whole", *(one.name for one in chosen))

    named = {test for mutant in chosen for test in mutant.tests}
    assert verdicts == dict.fromkeys(named, "passed"), printed


def test_names_are_unique():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 15
    assert all(mutant.tests for mutant in MUTANTS)


def test_what_is_broken_for_a_while_is_whole_again():
    places = [(owner, name) for mutant in MUTANTS for owner, name, _ in mutant.patches]
    before = [getattr(owner, name) for owner, name in places]
    for mutant in MUTANTS:
        with patched(mutant.patches):
            assert [
                getattr(owner, name) is replacement for owner, name, replacement in mutant.patches
            ] == [True] * len(mutant.patches)

    assert [getattr(owner, name) for owner, name in places] == before

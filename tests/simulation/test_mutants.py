"""Every broken core is caught by the checker that is named for it."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.simulation import mutants
from tests.simulation.checking import CHECKERS
from tests.simulation.mutant import Mutant
from tests.simulation.mutants import MUTANTS, SEEDS_MAX, caught_in, recorded_seeds

REPOSITORY = Path(__file__).resolve().parents[2]


@pytest.mark.deep
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_it_is_caught(mutant):
    seed, found = caught_in(mutant, first=recorded_seeds().get(mutant.name))

    assert seed is not None, f"found by {found or 'nobody'}"


@pytest.mark.parametrize(
    ("first", "begin", "tried"),
    [(7, 1, [7]), (5, 1, [5, 1, 2, 3]), (None, 1, [1, 2, 3]), (None, 6, [6, 7])],
)
def test_the_recorded_seed_is_tried_before_all_others(monkeypatch, first, begin, tried):
    seeds = []

    def run_seed(seed):
        seeds.append(seed)
        return SimpleNamespace(found={"order": ["a change"]} if seed in (3, 7) else {"copies": []})

    monkeypatch.setattr(mutants, "run_seed", run_seed)
    seed, found = caught_in(Mutant("a mutant", "order", (), begin), first=first)
    assert seeds == tried
    assert seed == tried[-1]
    assert "order" in found


def test_seeds_are_recorded_of_mutants_that_exist():
    recorded = recorded_seeds()
    firsts = {mutant.name: mutant.first_seed for mutant in MUTANTS}
    assert recorded.keys() <= firsts.keys()
    assert all(0 <= seed - firsts[name] < SEEDS_MAX for name, seed in recorded.items())


def test_there_are_enough_of_them():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    assert {mutant.checker for mutant in MUTANTS} <= CHECKERS.keys()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_broken_part_takes_what_the_whole_one_takes(mutant):
    """Otherwise it fails at its first call, which shows nothing of the rule that it breaks."""
    for owner, name, broken in mutant.patches:
        whole = inspect.getattr_static(owner, name)
        whole = getattr(whole, "__func__", whole)
        if inspect.isfunction(whole) and inspect.isfunction(broken):
            assert _accepted(broken) >= _accepted(whole)


def _accepted(function):
    parameters = inspect.signature(function).parameters.values()
    kinds = {parameter.kind for parameter in parameters}
    if inspect.Parameter.VAR_KEYWORD in kinds or inspect.Parameter.VAR_POSITIONAL in kinds:
        return _Everything()
    by_name = {
        parameter.name
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    return by_name | set(range(len(parameters) - len(by_name)))


class _Everything:
    def __ge__(self, other):
        return True


def test_what_is_broken_for_a_while_is_whole_again():
    before = [(owner, name, getattr(owner, name)) for m in MUTANTS for owner, name, _ in m.patches]
    for mutant in MUTANTS:
        with mutant.applied():
            pass

    assert [(owner, name, getattr(owner, name)) for owner, name, _ in before] == before

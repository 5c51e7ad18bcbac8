"""Runs cores that are broken on purpose until the checker named for each has noticed.

A mutant is a handful of patches of production code (or, where the rule is the driver's, of the
driver's model).  It is caught when its checker finds something within `SEEDS_MAX` seeds; what other
checkers find beside it does not count.

Most seeds show nothing of most mutants, so the seed that once did is recorded and tried first.  One
that shows nothing any more costs the search that it saved.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TypeAlias

from tests.simulation import broken_gates, broken_records, broken_workers
from tests.simulation.mutant import Mutant
from tests.simulation.runner import run_seed
from tidegate.program.memory import collect_rarely

_Outcome: TypeAlias = tuple[int | None, list[str]]

SEEDS_MAX = 800
_RECORDED = Path(__file__).with_name("mutant_seeds.json")
MUTANTS = (*broken_workers.BROKEN, *broken_records.BROKEN, *broken_gates.BROKEN)


def recorded_seeds() -> dict[str, int]:
    """Return the first seed in which each mutant was noticed, by its name."""
    return dict(json.loads(_RECORDED.read_text()))


def caught_in(mutant: Mutant, *, first: int | None = None, seeds_max: int = SEEDS_MAX) -> _Outcome:
    """Return the seed in which the mutant's checker notices, and all checkers that found something.

    All seeds are tried from the mutant's first one on until one does, but `first` before them.
    """
    others: set[str] = set()
    with mutant.applied():
        seeds = range(mutant.first_seed, mutant.first_seed + seeds_max)
        for seed in (*([first] if first else []), *seeds):
            found = run_seed(seed).found
            others |= found.keys()
            if mutant.checker in found:
                return seed, sorted(others)
    return None, sorted(others)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim-mutants", description=__doc__)
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--record", action="store_true", help="record the seeds that are found")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    began = time.perf_counter()
    missed, recorded = 0, recorded_seeds()
    print(f"{'broken core':<56} {'checker':<18} {'seed':>5}  found as well by")
    with ProcessPoolExecutor(options.workers, initializer=collect_rarely) as pool:
        outcomes: dict[Future[_Outcome], Mutant] = {}
        for mutant in chosen:
            first = recorded.get(mutant.name)
            outcome = pool.submit(_outcome, MUTANTS.index(mutant), first, options.seeds_max)
            outcomes[outcome] = mutant
        for outcome in as_completed(outcomes):
            mutant, (seed, found) = outcomes[outcome], outcome.result()
            missed += seed is None
            seed_text = "never" if seed is None else str(seed)
            others = ", ".join(name for name in found if name != mutant.checker)
            print(f"{mutant.name:<56} {mutant.checker:<18} {seed_text:>5}  {others}", flush=True)
            if options.record and seed is not None:
                recorded[mutant.name] = seed
                _record(recorded)
    seconds = time.perf_counter() - began
    print(f"within {options.seeds_max} seeds each, {seconds:.0f} s")
    print(f"{len(chosen) - missed} caught, {missed} missed")
    return 1 if missed else 0


def _outcome(index: int, first: int | None, seeds_max: int) -> _Outcome:
    return caught_in(MUTANTS[index], first=first, seeds_max=seeds_max)


def _record(seeds: dict[str, int]) -> None:
    names = {mutant.name for mutant in MUTANTS}
    kept = {name: seeds[name] for name in sorted(names & seeds.keys())}
    _RECORDED.write_text(f"{json.dumps(kept, indent=2)}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Runs cores that are broken on purpose until the checker named for each has noticed.

A mutant is a handful of patches of production code (or, where the rule is the driver's, of the
driver's model).  It is caught when its checker finds something within `SEEDS_MAX` seeds; what other
checkers find beside it does not count.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.broken_checkpoints import BROKEN_CHECKPOINTS
from tests.simulation.broken_chunks import BROKEN_CHUNKS
from tests.simulation.broken_controls import BROKEN_CONTROLS
from tests.simulation.broken_drivers import BROKEN_DRIVERS
from tests.simulation.broken_filters import BROKEN_FILTERS
from tests.simulation.broken_fleets import BROKEN_FLEETS
from tests.simulation.broken_gaps import BROKEN_GAPS
from tests.simulation.broken_gates import BROKEN_GATES
from tests.simulation.broken_ground import BROKEN_GROUND
from tests.simulation.broken_heartbeats import BROKEN_HEARTBEATS
from tests.simulation.broken_markers import BROKEN_MARKERS
from tests.simulation.broken_mirrors import BROKEN_MIRRORS
from tests.simulation.broken_moves import BROKEN_MOVES
from tests.simulation.broken_parking import BROKEN_PARKING
from tests.simulation.broken_queries import BROKEN_QUERIES
from tests.simulation.broken_redrives import BROKEN_REDRIVES
from tests.simulation.broken_schedulers import BROKEN_SCHEDULERS
from tests.simulation.broken_sizes import BROKEN_SIZES
from tests.simulation.broken_tables import BROKEN_TABLES
from tests.simulation.broken_tombstones import BROKEN_TOMBSTONES
from tests.simulation.broken_transactions import BROKEN_TRANSACTIONS
from tests.simulation.broken_translators import BROKEN_TRANSLATORS
from tests.simulation.mutant import Mutant
from tests.simulation.runner import run_seed
from tidegate.program.garbage import collect_rarely

__all__ = ["MUTANTS", "SEEDS_MAX", "caught_after"]

SEEDS_MAX = 800
MUTANTS = (
    *BROKEN_FLEETS,
    *BROKEN_HEARTBEATS,
    *BROKEN_PARKING,
    *BROKEN_REDRIVES,
    *BROKEN_QUERIES,
    *BROKEN_SCHEDULERS,
    *BROKEN_DRIVERS,
    *BROKEN_TRANSLATORS,
    *BROKEN_SIZES,
    *BROKEN_GROUND,
    *BROKEN_GAPS,
    *BROKEN_CONTROLS,
    *BROKEN_MOVES,
    *BROKEN_FILTERS,
    *BROKEN_TABLES,
    *BROKEN_GATES,
    *BROKEN_CHECKPOINTS,
    *BROKEN_MIRRORS,
    *BROKEN_TOMBSTONES,
    *BROKEN_TRANSACTIONS,
    *BROKEN_MARKERS,
    *BROKEN_CHUNKS,
)


def caught_after(mutant: Mutant, *, seeds_max: int = SEEDS_MAX) -> tuple[int | None, list[str]]:
    """Return how many seeds it took the mutant's checker, and all checkers that found something."""
    others: set[str] = set()
    with mutant.applied():
        for seed in range(1, seeds_max + 1):
            found = run_seed(seed).found
            others |= found.keys()
            if mutant.checker in found:
                return seed, sorted(others)
    return None, sorted(others)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim-mutants", description=__doc__)
    parser.add_argument("--seeds-max", type=int, default=SEEDS_MAX)
    parser.add_argument("--only", default="", help="mutants whose name contains this")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    chosen = [mutant for mutant in MUTANTS if options.only in mutant.name]
    began = time.perf_counter()
    missed = 0
    print(f"{'broken core':<56} {'checker':<18} {'seeds':>5}  found as well by")
    with ProcessPoolExecutor(options.workers, initializer=collect_rarely) as pool:
        indices = [MUTANTS.index(mutant) for mutant in chosen]
        outcomes = pool.map(_outcome, indices, [options.seeds_max] * len(indices))
        for mutant, (seeds, found) in zip(chosen, outcomes, strict=True):
            missed += seeds is None
            seeds_text = "never" if seeds is None else str(seeds)
            others = ", ".join(name for name in found if name != mutant.checker)
            print(f"{mutant.name:<56} {mutant.checker:<18} {seeds_text:>5}  {others}", flush=True)
    seconds = time.perf_counter() - began
    print(f"within {options.seeds_max} seeds each, {seconds:.0f} s")
    print(f"{len(chosen) - missed} caught, {missed} missed")
    return 1 if missed else 0


def _outcome(index: int, seeds_max: int) -> tuple[int | None, list[str]]:
    return caught_after(MUTANTS[index], seeds_max=seeds_max)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

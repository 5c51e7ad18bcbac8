"""`python -m differential`: the same workloads for the simulator and for Google's emulator.

Exit code 0 where every difference is accepted; 1 where one is not, or where nothing was compared
because the emulator ended by itself every time.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

from differential.accepted import ACCEPTED
from differential.emulator import ABSENT, Emulator, find_emulator
from differential.kinds import GOOGLE, POSTGRES, Dialect
from differential.seeds import SeedResult, run_refusals, run_seed

_SHOWN_MAX = 8
_DIALECTS: dict[str | None, Dialect | None] = {"google": GOOGLE, "postgres": POSTGRES, None: None}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--only", choices=("google", "postgres"), help="one dialect for all seeds")
    parser.add_argument("--all", action="store_true", help="print every difference, accepted too")
    options = parser.parse_args(arguments)
    program = find_emulator()
    if program is None:
        print(f"skipped: {ABSENT}")
        return 0
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    results: list[SeedResult] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Emulator(program, Path(folder) / "emulator.log") as emulator,
    ):
        for seed in seeds:
            results.append(run_seed(seed, emulator, dialect=_DIALECTS[options.only]))
            _show(results[-1], shows_all=options.all)
        if options.seed is None:
            results.append(run_refusals(emulator))
            _show(results[-1], shows_all=options.all)
    return _summary(results)


def _show(result: SeedResult, *, shows_all: bool) -> None:
    said = f"{len(result.unexplained)} unexplained" if result.unexplained else "as accepted"
    if result.crash:
        said = f"the emulator ended: {result.crash}"
    print(f"{result.name} {result.steps} steps: {said}", flush=True)
    for difference in result.unexplained[: None if shows_all else _SHOWN_MAX]:
        print("\n".join(f"    {line}" for line in difference.lines()), flush=True)
    if shows_all:
        for name, difference in result.accepted:
            print("\n      ".join((f"    accepted ({name})", *difference.lines())), flush=True)


def _summary(results: list[SeedResult]) -> int:
    used = Counter(name for result in results for name, _ in result.accepted)
    failed = [result for result in results if result.unexplained]
    print(
        f"{sum(result.dialect is not None for result in results)} seeds, "
        f"{sum(result.steps for result in results)} steps, "
        f"{sum(result.transactions for result in results)} transactions in change streams, "
        f"{sum(result.records for result in results)} records on each side"
    )
    for one in ACCEPTED:
        if used[one.name]:
            print(f"accepted {used[one.name]} times: {one.name}: {one.reason}")
    unused = [one.name for one in ACCEPTED if not used[one.name]]
    if unused:
        print("accepted, but never met here:", ", ".join(unused))
    if crashed := [result.name for result in results if result.crash]:
        print("the emulator ended by itself in:", ", ".join(crashed))
    if cut_short := [result.name for result in results if result.is_cut_short]:
        print("cut short, as a step succeeded on one side only:", ", ".join(cut_short))
    if failed:
        print("unexplained differences in:", ", ".join(result.name for result in failed))
        return 1
    if results and all(result.crash for result in results):
        print("nothing was compared: the emulator ended by itself every time")
        return 1
    print("no unexplained difference")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m differential`: the same workloads for the simulator and for Google's emulator.

Exit code 0 where every difference is accepted; 1 where one is not, or where nothing was compared
because the emulator ended by itself every time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path

from differential.accepted import ACCEPTED
from differential.difference import Difference
from differential.emulator import ABSENT, Emulator, find_emulator
from differential.kinds import GOOGLE, POSTGRES, Dialect
from differential.seeds import SeedResult, run_errors, run_seed, shrunk_seed
from differential.steps import told
from differential.workload import FEATURES

_SHOWN_MAX = 8
_DIALECTS: dict[str | None, Dialect | None] = {
    "google": GOOGLE,
    "postgres": POSTGRES,
    None: None,
}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m differential", description=__doc__)
    parser.add_argument("--seeds", type=int, default=20, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--shrink", action="store_true", help="with --seed: what it needs to fail")
    parser.add_argument("--only", choices=("google", "postgres"), help="one dialect for all seeds")
    parser.add_argument(
        "--without", default="", help=f"features to leave out: {','.join(FEATURES)}"
    )
    parser.add_argument("--errors", metavar="TEXT", help="only the error cases with TEXT in them")
    parser.add_argument("--json", action="store_true", help="the result as JSON, nothing else")
    parser.add_argument("--all", action="store_true", help="print every difference, accepted too")
    options = parser.parse_args(arguments)
    program = find_emulator()
    if program is None:
        print(json.dumps({"skipped": ABSENT}) if options.json else f"skipped: {ABSENT}")
        return 0
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    without = frozenset(filter(None, options.without.split(",")))
    if unknown := without - set(FEATURES):
        parser.error(f"no such feature: {', '.join(sorted(unknown))}")
    results: list[SeedResult] = []
    if options.errors is not None:
        seeds = range(0)
    with (
        tempfile.TemporaryDirectory() as folder,
        Emulator(program, Path(folder) / "emulator.log") as emulator,
    ):
        if options.seed is not None and options.shrink:
            dialect = _DIALECTS[options.only]
            small, result = shrunk_seed(options.seed, emulator, dialect=dialect, without=without)
            for number, step in enumerate(small.steps):
                print(f"{number:>4} {told(step)}")
            _show(result, shows_all=options.all)
            return 1 if result.unexplained else 0
        for seed in seeds:
            result = run_seed(
                seed,
                emulator,
                dialect=_DIALECTS[options.only],
                without=without,
            )
            results.append(result)
            if not options.json:
                _show(result, shows_all=options.all)
        if options.seed is None:
            result = run_errors(emulator, options.errors or "", options.only or "")
            results.append(result)
            if not options.json:
                _show(result, shows_all=options.all)
    return _summary(results, as_json=options.json)


def _show(result: SeedResult, *, shows_all: bool) -> None:
    said = f"{len(result.unexplained)} unexplained" if result.unexplained else "as accepted"
    if result.crash:
        said = f"the emulator ended: {result.crash}"
    print(f"{result.name} {result.steps} steps: {said}", flush=True)
    alike: dict[tuple[str, str, str], list[Difference]] = {}
    for difference in result.unexplained:
        alike.setdefault(difference.likeness, []).append(difference)
    for group in list(alike.values())[: None if shows_all else _SHOWN_MAX]:
        lines = group[0].lines()
        if len(group) > 1:
            lines.append(f"  and {len(group) - 1} more like it")
        print("\n".join(f"    {line}" for line in lines), flush=True)
    if len(alike) > _SHOWN_MAX and not shows_all:
        print(f"    … and {len(alike) - _SHOWN_MAX} more; --all shows them")
    if shows_all:
        for name, difference in result.accepted:
            print(f"    accepted ({name})")
            print("\n".join(f"      {line}" for line in difference.lines()), flush=True)


def _summary(results: list[SeedResult], *, as_json: bool) -> int:
    used = Counter(name for result in results for name, _ in result.accepted)
    failed = [result for result in results if result.unexplained]
    figures = {
        "seeds": sum(result.dialect is not None for result in results),
        "steps": sum(result.steps for result in results),
        "transactions": sum(result.transactions for result in results),
        "records": sum(result.records for result in results),
        "emulator_crashes": [result.name for result in results if result.crash],
        "cut_short": [result.name for result in results if result.is_cut_short],
        "accepted": {one.name: used[one.name] for one in ACCEPTED},
        "unexplained": {
            result.name: [
                {
                    "kind": one.kind,
                    "step": one.step,
                    "where": one.where,
                    "simulator": repr(one.simulator),
                    "emulator": repr(one.emulator),
                }
                for one in result.unexplained
            ]
            for result in failed
        },
    }
    is_lost = bool(results) and all(result.crash for result in results)
    if as_json:
        print(json.dumps(figures, indent=1))
        return 1 if failed or is_lost else 0
    print(
        f"{figures['seeds']} seeds, {figures['steps']} steps, {figures['transactions']} "
        f"transactions in change streams, {figures['records']} records on each side"
    )
    for one in ACCEPTED:
        if used[one.name]:
            print(f"accepted {used[one.name]} times: {one.name}: {one.reason}")
    unused = [one.name for one in ACCEPTED if not used[one.name]]
    if unused:
        print("accepted, but never met here:", ", ".join(unused))
    if figures["emulator_crashes"]:
        print("the emulator ended by itself in:", ", ".join(figures["emulator_crashes"]))
    if figures["cut_short"]:
        print("cut short, as a step succeeded on one side only:", ", ".join(figures["cut_short"]))
    kinds = Counter(one.kind for result in failed for one in result.unexplained)
    if failed:
        print("unexplained:", ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
        print("unexplained differences in:", ", ".join(result.name for result in failed))
        return 1
    if is_lost:
        print("nothing was compared: the emulator ended by itself every time")
        return 1
    print("no unexplained difference")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

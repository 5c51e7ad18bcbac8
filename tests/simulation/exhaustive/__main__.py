"""Every interleaving of a small world: `python -m tests.simulation.exhaustive`.

A scenario fixes what Spanner holds, who works and what may break; the search takes every order in
which its actions can happen.  So what comes out green holds for all orders of that small world, not
for those that were drawn.
"""

from __future__ import annotations

import argparse
import sys

from tests.simulation.exhaustive.script import DEEP, SCENARIOS
from tests.simulation.exhaustive.search import explore


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.exhaustive")
    parser.add_argument("--deep", action="store_true", help="the large ones too: minutes")
    parser.add_argument("--only", help="scenarios whose name contains this")
    options = parser.parse_args(arguments)
    failed = 0
    for scenario in (*SCENARIOS, *(DEEP if options.deep else ())):
        if options.only and options.only not in scenario.name:
            continue
        outcome = explore(scenario)
        print(outcome.line(), flush=True)
        for name, violations in outcome.found.items():
            failed += 1
            print("   ", name, *(violation.text for violation in violations[:2]), sep="\n      ")
        for action in outcome.trace:
            print("       ", *action)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.any_schema`: worlds of any schema, in memory."""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable

from tests.any_schema.changes import World, make_world
from tests.any_schema.memory_lane import differences

__all__ = ["main"]

_SHOWN_MAX = 20


def main(arguments: list[str]) -> int:
    """Return 1 if a world has a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.any_schema", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first")
    parser.add_argument("--seed", type=int, help="this one alone, and its tables")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    failed = [seed for seed in seeds if not _passes(seed, _in_memory, shown=options.seed == seed)]
    print(f"{len(seeds) - len(failed)} worlds passed, {len(failed)} failed")
    if failed:
        print("failed:", *failed)
    return 1 if failed else 0


def _in_memory(seed: int) -> tuple[World, list[str]]:
    world = make_world(random.Random(seed), seed=seed)
    return world, differences(world)


def _passes(
    seed: int, run: Callable[[int], tuple[World, list[str]]], *, shown: bool
) -> bool:
    world, found = run(seed)
    if shown or found:
        print(f"seed {seed}, {world.dialect}")
        for table in world.stages[-1].tables.values():
            key = ", ".join(f"{one.name} {one.kind.code}" for one in table.key)
            print(f"  table {table.name}: {len(table.columns)} columns, key {key}")
    for line in found[:_SHOWN_MAX]:
        print(f"  {line}")
    return not found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

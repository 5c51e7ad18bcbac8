"""`python -m tests.any_schema`: worlds of any schema, in memory or on real sinks."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TypeAlias

from tests.any_schema.changes import World, make_world
from tests.any_schema.memory_lane import differences
from tidegate.schemas.errors import TidegateError

_SHOWN_MAX = 20
_LINE_MAX = 300

_Run: TypeAlias = Callable[[int], tuple[World, list[str]]]


def main(arguments: list[str]) -> int:
    """Return 1 if a world has a difference."""
    parser = argparse.ArgumentParser(prog="python -m tests.any_schema", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many worlds")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first")
    parser.add_argument("--seed", type=int, help="this one alone, and its tables")
    parser.add_argument("--sinks", action="store_true", help="on real sinks, with Spark")
    parser.add_argument("--long", action="store_true", help="with --sinks: Spark writes more")
    parser.add_argument("--iceberg", action="store_true", help="with --sinks: Iceberg's alone")
    options = parser.parse_args(arguments)
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    is_iceberg = True if options.iceberg else None
    on_sinks = partial(_on_sinks, is_long=options.long, is_iceberg=is_iceberg)
    with on_sinks() if options.sinks else nullcontext(_in_memory) as run:
        failed = [seed for seed in seeds if not _passes(seed, run, shown=options.seed == seed)]
    print(f"{len(seeds) - len(failed)} worlds passed, {len(failed)} failed")
    if failed:
        print("failed:", *failed)
    return 1 if failed else 0


def _in_memory(seed: int) -> tuple[World, list[str]]:
    world = make_world(random.Random(seed), seed=seed)
    try:
        return world, differences(world)
    except TidegateError as error:
        return world, [f"{type(error).__name__}: {error}"]


@contextmanager
def _on_sinks(*, is_long: bool, is_iceberg: bool | None) -> Iterator[_Run]:
    """Run worlds on one Spark session, each in a folder of its own that is deleted afterwards."""
    from tests.any_schema.sink_lane import sink_world
    from tests.spark.conftest import local_spark
    from tidegate.local_stack.parts.installed_java import find_java

    os.environ["JAVA_HOME"] = str(find_java().home)
    with tempfile.TemporaryDirectory() as name:
        spark = local_spark(Path(name), {"spark.ui.showConsoleProgress": "false"})

        def run(seed: int) -> tuple[World, list[str]]:
            folder = Path(name, f"{seed}")
            one = sink_world(seed, is_long=is_long, is_iceberg=is_iceberg)
            try:
                return one.world, one.differences(spark, folder)
            except Exception as error:  # noqa: BLE001 - an error is a difference, of a seed
                return one.world, [f"{type(error).__name__}: {error}"]
            finally:
                shutil.rmtree(folder, ignore_errors=True)

        yield run
        spark.stop()


def _passes(seed: int, run: _Run, *, shown: bool) -> bool:
    world, found = run(seed)
    if shown or found:
        print(f"seed {seed}, {world.dialect}")
        for table in world.stages[-1].tables.values():
            key = ", ".join(f"{one.name} {one.kind.code}" for one in table.key)
            print(f"  table {table.name}: {len(table.columns)} columns, key {key}")
    for line in found[:_SHOWN_MAX]:
        print(f"  {line[:_LINE_MAX]}")
    return not found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m tests.simulation`: run seeds, or print one seed line by line."""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.runner import (
    FileVerdict,
    Verdict,
    failure_report,
    file_report,
    run_file_worlds,
    run_seed,
    story,
)
from tests.simulation.weather import ANY_SCHEMA
from tidegate.program.memory import collect_rarely

ANY_SCHEMA_EVERY = 7  # one of so many seeds has a world of any schema beside it
_REPORTED_MAX = 5


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="make sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    cores = os.cpu_count() or 1
    parser.add_argument("--workers", type=int, default=cores, help="processes, a core each")
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--story", action="store_true", help="with --seed: a line per event")
    parser.add_argument("--about", help="with --story: a token, or an order key in hexadecimal")
    options = parser.parse_args(arguments)
    if options.seed is not None and options.story:
        for line in story(options.seed, about=_subject(options.about)):
            print(line)
    seeds = range(options.first, options.first + options.seeds)
    if options.seed is not None:
        seeds = range(options.seed, options.seed + 1)
    return _run(seeds, options.workers)


def _subject(text: str | None) -> bytes | str | None:
    if text is None:
        return None
    try:
        return bytes.fromhex(text)
    except ValueError:
        return text


def _run(seeds: range, workers: int) -> int:
    began = time.perf_counter()
    failed: list[Verdict] = []
    of_files: list[FileVerdict] = []
    changes = releases = any_schema = 0
    with ProcessPoolExecutor(workers, initializer=collect_rarely) as pool:
        for number, (verdicts, worlds) in enumerate(
            pool.map(_run_seed, seeds, chunksize=4), start=1
        ):
            of_files += worlds
            for one in worlds:
                if not one.has_passed:
                    print("\n".join(file_report(one)), flush=True)
            any_schema += sum(one.seed >= ANY_SCHEMA for one in verdicts)
            for verdict in verdicts:
                changes += verdict.changes
                releases += verdict.releases
                if not verdict.has_passed:
                    failed.append(verdict)
                    if len(failed) <= _REPORTED_MAX:
                        print("\n".join(failure_report(verdict)), flush=True)
            if number % 200 == 0:
                print(f"{number} seeds, {len(failed)} failed", flush=True)
    bad_worlds = [world for world in of_files if not world.has_passed]
    minutes = (time.perf_counter() - began) / 60
    if failed:
        print("failed:", *(verdict.seed for verdict in failed))
    print(f"{changes} changes committed, {releases} releases written")
    rate = len(seeds) / minutes
    print(f"{rate:.0f} seeds a minute, {rate / workers:.0f} on each core used ({workers})")
    events, deaths = (
        sum(getattr(world, what) for world in of_files) for what in ("events", "deaths")
    )
    print(
        f"files of Datastream: {len(of_files)} worlds, {events} events, {deaths} deaths, "
        f"{len(bad_worlds)} worlds failed"
    )
    bad_schemas = sum(one.seed >= ANY_SCHEMA for one in failed)
    print(f"tables of any schema: {any_schema} worlds, {bad_schemas} worlds failed")
    # A seed passes with its worlds.
    bad_seeds = {one.seed % ANY_SCHEMA for one in failed}
    bad_seeds |= {world.seed % ANY_SCHEMA for world in bad_worlds}
    print(f"{len(seeds) - len(bad_seeds)} passed, {len(bad_seeds)} failed")
    return 1 if bad_seeds else 0


def _run_seed(seed: int) -> tuple[list[Verdict], list[FileVerdict]]:
    beside = [ANY_SCHEMA + seed] if seed % ANY_SCHEMA_EVERY == 0 and seed < ANY_SCHEMA else []
    return [run_seed(one) for one in (seed, *beside)], run_file_worlds(seed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the producer costs: each stage, the worker in memory, real workers on a real broker.

    python -m benchmarks.producer [--only NAME …] [--baseline CHECKOUT] [--json]

Stages are CPU microseconds for each change.  Names that begin with `kafka` start a broker and a
registry (`tidegate.local_stack`) and measure real worker programs; `floor` is what gRPC or
producing take alone.  With `--baseline` the rounds of another checkout of Tidegate run in turn with
those of this one.  Ends with 1 if a round failed, or a figure is beyond its aim (`aims.py`).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from benchmarks.producer.aims import misses
from benchmarks.producer.file_limits import FILE_LIMITS, TEN_OBJECTS
from benchmarks.producer.files import FILES
from benchmarks.producer.memory import MEMORY, measure_memory
from benchmarks.producer.responses import CASES, Case
from benchmarks.producer.rounds import Checkout
from benchmarks.producer.scale import SCALE
from benchmarks.producer.scenarios import FLOORS, LARGE, SCENARIOS, Figures
from benchmarks.producer.stages import STAGES
from benchmarks.producer.worker import WORKERS
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.accelerator import accelerator
from tidegate.program.garbage import collect_rarely

_OWN = Path(__file__).resolve().parents[2]
_ON_KAFKA = (*SCENARIOS, *LARGE, *FLOORS)
_ALONE = {
    **{name: partial(measure_memory, name) for name in MEMORY},
    **SCALE,
    **FILES,
    **FILE_LIMITS,
}
"""Measured of this checkout alone."""
_ALL = (*STAGES, *WORKERS, *_ALONE, *_ON_KAFKA)
_NAMED = (*LARGE, TEN_OBJECTS)
"""Measured only where they are named: they take long."""
_USUAL = tuple(name for name in _ALL if name not in _NAMED)


def main(arguments: list[str]) -> None:
    """Measure what was chosen and print a table, or JSON."""
    options = _options(arguments)
    paths = {"this": _OWN}
    if options.baseline:
        paths["baseline"] = options.baseline.resolve()
    found = _measure_stages(paths, options)
    found += _measure_alone(options)
    on_kafka, failures = _measure_on_kafka(paths, options)
    found += on_kafka
    if options.json:
        print(json.dumps({"machine": _machine(), "measured": found}))
    is_accelerated = accelerator() is not None
    if not is_accelerated:
        _say("without the accelerator: changes a CPU second have no aim")
    missed = [*failures, *misses(found, is_accelerated=is_accelerated)]
    for line in missed:
        _say(line)
    if missed:
        sys.exit(1)


def _options(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.producer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="*", default=_USUAL, metavar="NAME", help="; ".join(_ALL))
    parser.add_argument("--baseline", type=Path, help="another checkout, measured in turn")
    parser.add_argument("--json", action="store_true", help="one JSON document at the end")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each checkout")
    parser.add_argument("--changes", type=int, default=4_000, help="changes in a stage's round")
    parser.add_argument("--mods", type=int, nargs="*", help="stages: only cases with so many mods")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.only) - set(_ALL))
    if unknown:
        parser.error(f"unknown names {unknown}; known: {'; '.join(_ALL)}")
    return options


def _measure_stages(paths: dict[str, Path], options: Any) -> list[dict[str, Any]]:
    """Measure one stage after the other, the checkouts in turn."""
    stages = [name for name in (*STAGES, *WORKERS) if name in options.only]
    if not stages:
        return []
    checkouts = {name: Checkout(path) for name, path in paths.items()}
    found = []
    for stage in stages:
        for case in CASES:
            if case.rows == 1 and stage in STAGES:
                continue  # how messages are cut matters where they are received
            if options.mods and case.mods not in options.mods:
                continue
            _say(f"{stage}, {case.rows} x {case.mods}")
            for checkout in checkouts.values():
                checkout.prepare(stage, case, options.changes)
            rounds: dict[str, list[Figures]] = {name: [] for name in checkouts}
            for name in _in_turn(checkouts, options.rounds):
                rounds[name].append({"cpu_us": checkouts[name].run()})
            found.append(_summary(stage, rounds, case))
            _show(found[-1], options)
    for checkout in checkouts.values():
        checkout.close()
    return found


def _measure_alone(options: Any) -> list[dict[str, Any]]:
    """Measure what has no counterpart in other checkouts."""
    names = [name for name in _ALONE if name in options.only]
    if not names:
        return []
    found = []
    for name in names:
        _say(name)
        found.append(_summary(name, {"this": [_ALONE[name]() for _ in range(options.rounds)]}))
        _show(found[-1], options)
    return found


def _measure_on_kafka(
    paths: dict[str, Path], options: Any
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure all scenarios once in each round, so that a busy spell hits all of them.

    Returns what failed beside the figures.
    """
    names = [name for name in _ON_KAFKA if name in options.only]
    scenarios = {**SCENARIOS, **LARGE}
    failures: list[str] = []
    if not names:
        return [], failures
    rounds: dict[str, dict[str, list[Figures]]] = {
        name: {checkout: [] for checkout in (paths if name in scenarios else ["this"])}
        for name in names
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(
            load_config(data_dir=Path(folder)), report=_say, with_simulator=False, is_lasting=True
        ) as stack,
    ):
        for number in range(options.rounds):
            for name, found in rounds.items():
                for checkout in _in_turn(found, 1, first=number):
                    _say(f"round {number + 1} of {options.rounds}: {name} ({checkout})")
                    try:
                        figures = (
                            scenarios[name](stack, paths[checkout])
                            if name in scenarios
                            else FLOORS[name](stack)
                        )
                    except SystemExit as failed:  # the figures of the others are not lost
                        failures.append(f"{name}: {failed}")
                        _say(failures[-1])
                    else:
                        found[checkout].append(figures)
    summaries = [_summary(name, found) for name, found in rounds.items() if all(found.values())]
    for summary in summaries:
        _show(summary, options)
    return summaries, failures


def _in_turn(checkouts: Any, rounds: int, *, first: int = 0) -> list[str]:
    """Return names in the order of their rounds: each is the first one in every other round."""
    return [
        name
        for number in range(first, first + rounds)
        for name in sorted(checkouts, reverse=number % 2 == 0)
    ]


def _summary(
    name: str, rounds: dict[str, list[Figures]], case: Case | None = None
) -> dict[str, Any]:
    cut = {} if case is None else {"rows": case.rows, "mods": case.mods}
    return {
        "name": name,
        **cut,
        **{
            checkout: {figure: _spread([one[figure] for one in figures]) for figure in figures[0]}
            for checkout, figures in rounds.items()
        },
    }


def _spread(values: list[float]) -> dict[str, float]:
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 2) for name, value in found.items()}


def _show(summary: dict[str, Any], options: Any) -> None:
    """Print a row: of each figure the median, and the least and the most of all rounds."""
    if options.json:
        return
    cut = f"{summary['rows']} x {summary['mods']}" if "rows" in summary else ""
    for figure in summary["this"]:
        columns = [summary["name"], cut, figure]
        for checkout in ("baseline", "this"):
            if checkout in summary:
                one = summary[checkout][figure]
                columns.append(f"{one['median']:,.1f} ({one['min']:,.1f} to {one['max']:,.1f})")
        print("| " + " | ".join(columns) + " |", flush=True)


def _say(line: str) -> None:
    """Report progress, where it disturbs no reader of the figures."""
    print(line, file=sys.stderr, flush=True)


def _machine() -> dict[str, Any]:
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    # Of the whole process, so not in `main`, which tests call.  Standard output is for the figures.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    collect_rarely()
    main(sys.argv[1:])

"""What the producer costs: real workers on a real broker, and what depends on its own loop alone.

    python -m benchmarks.producer [--only NAME …] [--baseline CHECKOUT] [--json]

Names that begin with `kafka` start a broker and a registry (`tidegate.local_stack`) and measure
real worker programs.  With `--baseline` their rounds of another checkout of Tidegate run in turn
with those of this one.  Ends with 1 if a round failed, or a figure is beyond its aim (`aims.py`).
"""

from __future__ import annotations

import logging
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from benchmarks.measuring import (
    document,
    options_parser,
    require_known,
    say,
    spread,
    spread_text,
)
from benchmarks.producer.aims import misses
from benchmarks.producer.file_limits import FILE_LIMITS
from benchmarks.producer.files import FILES
from benchmarks.producer.memory import MEMORY, measure_memory
from benchmarks.producer.scale import SCALE
from benchmarks.producer.scenarios import LARGE, SCENARIOS, Figures
from tidegate.local_stack.config import load_config
from tidegate.local_stack.parts.stack import LocalStack
from tidegate.producer.accelerator import accelerator
from tidegate.program.memory import collect_rarely

_OWN = Path(__file__).resolve().parents[2]
_ALONE = {
    **{name: partial(measure_memory, name) for name in MEMORY},
    **SCALE,
    **FILES,
    **FILE_LIMITS,
}
"""Measured of this checkout alone."""
_ON_KAFKA = {**SCENARIOS, **LARGE}
_ALL = (*_ALONE, *_ON_KAFKA)
_USUAL = tuple(name for name in _ALL if name not in LARGE)


def main(arguments: list[str]) -> None:
    """Measure what was chosen and print a table, or JSON."""
    options = _options(arguments)
    paths = {"this": _OWN}
    if options.baseline:
        paths["baseline"] = options.baseline.resolve()
    found = _measure_alone(options)
    on_kafka, failures = _measure_on_kafka(paths, options)
    found += on_kafka
    if options.json:
        print(document(found))
    is_accelerated = accelerator() is not None
    if not is_accelerated:
        say("without the accelerator: changes a CPU second have no aim")
    missed = [*failures, *misses(found, is_accelerated=is_accelerated)]
    for line in missed:
        say(line)
    if missed:
        sys.exit(1)


def _options(arguments: list[str]) -> Any:
    parser = options_parser("benchmarks.producer", __doc__, _ALL, _USUAL, 5)
    parser.add_argument("--baseline", type=Path, help="another checkout, measured in turn")
    options = parser.parse_args(arguments)
    require_known(parser, options.only, _ALL)
    return options


def _measure_alone(options: Any) -> list[dict[str, Any]]:
    """Measure what has no counterpart in other checkouts."""
    found = []
    for name, measure in _ALONE.items():
        if name in options.only:
            say(name)
            found.append(summary(name, {"this": [measure() for _ in range(options.rounds)]}))
            _show(found[-1], options)
    return found


def _measure_on_kafka(
    paths: dict[str, Path], options: Any
) -> tuple[list[dict[str, Any]], list[str]]:
    """Measure all scenarios once in each round, so that a busy spell hits all of them.

    Returns what failed beside the figures.
    """
    names = [name for name in _ON_KAFKA if name in options.only]
    failures: list[str] = []
    if not names:
        return [], failures
    rounds: dict[str, dict[str, list[Figures]]] = {
        name: {checkout: [] for checkout in paths} for name in names
    }
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalStack(
            load_config(data_dir=Path(folder)), report=say, with_simulator=False, is_lasting=True
        ) as stack,
    ):
        for number in range(options.rounds):
            for name, found in rounds.items():
                # Each checkout is the first one in every other round.
                for checkout in sorted(found, reverse=number % 2 == 0):
                    say(f"round {number + 1} of {options.rounds}: {name} ({checkout})")
                    try:
                        found[checkout].append(_ON_KAFKA[name](stack, paths[checkout]))
                    except SystemExit as failed:  # the figures of the others are not lost
                        failures.append(f"{name}: {failed}")
                        say(failures[-1])
    summaries = [summary(name, found) for name, found in rounds.items() if all(found.values())]
    for one in summaries:
        _show(one, options)
    return summaries, failures


def summary(name: str, rounds: dict[str, list[Figures]]) -> dict[str, Any]:
    """Return the spread of each figure of a measurement, by checkout."""
    return {
        "name": name,
        **{
            checkout: {figure: spread([one[figure] for one in figures]) for figure in figures[0]}
            for checkout, figures in rounds.items()
        },
    }


def _show(found: dict[str, Any], options: Any) -> None:
    """Print a row: of each figure the median, and the least and the most of all rounds."""
    if options.json:
        return
    for figure in found["this"]:
        columns = [found["name"], figure]
        columns += [spread_text(found[one][figure]) for one in ("baseline", "this") if one in found]
        print("| " + " | ".join(columns) + " |", flush=True)


if __name__ == "__main__":
    # Of the whole process, so not in `main`, which tests call.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    collect_rarely()
    main(sys.argv[1:])

"""What the consumer costs: a backfill, small releases in each table format, fresh tables.

    python -m benchmarks.consumer backfill [--rows 200000 1000000 5000000]
        [--sinks changelog,mirror topic ...] [--driver-memory 4g]
    python -m benchmarks.consumer iceberg [--changes 500] [--rounds 10] [--keys 20000]
        [--columns 9] [--warm-up 3] [--sinks "mirror, Spark" ...]
    python -m benchmarks.consumer freshness [--rate 100] [--intervals 10000 5000 2000 0]
        [--seconds 90] [--rounds 1]

A line of JSON for each figure, and one for the machine; needs Java.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from typing import Any

import structlog

from benchmarks.consumer import backfill, freshness, iceberg
from benchmarks.measuring import machine

_MEASURES = {
    "backfill": backfill.measure,
    "iceberg": iceberg.measure,
    "freshness": freshness.measure,
}


def main(arguments: list[str]) -> None:
    """Measure what was chosen."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for line in _MEASURES[options.measure](options, folder):
            print(json.dumps(line))
    print(json.dumps({"machine": machine()}))


def _options(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.consumer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen = parser.add_subparsers(dest="measure", required=True)
    rows = chosen.add_parser("backfill")
    rows.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000, 5_000_000])
    rows.add_argument("--sinks", nargs="+", default=list(backfill.SINKS), help="of each run")
    rows.add_argument("--driver-memory", default="", help="of Spark's JVM; empty: the default")
    rows.add_argument("--seconds-max", type=float, default=1_800.0, help="of each run")
    rows.add_argument("--logs", default="", help="folder in which logs are kept; empty: none")
    lake = chosen.add_parser("iceberg")
    lake.add_argument("--changes", type=int, default=500, help="in each release, of one table")
    lake.add_argument("--rounds", type=int, default=10)
    lake.add_argument("--keys", type=int, default=20_000, help="rows that are there before")
    lake.add_argument("--columns", type=int, default=9, help="besides the key")
    lake.add_argument("--warm-up", type=int, default=3, help="rounds that are left out")
    lake.add_argument("--sinks", nargs="*", default=[], help="all unless some are named")
    fresh = chosen.add_parser("freshness")
    fresh.add_argument("--rate", type=float, default=100.0, help="changes a second")
    fresh.add_argument(
        "--intervals", type=int, nargs="+", default=[10_000, 5_000, 2_000, 0],
        help="milliseconds between two merges of the mirror, at least, of each run",
    )  # fmt: skip
    fresh.add_argument("--seconds", type=float, default=90.0, help="of each run, after as many")
    fresh.add_argument("--rounds", type=int, default=1)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    # Standard output is for the figures.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    main(sys.argv[1:])

"""What the consumer costs: small batches, large releases, a steady stream, its start, sinks.

    python -m benchmarks.consumer small [--changes 500] [--rounds 10] [--idle-tables 40]
        [--waiting 10000 5000000]
    python -m benchmarks.consumer large [--changes 250000] [--batches 4] [--runs 5] [--tables 1 5]
    python -m benchmarks.consumer steady [--rates 100 1000] [--seconds 120] [--warm-up 60]
    python -m benchmarks.consumer releases [--releases 2000] [--changes 10] [--files-min 32]
    python -m benchmarks.consumer start [--changes 500] [--runs 3]
    python -m benchmarks.consumer sinks [--small 500] [--large 100000] [--rounds 7]
    python -m benchmarks.consumer backfill [--rows 200000 1000000 5000000]
        [--sinks changelog,mirror topic ...] [--driver-memory 4g]
    python -m benchmarks.consumer one-release [--rows 1000000] [--sinks reader changelog,mirror ...]
    python -m benchmarks.consumer iceberg [--changes 500] [--rounds 10] [--keys 20000]
        [--columns 9] [--warm-up 3] [--sinks "mirror, Spark" ...]

Each prints a line of JSON for what it measured.  All but `small`, `releases`,
`one-release` and `iceberg` start a Kafka broker.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import tempfile
from typing import Any

import structlog

from benchmarks.consumer import (
    backfill,
    iceberg,
    large,
    one_release,
    releases,
    sinks,
    small,
    start,
    steady,
)

_MEASURES = {
    "small": small.measure,
    "large": large.measure,
    "steady": steady.measure,
    "releases": releases.measure,
    "start": start.measure,
    "sinks": sinks.measure,
    "iceberg": iceberg.measure,
    "backfill": backfill.measure,
    "one-release": one_release.measure,
}


def main(arguments: list[str]) -> None:
    """Measure what was chosen."""
    options = _options(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for line in _MEASURES[options.measure](options, folder):
            print(json.dumps(line))
    machine = {
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[1], 1),
        "python": platform.python_version(),
    }
    print(json.dumps({"machine": machine}))


def _options(arguments: list[str]) -> Any:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.consumer",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    chosen = parser.add_subparsers(dest="measure", required=True)
    few = chosen.add_parser("small")
    few.add_argument("--changes", type=int, default=500, help="in each batch, over two tables")
    few.add_argument("--rounds", type=int, default=10)
    few.add_argument("--idle-tables", type=int, default=40)
    few.add_argument(
        "--waiting", type=int, nargs="*", default=[], help="later changes that wait meanwhile"
    )
    many = chosen.add_parser("large")
    many.add_argument("--changes", type=int, default=250_000, help="in each batch")
    many.add_argument(
        "--batches", type=_two_or_more, default=4, help="in each run; the first is left out"
    )
    many.add_argument("--runs", type=int, default=5, help="of each way, after one to warm up")
    many.add_argument("--tables", type=int, nargs="+", default=[1, 5])
    even = chosen.add_parser("steady")
    even.add_argument("--rates", type=int, nargs="+", default=[100, 1_000], help="changes a second")
    even.add_argument("--seconds", type=float, default=120.0, help="that are measured")
    even.add_argument("--warm-up", type=float, default=60.0, help="seconds before them")
    tiny = chosen.add_parser("releases")
    tiny.add_argument("--releases", type=int, default=2_000, help="into one changelog, each way")
    tiny.add_argument("--changes", type=int, default=10, help="in each release")
    tiny.add_argument("--files-min", type=int, default=32, help="as the setting compact_files_min")
    tiny.add_argument("--target-bytes", type=int, default=32 * 1024**2)
    first = chosen.add_parser("start")
    first.add_argument("--changes", type=int, default=500, help="in the topics at each start")
    first.add_argument("--runs", type=int, default=3, help="of a new and a continued checkpoint")
    every = chosen.add_parser("sinks")
    every.add_argument("--small", type=int, default=500, help="changes of a small release")
    every.add_argument("--large", type=int, default=100_000, help="changes of a large one")
    every.add_argument("--rounds", type=int, default=7)
    rows = chosen.add_parser("backfill")
    rows.add_argument("--rows", type=int, nargs="+", default=[200_000, 1_000_000, 5_000_000])
    rows.add_argument("--sinks", nargs="+", default=list(backfill.SINKS), help="of each run")
    rows.add_argument("--driver-memory", default="", help="of Spark's JVM; empty: the default")
    rows.add_argument("--seconds-max", type=float, default=1_800.0, help="of each run")
    rows.add_argument("--logs", default="", help="folder in which logs are kept; empty: none")
    alone = chosen.add_parser("one-release")
    alone.add_argument("--rows", type=int, nargs="+", default=[1_000_000])
    alone.add_argument("--sinks", nargs="+", default=list(one_release.SINKS), help="of each run")
    lake = chosen.add_parser("iceberg")
    lake.add_argument("--changes", type=int, default=500, help="in each release, of one table")
    lake.add_argument("--rounds", type=int, default=10)
    lake.add_argument("--keys", type=int, default=20_000, help="rows that are there before")
    lake.add_argument("--columns", type=int, default=9, help="besides the key")
    lake.add_argument("--warm-up", type=int, default=3, help="rounds that are left out")
    lake.add_argument("--sinks", nargs="*", default=[], help="all unless some are named")
    return parser.parse_args(arguments)


def _two_or_more(text: str) -> int:
    number = int(text)
    if number < 2:
        message = f"{number}: the first one is left out, so there must be two at least"
        raise argparse.ArgumentTypeError(message)
    return number


if __name__ == "__main__":
    # Standard output is for the figures.
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    main(sys.argv[1:])

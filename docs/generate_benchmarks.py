"""Writes the tables of docs/benchmarks.md from the JSON in benchmarks/results/.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME.json has the rounds.  Each
cell is a median with the least and the most.  `./dev docs` runs this, and a test fails while the
page is stale; `./dev pictures` draws the pictures from the same files.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "benchmarks.md"
RESULTS = REPOSITORY / "benchmarks" / "results"

_TABLE = re.compile(r"(<!-- table: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "debezium-backlog": {
        "per_s": "changes a second",
        "warm_cpu_us": "µs of CPU a change, warm",
        "cpu_us": "with the start",
        "first_s": "first change after, s",
        "mib": "memory at the end, MiB",
        "bytes": "bytes in Kafka a change",
    },
    "debezium-steady": {
        "p50_s": "delay, p50, s",
        "p99_s": "p99, s",
        "after_split_s": "most after a split, s",
        "cores": "cores",
        "mib": "MiB",
        "away_s": "away after a SIGKILL, s",
        "lost": "lost",
        "repeated": "repeated",
        "reordered": "reordered",
    },
    "debezium-lake": {
        "per_s": "changes a second, with the start",
        "cpu_us": "µs of CPU a change, with the start",
        "missing": "missing",
        "twice": "twice",
        "out_of_order": "after a later commit",
        "torn": "transactions in parts",
    },
    "producer-growth": {
        "per_s": "changes a second",
        "cpu_us": "µs of CPU a change",
        "most_mib": "most memory of a worker, MiB",
    },
    "producer-stages": {
        "receive, gRPC": "received by gRPC",
        "receive": "received",
        "parse": "parsed",
        "encode": "encoded",
        "produce": "produced",
        "cpu_us": "in a worker",
    },
}


def generated(page: str) -> str:
    """Return the page with its tables."""
    return _TABLE.sub(lambda found: f"{found[1]}{table(found['name'])}{found[3]}", page)


def table(name: str) -> str:
    """Return a table of medians, and what it was measured with."""
    found = json.loads((RESULTS / f"{name}.json").read_text())
    columns = COLUMNS[name]
    rows = [["", *columns.values()], ["---"] * (len(columns) + 1)]
    rows += [
        [
            one["name"].removeprefix("kafka, "),
            *(_cell(one.get("this", one).get(figure)) for figure in columns),
        ]
        for one in found["measured"]
    ]
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    machine = found["machine"]
    versions = ", ".join(
        f"{key.replace('_', ' ')} {machine[key]}"
        for key in ("python", "java", "kafka_connect", "debezium")
        if key in machine
    )
    return (
        f"\n{lines}\n`{found['command']}` at {found['commit']}; {machine['cores']} cores of "
        f"{machine['processor']}, {versions}\n"
    )


def _cell(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return ""
    median, least, most = (_number(spread[name]) for name in ("median", "min", "max"))
    return median if least == most else f"{median} ({least} to {most})"


def _number(value: float) -> str:
    if value == int(value) or value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def main() -> int:
    """Write the page."""
    PAGE.write_text(generated(PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())

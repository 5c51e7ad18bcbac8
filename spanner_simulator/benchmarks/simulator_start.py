"""How long the program takes from its start until clients may call.

    python benchmarks/simulator_start.py [--runs 10] [--record]

Each run starts the program with a small database and waits for its line of JSON. CPU is that of the
program until then, user and system; on a machine with other work it is the steadier figure.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from simulator_process import STREAM, TABLE, cpu_s_of, machine, resident_mb
from simulator_report import record


def start(schema: Path) -> tuple[float, float, float]:
    """Seconds until ready, CPU seconds until then, resident megabytes."""
    command = [sys.executable, "-m", "spanner_simulator", "--database", "bench"]
    began = time.perf_counter()
    child = subprocess.Popen(
        [*command, "--ddl-file", str(schema)], stdout=subprocess.PIPE, text=True
    )
    try:
        if child.stdout is None or not child.stdout.readline():
            raise RuntimeError("the simulator did not start")
        return time.perf_counter() - began, cpu_s_of(child.pid), resident_mb(child.pid)
    finally:
        child.terminate()
        child.communicate()


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--record", action="store_true", help="write the results file")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        schema = Path(folder) / "schema.sql"
        schema.write_text(f"{TABLE}; {STREAM.format('S0', '')};")
        runs = [start(schema) for _ in range(chosen.runs)]
    walls, cpus, sizes = zip(*runs, strict=True)
    medians = [statistics.median(column) for column in (walls, cpus, sizes)]
    row = (chosen.runs, min(walls), *medians)
    lines = [
        "| runs | ready after, s (fastest) | (median) | CPU s (median) | MB |",
        "| --- | --- | --- | --- | --- |",
        "| {} | {:.2f} | {:.2f} | {:.2f} | {:.0f} |".format(*row),
    ]
    text = "\n".join(lines)
    print(text)
    if chosen.record:
        command = f"python benchmarks/simulator_start.py --runs {chosen.runs}"
        record("Start", command, f"{text}\n\n{NOTES}", machine())


NOTES = (
    "While the program imported Google's client libraries and the SQL engine at its start, the same"
    " took 1.45 s of CPU and 106 MB. It loads the generated messages alone now, and the SQL engine"
    " for the first statement that needs it."
)

if __name__ == "__main__":
    main()

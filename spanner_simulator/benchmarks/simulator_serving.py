"""How fast the simulator serves a backlog to a raw gRPC reader, and what it keeps in memory.

    python benchmarks/simulator_serving.py [--rows 200000] [--record]

The reader takes bytes and does nothing with them until the end. CPU is that of the simulator's
process, user and system; memory is its resident set, scaled to a million rows.
"""

from __future__ import annotations

import argparse
import time

from raw_client import RawClient, Result
from simulator_process import SimulatorProcess, machine
from simulator_report import record

HEADER = (
    "| mode | read | rows | bytes a row | rows a message | rows/s | simulator CPU us a row"
    " | rows per CPU second |"
)
NOTES = (
    "State: the rows themselves, their change records and the commit log. Kept bytes are bounded"
    " (256 MiB a database); what was dropped is encoded again."
)


def utc(at_s: float) -> str:
    """RFC 3339 to the microsecond."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at_s)) + f".{int(at_s % 1 * 1e6):06d}Z"


def measure(mode: str, rows: int) -> tuple[list[str], list[str]]:
    """Lines of the two tables for one mode."""
    empty = SimulatorProcess.start(load=0, mode=mode)
    base_mb = empty.memory_mb()
    empty.stop()
    process = SimulatorProcess.start(load=rows, mode=mode)
    try:
        loaded_mb = process.memory_mb()
        client = RawClient(process.address)
        end = utc(time.time())
        lines = []
        for name in ("first, encoded now", "again, from kept bytes", "once more"):
            cpu_s, began = process.cpu_s(), time.perf_counter()
            messages = list(client.query("S0", process.token, process.start, end))
            wall_s, cpu_s = time.perf_counter() - began, process.cpu_s() - cpu_s
            found = sum(len(Result.FromString(one).values) for one in messages)
            size = sum(len(one) for one in messages) / found
            lines.append(
                f"| {mode} | {name} | {found:,} | {size:.0f} | {found / len(messages):,.0f}"
                f" | {found / wall_s:,.0f} | {cpu_s / found * 1e6:.1f} | {found / cpu_s:,.0f} |"
            )
        read_mb = process.memory_mb()
    finally:
        process.stop()
    scale = 1e6 / rows
    memory = [
        f"| {mode} | {(loaded_mb - base_mb) * scale:,.0f} | {(read_mb - loaded_mb) * scale:,.0f} |"
    ]
    return lines, memory


def main() -> None:
    """Measure, print, record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--record", action="store_true", help="write the results file")
    chosen = parser.parse_args()
    serving = [HEADER, "|" + " --- |" * 8]
    memory = [
        "| mode | state, MB a million rows | bytes kept after reading, MB a million rows |",
        "|" + " --- |" * 3,
    ]
    for mode in ("immutable", "mutable"):
        lines, held = measure(mode, chosen.rows)
        serving += lines
        memory += held
    text = "\n".join([*serving, "", *memory])
    print(text)
    if chosen.record:
        record(
            "Serving a backlog",
            f"python benchmarks/simulator_serving.py --rows {chosen.rows}",
            f"{text}\n\n{NOTES}",
            machine(),
        )


if __name__ == "__main__":
    main()

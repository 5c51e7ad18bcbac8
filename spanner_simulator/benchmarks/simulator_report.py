"""The results file of the simulator's benchmarks: one section a benchmark, each replaced alone."""

from __future__ import annotations

import re
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "simulator.md"
TITLE = (
    "# The simulator: how fast it starts, serves and commits\n\n"
    "Where the load average is above the number of cores, other work ran beside it: then CPU is"
    " the steadier figure, and it, too, is too high.\n"
)


def record(section: str, command: str, text: str, machine: str) -> None:
    """Write a section with its command and the machine."""
    old = RESULTS.read_text() if RESULTS.exists() else TITLE
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", old, re.MULTILINE | re.DOTALL))
    sections[section] = f"\n    {command}\n\nMachine: {machine}.\n\n{text}\n\n"
    body = "\n\n".join(f"## {name}\n{sections[name].rstrip()}" for name in sorted(sections))
    RESULTS.write_text(f"{TITLE}\n{body.rstrip()}\n")

"""What all benchmarks share: the machine, spreads of rounds, progress, and the kernel's memory."""

from __future__ import annotations

import os
import platform
import re
import statistics
import sys
from pathlib import Path
from typing import Any

KIB, MIB = 1 << 10, 1 << 20


def say(line: str) -> None:
    """Report progress on standard error: standard output is for the figures."""
    print(line, file=sys.stderr, flush=True)


def spread(values: list[float]) -> dict[str, float]:
    """Return median, least and most of a figure's rounds."""
    found = {"median": statistics.median(values), "min": min(values), "max": max(values)}
    return {name: round(value, 2) for name, value in found.items()}


def spread_text(found: dict[str, float]) -> str:
    """Return a spread as a cell of a table."""
    return f"{found['median']:,.1f} ({found['min']:,.1f} to {found['max']:,.1f})"


def machine(**more: Any) -> dict[str, Any]:
    """Describe the machine and its load."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[1], 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        **more,
    }


def memory_bytes(name: str, pid: int | str = "self") -> int:
    """Return a process's memory as Linux counts it: `VmRSS` now, `VmHWM` the most at any time."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * KIB if found else 0

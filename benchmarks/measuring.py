"""What all benchmarks share: the machine, spreads of rounds, progress, and the kernel's memory."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import statistics
import subprocess
import sys
from collections.abc import Sequence
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


def document(measured: Any, **more: Any) -> str:
    """Return what was measured as JSON, with the command, the commit and the machine."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], check=False, capture_output=True, text=True
    )
    found = {
        "command": shlex.join(["python", "-m", *_module(sys.orig_argv)]),
        "commit": commit.stdout.strip(),
        "machine": machine(**more),
        "measured": measured,
    }
    return json.dumps(found, indent=1)


def _module(words: list[str]) -> list[str]:
    """Return what follows `-m` in a command."""
    return words[words.index("-m") + 1 :] if "-m" in words else words[1:]


def memory_bytes(name: str, pid: int | str = "self") -> int:
    """Return a process's memory as Linux counts it: `VmRSS` now, `VmHWM` the most at any time."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found[1]) * KIB if found else 0


def options_parser(
    module: str, description: str | None, names: Sequence[str], usual: Sequence[str], rounds: int
) -> argparse.ArgumentParser:
    """Return a parser of the options that all programs have: `--only`, `--rounds`, `--json`."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--only", nargs="*", default=list(usual), metavar="NAME", help="; ".join(names)
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="runs of each name")
    parser.add_argument("--json", action="store_true", help="one JSON document at the end")
    return parser


def require_known(
    parser: argparse.ArgumentParser, only: Sequence[str], names: Sequence[str]
) -> None:
    """End the program where `--only` has a name that is not one of `names`."""
    unknown = sorted(set(only) - set(names))
    if unknown:
        parser.error(f"unknown names {unknown}; known: {'; '.join(names)}")


def figures_of_process(
    module: str, *arguments: Any, what: str, timeout_s: float
) -> dict[str, float]:
    """Run a module in a process of its own; return the JSON of the last line that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        check=False, capture_output=True, text=True, timeout=timeout_s,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{what}: {done.stderr[-2_000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


class Child:
    """A process that runs `main` of a module and answers each line with a line."""

    def __init__(self, module: str, *arguments: Any) -> None:
        program = f"import sys; sys.path[:] = {sys.path!r}; from {module} import main; main()"
        command = [sys.executable, "-c", program, *map(str, arguments)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.pid = self._process.pid

    def line(self) -> str:
        """Return its next line; ends this program if it has ended."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip() or sys.exit("a measured process ended")

    def ask(self, line: str) -> str:
        """Send a line; return its answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        return self.line()

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()
